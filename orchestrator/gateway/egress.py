"""The way out for tasks that have a network: ``CONNECT HOST:PORT`` with the agent's token, to hosts that the task lists.

The name is resolved here, once, and the connection goes to the address that was checked, so a name that changes its mind (DNS rebinding)
leads nowhere. What flows is not read. Each connection is an event with its host, address and bytes, written when it ends.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aiohttp import web

from orchestrator.gateway.addresses import Address, reachable
from orchestrator.gateway.config import EgressConfig
from orchestrator.gateway.findings import printable
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.tokens import bearer
from orchestrator.gateway.tunnel import Tunnel
from orchestrator.spec.hosts import HostRule, allows, authority, is_address

if TYPE_CHECKING:
    from orchestrator.gateway.launch import Launch

Resolve = Callable[[str, int], Awaitable[list[Address]]]
"""Takes a host name and a port; raises OSError."""
_RESOLVERS = 8
"""Threads that ask for names: the system's resolver blocks."""
_OWN_RESOLVERS = 2
"""Of them for one launch: names whose servers do not answer hold a thread for long."""
_RECORDED = 128
"""Connections of one launch that are recorded one by one; that there were more is a finding."""


class SystemResolver:
    """Resolves names as this machine does, on threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")

    async def __call__(self, host: str, port: int) -> list[Address]:
        """Return the addresses of a name. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


@dataclass(frozen=True)
class Way:
    """Where a connection was to go."""

    host: str
    port: int


