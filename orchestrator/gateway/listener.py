"""Serves one launch on the listening socket of its sandbox.

Connections are accepted one by one while there is room, so a flood waits in the kernel's queue of the sandbox's own socket and
costs the other launches nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from orchestrator.gateway.config import AgentLimits
from orchestrator.gateway.front import any_request, quiet_logger

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_RETRY_SECONDS = 0.2
"""Pause after a failed accept, such as one without free descriptors."""


class _Server(web.Server):
    """aiohttp's protocol factory that gives a slot back for each lost connection."""

    def __init__(self, handler: Handler, limits: AgentLimits, slots: asyncio.Semaphore) -> None:
        super().__init__(
            handler,
            request_factory=any_request,
            access_log=None,
            logger=quiet_logger(),
            keepalive_timeout=limits.idle_seconds,
            lingering_time=0,
            auto_decompress=False,
        )
        self._slots = slots

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._slots.release()


class LaunchListener:
    """The accept loop of one launch."""

    def __init__(self, listening: socket.socket, handler: Handler, limits: AgentLimits) -> None:
        self._socket = listening
        self._slots = asyncio.Semaphore(limits.connections)
        self._server = _Server(handler, limits, self._slots)
        self._task = asyncio.create_task(self._accept())

    def stop_accepting(self) -> None:
        """Take no more connections."""
        self._task.cancel()

    async def close(self) -> None:
        """Close the listener and all its connections."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._socket.close()
        await self._server.shutdown(0.2)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._slots.acquire()
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:
                self._slots.release()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                await loop.connect_accepted_socket(self._server, connection)
            except OSError:
                connection.close()
                self._slots.release()
