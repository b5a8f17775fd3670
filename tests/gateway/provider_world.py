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

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
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
