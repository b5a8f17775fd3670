"""The port that grading pods reach: what is laid into them, and the reports of their runners. Nothing without a token of the pod's own.

``GET /grading/inputs``            with prepare's token, until it is given up: a tar
``POST /grading/prepared``         gives prepare's token up
``PUT /grading/results/{index}``   with the runners' token: the result of one pair, once
``GET /healthz``                   without a token
"""

from __future__ import annotations

import asyncio
import io
import logging
import secrets
import socket
import tarfile
import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Literal

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler
from pydantic import Base64Bytes, Field, ValidationError
from yarl import URL

from grader_service.cluster.render import Laid
from grader_service.pod import wire
from orchestrator.records.base import Record

log = logging.getLogger("grader_service")

_CHUNK = 1 << 20
_PER_ADDRESS = 128
"""Connections from one pod: its containers need one each. More than are taken from the kernel at once, so that what a runner says is read
before it can be crowded out.
"""
_BACKLOG = 64
_CALLS_PER_SECOND, _CALLS_AT_ONCE = 50.0, 200
"""Connections that one address may open. More are let in only once they have shown a token: until then nothing is made for them."""
_MOST_KNOWN = 4096
"""Addresses whose calls are counted; those that have been quiet are forgotten."""
_IDLE_SECONDS = 30.0
_REFUSAL_SECONDS = 0.1
"""Pause before a refusal: a subject that asks in a loop costs little."""


class PairResult(Record):
    """What a runner delivers. Trusted as far as its image and the hidden tests are."""

    code: int | None
    signal: int | None
    cause: Literal["exited", "wall_clock"]
    started: float
    ended: float
    output: Base64Bytes = Field(max_length=wire.RESULT_BYTES)
    final: Base64Bytes | None
    subject_gone: bool
    """The subject had ended before the tests had."""


class Ticket:
    """One grading pod as long as it is awaited."""

    def __init__(self, laid: Callable[[], Iterable[Laid]], pairs: int) -> None:
        self.prepare_token = secrets.token_urlsafe(32)
        self.runner_token = secrets.token_urlsafe(32)
        self.results: list[asyncio.Future[PairResult]] = [
            asyncio.get_running_loop().create_future() for _ in range(pairs)
        ]
        self.laid = laid
        self.prepared = False

    @property
    def delivered(self) -> bool:
        """Whether all results are there."""
        return all(result.done() for result in self.results)


