"""Room on the grader's disk for what agents left: an agent decides how much that is, up to twice its own disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from orchestrator.errors import StoreError


class Room:
    """Bytes of frozen states that are on a disk at one time. Who finds none waits, first come first served."""

    def __init__(self, limit: int | None = None, larger: str = "give the grader a larger folder") -> None:
        """``limit`` None: as many as come. ``larger``: what to do about one for which there never is room."""
        self._limit, self._larger = limit, larger
        self._left = limit or 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @classmethod
    def on(cls, disk_bytes: int | None, larger: str) -> Room:
        """Return the room on a disk of that size, a quarter of which is kept free."""
        return cls(None if disk_bytes is None else disk_bytes * 3 // 4, larger)

    @contextlib.asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Have so many bytes while the context is open. Raises StoreError for more than there ever are."""
        if self._limit is None:
            yield
            return
        if size > self._limit:
            msg = f"a frozen state takes {size:,} bytes, and there is room for {self._limit:,}: {self._larger}"
            raise StoreError(msg, cause="grader_scratch")
        async with self._turn:
            while self._left < size:
                self._freed.clear()
                await self._freed.wait()
            self._left -= size
        try:
            yield
        finally:
            self._left += size
            self._freed.set()