class Egress:
    """The connections of one launch to the outside."""

    def __init__(self, launch: Launch, config: EgressConfig, resolve: Resolve) -> None:
        self._launch = launch
        self._config = config
        self._resolve = resolve
        self._rules = [HostRule.parse(text) for text in launch.body.egress]
        self._asking = asyncio.Semaphore(_OWN_RESOLVERS)
        self._open: set[Tunnel] = set()
        self._under_way = 0
        self._recorded = 0
        self._bytes = 0

    async def connect(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a CONNECT request that showed a good token: open the connection and stay until it ends. Raises Refusal."""
        way = self._allowed(request.raw_path)
        if self._under_way >= self._config.connections:
            msg = f"{self._config.connections} connections to the outside are open, and no more are allowed; close one first"
            raise Refusal(429, "too_many_connections", msg, close=True)
        self._enter()
        began = time.monotonic()
        address: Address | None = None
        try:
            address = await self._address(way)
            tunnel = await self._opened(request, way, address)
            return await self._stay(request, way, address, tunnel)
        except Refusal as refusal:
            self._record(way, address, "failed" if refusal.kind == "unreachable" else "refused", refusal.message, began)
            raise
        finally:
            self._exit()

    async def close(self) -> None:
        """End all connections; their events are written."""
        waits = [tunnel.over.wait() for tunnel in self._open]
        for tunnel in tuple(self._open):
            tunnel.abort("the trial ended")
        await asyncio.gather(*waits)

    def recall(self, moved: int) -> None:
        """Count a connection of which an earlier process has told, and the bytes that it moved."""
        self._recorded += 1
        self._bytes += moved

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._under_way > 0

    def _enter(self) -> None:
        self._under_way += 1
        if self._under_way == 1:
            self._launch.mark(True)

    def _exit(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._launch.trajectory.hand_over()
            self._launch.mark(False)

    def _allowed(self, target: str) -> Way:
        try:
            host, port = authority(target)
        except ValueError as error:
            raise Refusal(400, "invalid_request", f"CONNECT: {printable(str(error))}", close=True) from None
        if not allows(self._rules, host, port):
            listed = ", ".join(self._launch.body.egress)
            msg = f"{printable(host)}:{port} is not one of the hosts that this task may reach ({listed})"
            self._record(Way(host, port), None, "refused", "not listed", time.monotonic())
            raise Refusal(403, "egress_not_allowed", msg, finding=True, close=True)
        return Way(host, port)

    async def _address(self, way: Way) -> Address:
        try:
            async with asyncio.timeout(self._config.connect_seconds):
                found = [ipaddress.ip_address(way.host)] if is_address(way.host) else await self._resolved(way)
        except (OSError, TimeoutError, UnicodeError):
            msg = f"{way.host}: no machine of that name was found"
            raise Refusal(502, "unreachable", msg, close=True) from None
        may = reachable(found, self._config.denied_networks, self._config.allowed_networks)
        if not may:
            msg = f"{way.host} has no public address, so it is not reached from here, unless the settings allow it ([egress] allowed)"
            raise Refusal(403, "egress_not_public", msg, finding=True, close=True)
        return min(may, key=lambda address: address.version)

    async def _resolved(self, way: Way) -> list[Address]:
        """Return the addresses of a name. Nobody can stop a thread, so its place is free when it has ended, whoever has given up before."""
        await self._asking.acquire()
        question = asyncio.ensure_future(self._resolve(way.host, way.port))
        question.add_done_callback(self._answered)
        return await asyncio.shield(question)

    def _answered(self, question: asyncio.Future[list[Address]]) -> None:
        self._asking.release()
        if not question.cancelled():
            question.exception()

    async def _opened(self, request: web.BaseRequest, way: Way, address: Address) -> Tunnel:
        try:
            tunnel = Tunnel(request, self._config.idle_seconds, self._left)
            async with asyncio.timeout(self._config.connect_seconds):
                await tunnel.connect(str(address), way.port)
        except TimeoutError:
            msg = f"{way.host}:{way.port} did not answer within {self._config.connect_seconds:g} s"
            raise Refusal(504, "unreachable", msg, close=True) from None
        except OSError as error:
            msg = f"{way.host}:{way.port} could not be reached: {error.strerror or type(error).__name__}"
            raise Refusal(502, "unreachable", msg, close=True) from None
        return tunnel

    async def _stay(self, request: web.BaseRequest, way: Way, address: Address, tunnel: Tunnel) -> web.StreamResponse:
        began = time.monotonic()
        self._open.add(tunnel)
        try:
            if self._launch.sealing:
                tunnel.abort("the trial ended")
            return await tunnel.run(request)
        finally:
            tunnel.abort("the connection of the agent was lost")
            self._bytes += tunnel.sent + tunnel.received
            self._record(way, address, "open", tunnel.reason, began, tunnel)
            self._open.discard(tunnel)
            tunnel.over.set()

    def _left(self) -> int:
        """Return how many more bytes the launch may send and receive."""
        flowing = sum(tunnel.sent + tunnel.received for tunnel in self._open)
        return self._config.bytes - self._bytes - flowing

    def _record(
        self,
        way: Way,
        address: Address | None,
        outcome: Literal["open", "refused", "failed"],
        reason: str,
        began: float,
        tunnel: Tunnel | None = None,
    ) -> None:
        self._recorded += 1
        if self._recorded > _RECORDED:
            self._launch.findings.add(
                "egress_uncounted", f"more than {_RECORDED} connections; later ones are not recorded one by one"
            )
            return
        self._launch.trajectory.append(
            "egress",
            "gateway",
            {
                "host": printable(way.host),
                "port": way.port,
                "address": None if address is None else str(address),
                "outcome": outcome,
                "reason": printable(reason),
                "sent": tunnel.sent if tunnel else 0,
                "received": tunnel.received if tunnel else 0,
                "seconds": round(time.monotonic() - began, 4),
            },
        )


def proxy_token(header: str | None) -> str:
    """Return the token of a ``Proxy-Authorization`` header: a bearer, or the password of a user of any name. Empty when there is none."""
    if header and header[:6].lower() == "basic ":
        try:
            said = base64.b64decode(header[6:].strip(), validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            return ""
        user, _, password = said.partition(":")
        return password or user
    return bearer(header)
