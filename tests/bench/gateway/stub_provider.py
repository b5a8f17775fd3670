"""A model provider that costs next to nothing: it waits and answers, whole or as a stream. Prints its port, ends with its standard input.

    python stub_provider.py SECONDS CHUNKS

An answer takes ``SECONDS``; a streamed one has ``CHUNKS`` pieces of text, spread over that time. ``GET /stats`` tells how many calls were
answered and the integral of calls under way over time, in call seconds: whoever asks twice knows how busy the slots were in between.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

WHOLE = {
    "id": "stub",
    "object": "chat.completion",
    "created": 0,
    "model": "stub",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
}


def _json(value: object, status: str = "200 OK") -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _piece(text: str) -> bytes:
    return f"{len(text):x}\r\n{text}\r\n".encode()


def _event(delta: dict[str, object], reason: str | None = None, **more: object) -> str:
    choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
    value = {"id": "stub", "object": "chat.completion.chunk", "created": 0, "model": "stub", "choices": choices}
    return f"data: {json.dumps({**value, **more})}\n\n"


_ANSWER = _json(WHOLE)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_PIECE = _piece(_event({"content": "hello "}))
_END = (
    _piece(_event({}, "stop"))
    + _piece(f"data: {json.dumps({**WHOLE, 'object': 'chat.completion.chunk', 'choices': []})}\n\n")
    + _piece("data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


class Stub:
    """Counts and answers."""

    def __init__(self, seconds: float, chunks: int) -> None:
        self._seconds = seconds
        self._chunks = chunks
        self._under_way = 0
        self._since = time.monotonic()
        self._busy = 0.0
        self._calls = 0

    def _count(self, change: int) -> None:
        now = time.monotonic()
        self._busy += self._under_way * (now - self._since)
        self._since = now
        self._under_way += change

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").lower().split("\r\n")
                length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                if lines[0].startswith("get /stats"):
                    self._count(0)
                    writer.write(_json({"calls": self._calls, "busy": self._busy, "t": time.monotonic()}))
                    continue
                self._count(1)
                try:
                    await self._answer(writer, streamed=b'"stream":true' in body.replace(b" ", b""))
                finally:
                    self._calls += 1
                    self._count(-1)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, *, streamed: bool) -> None:
        if not streamed:
            await asyncio.sleep(self._seconds)
            writer.write(_ANSWER)
            return
        writer.write(_STREAM_HEAD)
        for _ in range(self._chunks):
            await asyncio.sleep(self._seconds / self._chunks)
            writer.write(_PIECE)
        writer.write(_END)
        await writer.drain()


async def main(seconds: float, chunks: int) -> None:
    server = await asyncio.start_server(Stub(seconds, chunks).serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), int(sys.argv[2])))
