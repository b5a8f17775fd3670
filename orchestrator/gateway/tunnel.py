"""One connection of an agent to the outside, byte by byte: two transports, each paused while the other is full."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, cast

from aiohttp import web

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_BUFFER = 256 << 10
"""Bytes that wait in this process for a side that does not read, in each direction."""


class _Closable(Protocol):
    def connection_lost(self, exc: Exception | None, /) -> None: ...


class _Side(asyncio.Protocol):
    """One end. What comes in goes out at the other."""

    def __init__(self, tunnel: Tunnel, count: Callable[[int], None]) -> None:
        self._tunnel = tunnel
        self._count = count
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.owner: _Closable | None = None
        """Who has to hear that the connection is lost as well."""
        self.ended = False
        """Whether no more comes from this end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_BUFFER)

    def data_received(self, data: bytes) -> None:
        self._count(len(data))
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        other = self.other
        if other is None or other.transport is None or other.ended:
            self._tunnel.abort("closed")
            return False
        if other.transport.can_write_eof():
            other.transport.write_eof()
        return True  # the other direction goes on

    def connection_lost(self, exc: Exception | None) -> None:
        if self.owner is not None:
            self.owner.connection_lost(exc)
        self._tunnel.abort("closed" if exc is None else "the connection broke")

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()


class _Early:
    """Takes what came right behind the head of the CONNECT request."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """The connection's own end tells the same."""


class Tunnel:
    """Connects an agent's connection with another: ``connect``, then ``run``."""

    def __init__(self, request: web.BaseRequest, idle_s: float, left: Callable[[], int]) -> None:
        """``left`` tells how many more bytes may flow, those of this tunnel counted already."""
        transport = request.transport
        if transport is None:
            msg = "the agent has hung up"
            raise ConnectionResetError(msg)
        transport.pause_reading()  # until there is somewhere to send it
        self.sent = 0
        """Bytes from the agent."""
        self.received = 0
        """Bytes to the agent."""
        self.reason = ""
        """Why it ended."""
        self.over = asyncio.Event()
        """Set by the owner once the end is recorded."""
        self._agent_transport = transport
        self._idle = idle_s
        self._left = left
        self._ended = asyncio.Event()
        self._agent = _Side(self, self._count_sent)
        self._outside = _Side(self, self._count_received)
        self._agent.other, self._outside.other = self._outside, self._agent

    async def connect(self, address: str, port: int) -> None:
        """Open the other connection. Raises OSError."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await asyncio.get_running_loop().sock_connect(self._socket, (address, port))
        except BaseException:
            self._socket.close()
            raise

    async def run(self, request: web.BaseRequest) -> web.StreamResponse:
        """Let bytes flow until an end closes, nothing has moved for long, or too much has. Returns what aiohttp wants; it is not sent."""
        response = web.Response(status=200)
        response.force_close()
        protocol, early = request.protocol, _Early()
        protocol.set_parser(early)  # type: ignore[arg-type]  # it uses feed_data alone
        transport = self._agent_transport
        if transport.is_closing():
            self._socket.close()
            self.abort("the agent has hung up")
            return response
        # From here on aiohttp hears nothing of this connection but its end.
        self._agent.owner = protocol
        self._agent.connection_made(transport)
        transport.set_protocol(self._agent)
        transport.write(_ESTABLISHED)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self._outside, self._socket)
        if early.data:
            self._agent.data_received(early.data)
        if self._ended.is_set():
            self._close("closed")
        else:
            transport.resume_reading()
        await self._wait()
        return response

    def abort(self, reason: str) -> None:
        """End both sides, after what was written has gone out where an end closed by itself."""
        if self._ended.is_set():
            return
        self.reason = reason
        self._ended.set()
        self._close(reason)

    def _close(self, reason: str) -> None:
        for side in (self._agent, self._outside):
            if side.transport is not None:
                if reason == "closed":
                    side.transport.close()
                else:
                    side.transport.abort()

    async def _wait(self) -> None:
        moved = -1
        while not self._ended.is_set():
            try:
                async with asyncio.timeout(self._idle):
                    await self._ended.wait()
            except TimeoutError:
                if moved == self.sent + self.received:
                    self.abort(f"nothing moved for {self._idle:g} s")
                moved = self.sent + self.received

    def _count_sent(self, size: int) -> None:
        self.sent += size
        self._hold()

    def _count_received(self, size: int) -> None:
        self.received += size
        self._hold()

    def _hold(self) -> None:
        if self._left() < 0:
            self.abort("the trial has moved as many bytes as it may")
