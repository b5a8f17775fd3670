"""A TCP port that many pods share, some of them hostile: connections are counted by the address that they come from.

Nobody waits behind a flood: new connections wait in lanes, one for each address (``lanes``), and a pod that holds too many loses the one
that has rested longest: one without a whole request, or between requests. Requests under way are never cut off; how many those may be is
for the handler to bound. Requests of one address are answered at a rate, so that no pod has the process for itself.

Our own programs in a pod share its address with the agent. Their connections are known by the token that they show first (``greeting``),
and are counted by that: nothing of what an agent does is in their way.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler
from yarl import URL

from orchestrator.errors import GatewayError
from orchestrator.gateway.greeting import SILENT, Greeting
from orchestrator.gateway.lanes import Lanes, Pacer, Rate

Handler = Callable[[web.BaseRequest, str | None], Awaitable[web.StreamResponse]]
"""Takes a request and the IP address that it came from; None where addresses do not tell pods apart."""

_BACKLOG = 4096
PODS_RATE = Rate(per_second=50, burst=100)
"""New connections of one pod; a client that keeps its connections open needs a handful."""
_REQUESTS_RATE = Rate(per_second=100, burst=300)
"""Requests of one pod. What comes faster waits; an agent that waits for models is far from it."""
_OWN = 16
"""Connections of our own programs in one pod: a prepare that fetches several bundles has the most."""
_MOST = 20_000
_READ_BYTES = 16 << 10
"""What is read ahead of a connection, before anybody asks who it is."""
_AT_ONCE = 64
"""Connections taken from the kernel before others have their turn."""
_RETRY_SECONDS = 0.2
"""Pause after a failed accept, such as one without free descriptors."""


def quiet_logger() -> logging.Logger:
    """Return a logger that says nothing: a log that an agent can fill is a disk that an agent can fill."""
    logger = logging.getLogger("orchestrator.gateway.agents")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def any_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Return the request that has arrived, also where its target is a host that aiohttp cannot decode.

    Nobody would answer that one else, nor end its connection, and the error would be in our log. ``raw_path`` is the target as it was sent.
    """
    loop = asyncio.get_running_loop()
    try:
        return web.BaseRequest(message, payload, protocol, writer, task, loop)
    except ValueError:  # of which those of IDNA are some
        return web.BaseRequest(message._replace(url=URL("/")), payload, protocol, writer, task, loop)


def listen(address: str) -> socket.socket:
    """Return a socket that listens at ``HOST:PORT``. Raises GatewayError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, int(port)))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except (OSError, ValueError, OverflowError) as error:
        listening.close()
        msg = f"nothing can listen at {address}: {getattr(error, 'strerror', None) or error}"
        raise GatewayError(msg, cause="gateway_socket") from error
    return listening


def most_connections() -> int:
    """Return how many connections a front may hold: half of the descriptors, for each launch has a file and a store has sockets; and
    never so many that their memory matters.
    """
    return max(64, min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


@dataclass(eq=False)
class _Connection:
    transport: asyncio.Transport
    peer: str | None
    """Its address."""
    own: bool
    """It is one of our own programs'."""
    requests: int = 0
    """Under way: 0 or 1."""


class _Server(web.Server):
    """aiohttp's protocol factory that tells of each connection."""

    def __init__(self, front: Front, idle_seconds: float, *, own: bool) -> None:
        super().__init__(
            front.serve,
            request_factory=any_request,
            access_log=None,
            logger=quiet_logger(),
            keepalive_timeout=idle_seconds,
            lingering_time=0,
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
        )
        self._front = front
        self._own = own

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._front.made(handler, transport, own=self._own)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._front.lost(handler)


@dataclass(frozen=True, kw_only=True)
class FrontLimits:
    """What the pods may do to a front."""

    peer: int = 160
    """Connections from one address. More than the requests that the handler lets one pod have under way."""
    total: int = 10_000
    """Connections from all."""
    idle_seconds: float = 60
    """How long a connection may be without a whole request head."""
    rate: Rate = PODS_RATE
    """New connections from one address."""
    by_address: bool = True
    """Whether a pod is known by its address. False: only the total is held."""


