"""Reads request bodies of agents: whole, in time, not too large, not too deep. The one place where an agent's bytes are parsed here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import orjson
from aiohttp import ClientError, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from orchestrator.gateway.config import AgentLimits
from orchestrator.gateway.refusal import Refusal

_REQUEST_BYTES = 16 << 10
"""What an open request costs beside its body: a connection, a task, a record."""
_VALUE_BYTES = 64
"""What a parsed value costs at least."""
REQUEST_SECONDS = 2e-4
"""What a request costs at least, also one that is refused."""
BYTE_SECONDS = 25e-9
_VALUE_SECONDS = 4e-6
"""What a byte and a value of a body cost until they are recorded and sent on, measured on a slow machine."""
_PART = 0.25
"""Of the time of this process: what one launch may have for long."""
_AT_ONCE_SECONDS = 1.0
"""What it may have at once."""
_LARGE = 1 << 20
"""Bytes from which on work on a body goes aside: less takes some milliseconds in all."""

Found = TypeVar("Found")


class Pool:
    """Bytes that the open requests of all launches take in this process.

    A launch may hold as much as is left for the others (dynamic thresholds; Choudhury and Hahne, "Dynamic queue length thresholds for
    shared-memory packet switches", 1998): one alone half of it, n greedy ones an equal part each, and something is left for whoever comes.
    """

    def __init__(self, limit: int) -> None:
        self.left = limit
        self._aside = asyncio.Semaphore(1)

    async def aside(self, size: int, work: Callable[[], Found]) -> Found:
        """Return what some work on a body of this size returns, which may run on a thread, so it must change nothing.

        Everybody else has a turn whenever it lets go of the interpreter: between its steps, and while it digests. One large body is worked
        on at one time, since threads that want the interpreter make all others wait for each of them.
        """
        if size < _LARGE:
            return work()
        async with self._aside:
            return await asyncio.to_thread(work)

    def has_room(self, held: int, size: int) -> bool:
        """Return whether a launch that holds so much may take more."""
        return held + size <= self.left


class Share:
    """The time of this process that one launch may have for reading and recording what it sends (generic cell rate algorithm).

    Everybody waits while a body is parsed and recorded, and most of what is refused costs no step: who sends large ones without end waits
    for itself. The time is told from the size, so that a busy machine changes nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = float("-inf")

    async def take(self, seconds: float) -> None:
        """Wait until the launch may have so many seconds."""
        now = self._clock()
        self._due = max(now, self._due) + seconds / _PART
        if (delay := self._due - now - _AT_ONCE_SECONDS / _PART) > 0:
            await asyncio.sleep(delay)


class Buffered:
    """Bytes that the open requests of one launch take in this process, and the time."""

    def __init__(self, limit: int, pool: Pool) -> None:
        self._limit = limit
        self.pool = pool
        self._held = 0
        self.share = Share()

    @contextmanager
    def holding(self) -> Iterator[Holding]:
        """Give back everything that was taken inside."""
        holding = Holding(self)
        try:
            yield holding
        finally:
            self._set(self._held - holding.size)

    def take(self, size: int) -> None:
        """Count more bytes. Raises Refusal."""
        if self._held + size > self._limit:
            msg = f"the open requests of this trial hold more than {self._limit} bytes; send fewer at one time"
            raise Refusal(413, "request_too_large", msg, finding=True, close=True)
        if not self.pool.has_room(self._held, size):
            msg = f"the open requests of this trial hold {self._held} bytes, as much as its share of the gateway; send fewer at one time"
            raise Refusal(429, "too_many_requests", msg, finding=True, close=True)
        self._set(self._held + size)

    def _set(self, held: int) -> None:
        self.pool.left -= held - self._held
        self._held = held


class Holding:
    """What one request holds."""

    def __init__(self, buffered: Buffered) -> None:
        self._buffered = buffered
        self.share = buffered.share
        self.pool = buffered.pool
        self.size = 0

    def take(self, size: int) -> None:
        """Count more bytes. Raises Refusal."""
        self._buffered.take(size)
        self.size += size


async def read_json(request: web.BaseRequest, limits: AgentLimits, holding: Holding) -> dict[str, Any]:
    """Return the JSON object of a request body. Raises Refusal."""
    holding.take(_REQUEST_BYTES)
    data = await read_body(request, limits.body_bytes, limits.body_seconds, holding.take)
    await holding.share.take(len(data) * BYTE_SECONDS)
    count = await holding.pool.aside(len(data), partial(count_values, data, limits.values))
    await holding.share.take(min(count, limits.values) * _VALUE_SECONDS)  # counting them costs as well
    if count > limits.values:
        msg = f"the request body has more than {limits.values} values"
        raise Refusal(413, "request_too_large", msg, finding=True)
    holding.take(count * _VALUE_BYTES)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        msg = f"the request body is not JSON: {error.msg} at character {error.pos}"
        raise Refusal(400, "invalid_json", msg) from None
    if not isinstance(value, dict):
        msg = f"the request body must be a JSON object, not {type(value).__name__}"
        raise Refusal(400, "invalid_json", msg)
    await asyncio.sleep(0)  # a large one takes a while, here and further on: the others have a turn in between
    if not await holding.pool.aside(len(data), partial(within_depth, value, limits.depth)):
        msg = f"the request body nests deeper than {limits.depth} levels"
        raise Refusal(400, "invalid_json", msg, finding=True)
    return value


async def read_body(
    request: web.BaseRequest, most: int, seconds: float, take: Callable[[int], None] = lambda _size: None
) -> bytes:
    """Return a request's body of at most ``most`` bytes; ``take`` hears of each piece and may refuse it. Raises Refusal."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        msg = "compressed request bodies are not taken; send it without Content-Encoding"
        raise Refusal(415, "unsupported_encoding", msg, close=True)
    length = request.content_length
    if length is not None and length > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            if request.headers.get("Expect", "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            async for part in request.content.iter_any():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                take(len(part))
                parts.append(part)
    except TimeoutError:
        msg = f"the request body did not arrive within {seconds:g} s"
        raise Refusal(408, "request_timeout", msg, finding=True, close=True) from None
    except (OSError, ClientError, HttpProcessingError, RequestPayloadError):
        # Whatever is wrong with the transfer is the sender's: nobody else has a hand in this connection.
        raise Refusal(400, "broken_request", "the request body broke off or is not well formed", close=True) from None
    return b"".join(parts)


def count_values(data: bytes, enough: int) -> int:
    """Return a bound for the number of values in a JSON text; it is close where the number exceeds ``enough``.

    A value follows a bracket, a comma, or the key after a brace or comma. Those in texts count too, so texts are taken out if it matters.
    """
    count = _separators(data)
    if count <= enough:
        return count
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    strings = plain.count(b'"') // 2
    if strings > 2 * enough:  # keys and values
        return strings
    return _separators(b"".join(plain.split(b'"')[::2]))


def is_small(value: Any, most: int) -> bool:
    """Return whether there are at most so many values in a value, without looking at more."""
    todo, count = [value], 1
    while todo and count <= most:
        inner = todo.pop()
        if isinstance(inner, dict | list):
            count += len(inner)
            todo += (inner.values() if isinstance(inner, dict) else inner) if count <= most else ()
    return count <= most


def _separators(data: bytes) -> int:
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{")


def within_depth(value: Any, depth: int) -> bool:
    """Return whether lists and objects nest at most ``depth`` levels, without recursion."""
    level = [value]
    for _ in range(depth):
        inner = [item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer)]
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return True
    return False


def _too_large(most: int) -> Refusal:
    msg = f"the request body is larger than {most} bytes"
    return Refusal(413, "request_too_large", msg, finding=True, close=True)
