"""A server that speaks one shape of API through its dialect, as the gateway does, for clients that are somebody else's."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

from aiohttp import web

from orchestrator.gateway.dialects.sse import EventParser


class Speaking:
    """What the server says next, and what it was asked."""

    def __init__(self, dialect):
        self.dialect = dialect
        self.said = None
        self.failure = None
        self.asked = []

    async def handle(self, request):
        body = await request.json()
        self.asked.append(body)
        self.dialect.check(body, 100, frozenset())
        if self.failure is not None and not self.failure.get("late"):
            status, words = self.failure["status"], self.failure["words"]
            return web.json_response(self.dialect.error(*words), status=status)
        answer = self.dialect.answer(body, self.said)
        return await self.stream(request, body, answer) if body.get("stream") else web.json_response(answer)

    async def stream(self, request, body, answer):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        reader, parser = self.dialect.reader(body), EventParser()
        wire = b"".join(event.encoded() for event in self.dialect.events(answer))
        for cut in range(0, len(wire), 100):
            if self.failure is not None and cut > len(wire) // 2:
                for event in self.dialect.error_events(*self.failure["words"]):
                    await response.write(event.encoded())
                return response
            for event in parser.feed(wire[cut : cut + 100]):
                for shown in reader.take(event):
                    await response.write(shown.encoded())
        assert reader.done
        return response


@contextmanager
def speaking(dialect):
    """Serve a dialect in a thread of its own. Yields the address and the ``Speaking``."""
    here = Speaking(dialect)
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_post(dialect.path, here.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def begin():
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner.addresses[0][1]

    port = loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}", here
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
