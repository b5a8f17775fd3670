"""A small provider of ours at the other end of the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

KEY = "sk-very-secret-key-of-this-test"
HEADER = "another-very-secret-value"
ANSWER = {
    "id": "x",
    "model": "gpt-x-2026-01-01",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
}
Step = Callable[[web.Request], "web.StreamResponse"]


@asynccontextmanager
async def provider(*steps) -> AsyncIterator[tuple[str, list]]:
    """Serve the steps one after another, the last one again and again. Yields the base URL and the requests that came."""
    seen: list = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append((dict(request.headers), await request.json()))
        step = steps[min(len(seen), len(steps)) - 1]
        made = step(request) if callable(step) else step
        if asyncio.iscoroutine(made):
            made = await made
        if isinstance(made, dict):
            return web.json_response(made)
        return made

    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}/v1", seen
    finally:
        await runner.cleanup()


def error(status, body=None, **headers):
    return lambda _request: web.Response(status=status, text=json.dumps(body or {}), headers=headers)


CHUNK = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x-2026-01-01"}
USAGE = {**CHUNK, "choices": [], "usage": ANSWER["usage"]}


def chunk(text=None, *, calls=None, finish=None):
    """One chunk of a streamed answer of Chat Completions."""
    delta = {} if text is None else {"role": "assistant", "content": text}
    if calls is not None:
        delta["tool_calls"] = calls
    return {**CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(index, name):
    """The beginning of a tool call in a chunk."""
    function = {"name": name, "arguments": "{}"}
    return chunk(calls=[{"index": index, "id": f"c{index}", "type": "function", "function": function}])


HELLO = (chunk("hel"), chunk("lo"), chunk(finish="stop"), USAGE, "[DONE]")


def stream(*events, pause=0.0, cut=False, kind="text/event-stream"):
    """Stream events: objects, texts after ``data:``, or raw bytes. ``cut``: the connection breaks at the end."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        for event in events:
            text = event if isinstance(event, str) else "" if isinstance(event, bytes) else json.dumps(event)
            await response.write(event if isinstance(event, bytes) else f"data: {text}\n\n".encode())
            await asyncio.sleep(pause)
        if cut:
            request.transport.abort()
        return response

    return answer
