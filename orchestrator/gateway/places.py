"""Places for the requests of one launch's agent on a port that all share: some are answered, some wait, more are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestrator.gateway.refusal import Refusal


class Places:
    """Bounds what one launch has under way, however many connections its pod opens."""

    def __init__(self, answered: int, waiting: int) -> None:
        self._most = answered + waiting
        self._free = self._most
        self._slots = asyncio.Semaphore(answered)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a place inside, after waiting for one. Raises Refusal when too many wait already."""
        if not self._free:
            msg = f"this trial has {self._most} requests under way already; wait for answers before sending more"
            raise Refusal(429, "too_many_requests", msg, finding=True, close=True)
        self._free -= 1
        try:
            async with self._slots:
                yield
        finally:
            self._free += 1