class Front:
    """Serves one port until closed. Make it inside of a running loop."""

    def __init__(
        self,
        listening: socket.socket,
        handler: Handler,
        limits: FrontLimits,
        is_own: Callable[[str], bool] = lambda _token: False,
    ) -> None:
        """``is_own`` knows the tokens of our own programs."""
        self._socket = listening
        self._handler = handler
        self._limits = limits
        self._connections: dict[RequestHandler, _Connection] = {}
        self._groups: dict[tuple[str | None, bool], dict[RequestHandler, _Connection]] = {}
        """By address, our own programs' apart; those that have rested longest first, as far as they rest."""
        self._servers = [_Server(self, limits.idle_seconds, own=own) for own in (True, False)]
        own_lanes, lanes = self._lanes = [Lanes(limits.rate if limits.by_address else None) for _ in self._servers]
        self._pacer = Pacer(_REQUESTS_RATE)
        self._loop = asyncio.get_running_loop()
        silent = SILENT if limits.by_address else _BACKLOG
        self._greeting = Greeting(is_own, own_lanes.put, lanes.put, silent)
        self._tasks = [
            asyncio.create_task(self._set_up(each, server))
            for each, server in zip(self._lanes, self._servers, strict=True)
        ]
        self._loop.add_reader(self._socket, self._take)

    @property
    def port(self) -> int:
        """The port."""
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Take no more connections and end all."""
        self._loop.remove_reader(self._socket)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._socket.close()
        self._greeting.close()
        for lanes in self._lanes:
            lanes.close()
        await asyncio.gather(*(server.shutdown(0.2) for server in self._servers))

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request of a connection that is still ours."""
        connection = self._connections.get(request.protocol)
        if connection is None:  # it was given up while its request arrived
            request.protocol.force_close()
            return web.Response(status=503)
        connection.requests += 1
        try:
            if connection.peer is not None and not connection.own:
                await self._pacer.pace(connection.peer)
            return await self._handler(request, connection.peer)
        finally:
            connection.requests -= 1
            same = self._groups.get((connection.peer, connection.own))
            if same is not None and same.pop(request.protocol, None) is not None:
                same[request.protocol] = connection  # it rests from now on

    def made(self, handler: RequestHandler, transport: asyncio.Transport, *, own: bool) -> None:
        """Count a new connection, and give one up where there are too many."""
        name = transport.get_extra_info("peername")
        peer = _address(name[0]) if name and self._limits.by_address else None
        connection = _Connection(transport, peer, own)
        self._connections[handler] = connection
        same = self._groups.setdefault((peer, own), {})
        same[handler] = connection
        most = self._limits.total if not self._limits.by_address else _OWN if own else self._limits.peer
        if len(same) > most:
            self._give_up(same)
        elif len(self._connections) > self._limits.total:
            self._give_up(max(self._groups.values(), key=len))

    def lost(self, handler: RequestHandler) -> None:
        """Forget a connection."""
        connection = self._connections.pop(handler, None)
        if connection is None:
            return
        same = self._groups[connection.peer, connection.own]
        del same[handler]
        if not same:
            del self._groups[connection.peer, connection.own]

    def _give_up(self, same: dict[RequestHandler, _Connection]) -> None:
        """End the connection that has rested longest; the newest where none rests."""
        resting = (handler for handler, connection in same.items() if not connection.requests)
        handler = next(resting, next(reversed(same)))
        connection = self._connections[handler]
        self.lost(handler)
        connection.transport.abort()

    def _take(self) -> None:
        """Take what waits in the kernel's queue, which all share."""
        for _ in range(_AT_ONCE):
            try:
                connection, name = self._socket.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it was gone before it was taken
                continue
            except OSError:
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_RETRY_SECONDS, self._take_again)
                return
            connection.setblocking(False)
            self._greeting.put(_address(name[0]) if self._limits.by_address else None, connection)

    def _take_again(self) -> None:
        if not self._tasks[0].done():
            self._loop.add_reader(self._socket, self._take)

    async def _set_up(self, lanes: Lanes, server: _Server) -> None:
        while True:
            connection = await lanes.next()
            try:
                await self._loop.connect_accepted_socket(server, connection)
            except OSError:
                connection.close()


def _address(text: str) -> str:
    """Return an address in one form, also where it comes as IPv4 in IPv6."""
    return text.removeprefix("::ffff:").partition("%")[0]
