"""How fast we ask: as fast as the server bears, never above a ceiling, first come first served.

One more a second for each healthy second, half as much as soon as the server pushes back, nothing at all while it asks for quiet
(Retry-After).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf

_PERIOD = 1.0
"""Seconds that are judged as one; pushing back within one is one event, however many requests were on their way."""
_SLOW = 1.0
"""Seconds after which an answer counts as slow: the scale at which Kubernetes promises its own."""
_LAG = 0.1
"""So late a turn may be without the following ones being later: timers are not exact."""


class Limiter:
    """A rate for one kind of request to one cluster, such as creates. All times are seconds."""

    def __init__(
        self,
        ceiling: float = 10.0,
        *,
        floor: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin at the ceiling. The floor is a rate at which even a server in trouble is tried, and never above the ceiling."""
        if ceiling <= 0 or floor <= 0:
            msg = f"a limiter needs a ceiling and a floor above 0, not {ceiling} and {floor}"
            raise ValueError(msg)
        self.rate = ceiling
        """Turns a second, at present."""
        self.waiting = 0
        """How many wait for their turn."""
        self._ceiling = ceiling
        self._floor = min(floor, ceiling)
        self._clock = clock
        self._sleep = sleep
        self._queue = asyncio.Lock()  # of asyncio: first come, first served
        self._next = clock()
        self._period = clock()
        self._good = 0
        self._slow = 0
        self._halved = -inf

    async def turn(self) -> None:
        """Wait for one's turn."""
        self.waiting += 1
        try:
            async with self._queue:
                while (wait := self._next - self._clock()) > 0:
                    await self._sleep(wait)  # it may have been put off meanwhile
                self._next = max(self._next, self._clock() - _LAG) + 1 / self.rate
        finally:
            self.waiting -= 1

    def healthy(self, seconds: float) -> None:
        """Tell of a request that was answered, and after how long. An answer that refuses what was asked is healthy, too."""
        self._judge()
        if seconds <= _SLOW:
            self._good += 1
        elif self._clock() - seconds >= self._halved:
            self._slow += 1

    def pushed(self, retry_after: float | None = None, *, seconds: float = 0.0) -> None:
        """Tell of a request that the server did not want or could not serve, and after how long; and how long it asked to be spared."""
        self._judge()
        if self._clock() - seconds >= self._halved:
            self._halve()
        if retry_after:
            self._next = max(self._next, self._clock() + retry_after)

    def _judge(self) -> None:
        """Close the period when its time is over."""
        now = self._clock()
        if now - self._period < _PERIOD:
            return
        if self._slow > self._good:
            self._halve()
        elif self._good and now - self._halved >= _PERIOD:
            self.rate = min(self._ceiling, self.rate + 1)
        self._period, self._good, self._slow = now, 0, 0

    def _halve(self) -> None:
        """Halve the rate, at most once a period. Answers to what was sent before say nothing of the new rate."""
        now = self._clock()
        if now - self._halved >= _PERIOD:
            self.rate = max(self._floor, self.rate / 2)
            self._halved = now