class Door:
    """Serves grading pods. Use as ``async with door.listening(HOST, PORT)``."""

    def __init__(self) -> None:
        self._prepares: dict[str, Ticket] = {}
        self._runners: dict[str, Ticket] = {}
        self._served: set[RequestHandler] = set()
        """Connections that have shown a token and wait for their answer."""

    def admit(self, laid: Callable[[], Iterable[Laid]], pairs: int) -> Ticket:
        """Make tokens for one pod. ``laid`` yields what goes into it, from another thread."""
        ticket = Ticket(laid, pairs)
        self._prepares[ticket.prepare_token] = ticket
        self._runners[ticket.runner_token] = ticket
        return ticket

    def forget(self, ticket: Ticket) -> None:
        """Take a pod's tokens back."""
        self._prepares.pop(ticket.prepare_token, None)
        self._runners.pop(ticket.runner_token, None)
        for result in ticket.results:
            result.cancel()

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Begin to serve; port 0: any. Raises OSError."""
        server, pace = _Counted(self.answer, self._served), _Pace()
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Gate(server, pace, self._knows), host, port, backlog=_BACKLOG)

    def _knows(self, first: bytes) -> bool:
        """Return whether a request that begins so shows a token that is good here."""
        _, _, rest = first.partition(b"Bearer ")
        token = rest.partition(b"\r")[0].decode("ascii", "replace")
        return token in self._runners or token in self._prepares

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        words = request.path.strip("/").split("/")
        if (request.method, request.path) == ("GET", "/healthz"):
            return web.json_response({"ok": True})
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        delivers = request.method == "PUT" and words[:2] == ["grading", "results"] and len(words) == 3
        ticket = (self._runners if delivers else self._prepares).get(token)
        if ticket is None:
            return await _refusal()
        self._served.add(request.protocol)
        try:
            return await (_take(request, ticket, words[2]) if delivers else self._prepare(request, token, ticket))
        finally:
            self._served.discard(request.protocol)

    async def _prepare(self, request: web.BaseRequest, token: str, ticket: Ticket) -> web.StreamResponse:
        if (request.method, request.path) == ("POST", "/grading/prepared"):
            return self._give_up(token, ticket)
        if (request.method, request.path) == ("GET", "/grading/inputs") and not ticket.prepared:
            return await _send(request, ticket)
        return web.Response(status=409)

    def _give_up(self, token: str, ticket: Ticket) -> web.Response:
        """From now on the token fetches nothing. It may be given up again for a moment: the first answer can be lost."""
        ticket.prepared = True
        asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._prepares.pop, token, None)
        return web.Response(status=204)


class _Pace:
    """Counts the calls of each address: so many at once, and so many in a second."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float]] = {}
        """By address: calls that are left, and when that was so."""
        self._held: dict[str, dict[asyncio.Transport, None]] = {}
        """By address, the oldest first."""

    def take(self, address: str, now: float) -> bool:
        """Count one call. Returns whether it is one too many."""
        left, since = self._known.get(address, (float(_CALLS_AT_ONCE), now))
        left = min(_CALLS_AT_ONCE, left + (now - since) * _CALLS_PER_SECOND)
        if address not in self._known and len(self._known) >= _MOST_KNOWN:
            full = _CALLS_AT_ONCE / _CALLS_PER_SECOND
            self._known = {each: (n, at) for each, (n, at) in self._known.items() if now - at < full}
        self._known[address] = (max(0.0, left - 1), now)
        return left < 1

    def hold(self, address: str, transport: asyncio.Transport) -> None:
        """Let a connection wait for its first bytes; of too many of an address the oldest is ended."""
        same = self._held.setdefault(address, {})
        same[transport] = None
        if len(same) > _PER_ADDRESS:
            oldest = next(iter(same))
            del same[oldest]
            oldest.abort()

    def release(self, address: str, transport: asyncio.Transport) -> None:
        """Forget a connection that waits no more. Harmless when repeated."""
        same = self._held.get(address, {})
        same.pop(transport, None)
        if not same:
            self._held.pop(address, None)


