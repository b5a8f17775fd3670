"""Model calls under load: so many connections, each with one call at a time, and how long each call took.

Standard input holds ``{"targets": [[PORT, TOKEN], …], "concurrent", "calls", "stream", "model", "path", "pause", "spread"}``. The
connections are shared out over the targets; they begin evenly over ``spread`` seconds, and ``pause`` lies between the calls of each. Prints
JSON: the times of all calls in seconds, the first 1,000 failures, and when it began and ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any


class Load:
    """One load as it was asked for."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        self._left: int = asked["calls"]
        self.times: list[float] = []
        self.failures: list[str] = []

    async def run(self) -> None:
        """Make all calls."""
        concurrent, targets = self._asked["concurrent"], self._asked["targets"]
        await asyncio.gather(*(self._one(n / concurrent, *targets[n % len(targets)]) for n in range(concurrent)))

    def _request(self, token: str) -> bytes:
        body = {"model": self._asked["model"], "messages": [{"role": "user", "content": "go " * 100}]}
        data = json.dumps({**body, "stream": self._asked["stream"]}).encode()
        head = f"POST {self._asked['path']} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data

    async def _one(self, share: float, port: int, token: str) -> None:
        pause = self._asked["pause"]
        await asyncio.sleep(share * self._asked["spread"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = self._request(token)
        while self._left > 0:
            self._left -= 1
            began = time.perf_counter()
            writer.write(request)
            try:
                problem = await _answer(reader)
            except (OSError, asyncio.IncompleteReadError) as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                self.failures.append(problem)
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            else:
                self.times.append(time.perf_counter() - began)
            if pause:
                await asyncio.sleep(pause)
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> str:
    """Read one answer to its end; return what is wrong with it, or nothing."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = head.split(" ", 2)[1]
    lines = dict(line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
    if "chunked" in lines.get("transfer-encoding", ""):
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body = (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        whole = body.rstrip().endswith(b"[DONE]") or body.startswith(b"{")
    else:
        body = await reader.readexactly(int(lines["content-length"]))
        whole = True
    return "" if status == "200" and whole else f"status {status}: {body[:300].decode('utf-8', 'replace')}"


if __name__ == "__main__":
    load = Load(json.load(sys.stdin))
    began = time.monotonic()
    asyncio.run(load.run())
    print(
        json.dumps({"times": load.times, "failures": load.failures[:1000], "began": began, "ended": time.monotonic()})
    )
