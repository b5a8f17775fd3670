"""A streamed answer on its way to an agent: written as it comes, as fast as the agent reads and no faster.

Nothing is kept here: while the agent does not read, the model is not read either. An agent that hangs up, or keeps its model waiting for
too long, is gone from then on: the call belongs to the launch and not to the connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

from aiohttp import web

from orchestrator.gateway.dialects.base import ServerEvent

_SMALL = 16 << 10
"""Bytes that always fit into the buffer of a connection that is empty."""
_BLOCKED_SECONDS = 0.05
"""A write that takes longer has waited for the reader."""


class AgentStream:
    """The agent's end of one stream."""

    def __init__(self, request: web.BaseRequest, headers: Callable[[], Mapping[str, str]], patience_s: float) -> None:
        self._request = request
        self._headers = headers
        self._left_s = patience_s
        self._response: web.StreamResponse | None = None
        self.paused_s = 0.0
        """Seconds that its reader has kept it waiting."""
        self.gone = False
        """Nobody reads it any more."""
        self.stalled = False
        """It is gone because it was too slow."""

    @property
    def begun(self) -> bool:
        """Whether the agent has got something."""
        return self._response is not None

    async def send(self, events: Iterable[ServerEvent]) -> None:
        """Write events, if there are any and somebody reads them."""
        data = b"".join(event.encoded() for event in events)
        if not data or self.gone:
            return
        began = time.monotonic()
        try:
            response = await self._prepared()
            if self._has_room(
                len(data)
            ):  # nobody has to be waited for, which a timer for each event would only slow down
                await response.write(data)
            else:
                async with asyncio.timeout(self._left_s):
                    await response.write(data)
        except OSError as error:
            self._give_up(error)
        if (blocked := time.monotonic() - began) > _BLOCKED_SECONDS:
            self._left_s -= blocked
            self.paused_s += blocked

    async def whole(self, data: bytes) -> web.StreamResponse:
        """Write an answer that is no stream, as JSON, and return it once it is out of this process."""
        response = web.Response(body=data, content_type="application/json", headers=self._headers())
        try:
            async with asyncio.timeout(self._left_s):
                await response.prepare(self._request)
                await response.write_eof()
        except OSError as error:
            self._give_up(error)
        if self.gone:
            response.force_close()
        return response

    def _give_up(self, error: OSError) -> None:
        """Take the agent for gone: its connection broke, or, where it was a timeout, it has not read for too long."""
        self.gone = True
        if isinstance(error, TimeoutError):
            self.stalled = True
            if self._request.transport is not None:
                self._request.transport.abort()

    async def end(self) -> web.StreamResponse:
        """End the answer and return it. It must have begun."""
        response = await self._prepared()
        if self.gone:
            response.force_close()
            return response
        try:
            async with asyncio.timeout(max(self._left_s, 0)):
                await response.write_eof()
        except OSError:  # a timeout is one
            self.gone = True
            response.force_close()
        return response

    def _has_room(self, size: int) -> bool:
        """Return whether the reader has taken all that was written, so that this much more stops nothing."""
        transport = self._request.transport
        return size <= _SMALL and transport is not None and not transport.get_write_buffer_size()

    async def _prepared(self) -> web.StreamResponse:
        if self._response is None:
            headers = {
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                **self._headers(),
            }
            self._response = web.StreamResponse(headers=headers)
            await self._response.prepare(self._request)
        return self._response