class _Gate(asyncio.Protocol):
    """Takes a connection and gives it to the server; of an address that calls too often only once it has shown a token."""

    def __init__(self, server: _Counted, pace: _Pace, knows: Callable[[bytes], bool]) -> None:
        self._server, self._pace, self._knows = server, pace, knows
        self._address = ""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        self._transport = transport
        if self._pace.take(self._address, time.monotonic()):
            self._pace.hold(self._address, transport)
        else:
            self._let_in(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._knows(data):
            self._pace.release(self._address, self._transport)
            self._let_in(self._transport).data_received(data)
        else:
            self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._transport is not None:
            self._pace.release(self._address, self._transport)

    def _let_in(self, transport: asyncio.Transport) -> RequestHandler:
        handler = self._server()
        transport.set_protocol(handler)
        handler.connection_made(transport)
        return handler


class _Counted(web.Server):
    """aiohttp's protocol factory: of a pod that holds too many connections the oldest is ended, unless it has shown a token.

    The newest is not refused: it may be a runner's, beside a subject that holds all that its pod may have.
    """

    def __init__(self, answer: Callable[[web.BaseRequest], Any], served: AbstractSet[RequestHandler]) -> None:
        quiet = logging.getLogger("grader_service.pods")
        quiet.setLevel(logging.CRITICAL + 1)  # what a pod can say there at will is nothing for a log
        super().__init__(
            answer,
            request_factory=_request,
            access_log=None,
            logger=quiet,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=0,
        )
        self._served = served
        self._open: dict[str, dict[RequestHandler, asyncio.Transport]] = {}
        """By address, the oldest first."""
        self._peers: dict[RequestHandler, str] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._peers[handler] = peer
        same = self._open.setdefault(peer, {})
        same[handler] = transport
        if len(same) > _PER_ADDRESS:
            oldest = next((each for each in same if each not in self._served), handler)
            same[oldest].abort()
            self._forget(oldest)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._forget(handler)

    def _forget(self, handler: RequestHandler) -> None:
        peer = self._peers.pop(handler, None)
        if peer is not None:
            del self._open[peer][handler]
            if not self._open[peer]:
                del self._open[peer]


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Return the request that has arrived, also where its target is a host that aiohttp cannot decode.

    Nobody would answer that one else, nor end its connection, and the error would be in our log.
    """
    loop = asyncio.get_running_loop()
    try:
        return web.BaseRequest(message, payload, protocol, writer, task, loop)
    except ValueError:  # of which those of IDNA are some
        return web.BaseRequest(message._replace(url=URL("/")), payload, protocol, writer, task, loop)


async def _refusal() -> web.Response:
    await asyncio.sleep(_REFUSAL_SECONDS)
    return web.Response(status=401)


async def _take(request: web.BaseRequest, ticket: Ticket, index: str) -> web.Response:
    """Take a result. The same pair's second one is a repetition after a lost answer."""
    if not index.isdigit() or int(index) >= len(ticket.results):
        return web.Response(status=404)
    try:
        data = await request.content.readexactly(min(request.content_length or 0, 2 * wire.RESULT_BYTES))
        result = PairResult.model_validate_json(data, strict=False)
    except (asyncio.IncompleteReadError, ValidationError, ValueError):
        return web.Response(status=400)
    future = ticket.results[int(index)]
    if not future.done():
        future.set_result(result)
    return web.Response(status=204)


async def _send(request: web.BaseRequest, ticket: Ticket) -> web.StreamResponse:
    """Stream the tar; the client sees a connection that breaks when it cannot be made."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
    await response.prepare(request)
    loop = asyncio.get_running_loop()

    def write(data: bytes) -> None:
        asyncio.run_coroutine_threadsafe(response.write(data), loop).result()

    await asyncio.to_thread(write_tar, ticket.laid, write)
    await response.write_eof()
    return response


class _Pieces(io.RawIOBase):
    """A file that passes on what is written, in large pieces."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        if len(self._waiting) >= _CHUNK:
            self.pass_on()
        return len(data)

    def pass_on(self) -> None:
        """Pass on what waits."""
        if self._waiting:
            self._write(bytes(self._waiting))
            self._waiting.clear()


def write_tar(laid: Callable[[], Iterable[Laid]], write: Callable[[bytes], None]) -> None:
    """Write everything as one tar whose last member is ``end``. Raises OSError."""
    out = _Pieces(write)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:

        def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
            """Without owners and times; two names of one file become two files."""
            tar.inodes.clear()  # type: ignore[attr-defined]
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            return member

        for item in laid():
            if isinstance(item.source, bytes):
                _add_bytes(tar, item.path, item.source)
            else:
                tar.add(item.source, item.path, filter=plain)
        _add_bytes(tar, "end", b"")
    out.pass_on()


def _add_bytes(tar: tarfile.TarFile, path: str, data: bytes) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode = len(data), 0o644
    tar.addfile(member, io.BytesIO(data))


def host_address(address: str) -> str:
    """Return ``http://HOST:PORT`` with the host's own IP address, since pods have no DNS. Raises OSError."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0][4][0]
    return f"http://[{found}]:{port}" if ":" in str(found) else f"http://{found}:{port}"
