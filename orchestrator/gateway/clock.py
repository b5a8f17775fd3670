"""The working clock of a launch: wall clock without the time that was waited for a provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class WorkingClock:
    """Counts from the hand-over of the sandbox's socket. Times are of one monotonic clock, in seconds.

    An attempt that a provider fails turns into waiting when it has failed; while it is open it counts as work, because a slow
    model is the agent's choice.

    Calls run in parallel, so waiting is the union of the intervals in which somebody waited, never their sum.
    """

    def __init__(self) -> None:
        self.started: float | None = None
        self.ended: float | None = None
        self._closed: list[tuple[float, float]] = []
        self._open: dict[int, float] = {}
        self._doubtful: dict[int, tuple[float, float]] = {}
        self._next = 0

    def start(self, now: float) -> None:
        """Start; later calls change nothing."""
        if self.started is None:
            self.started = now

    def stop(self, now: float) -> None:
        """Stop; later calls change nothing."""
        if self.ended is None:
            self.ended = now

    def waited(self, begin: float, end: float) -> None:
        """Note that from ``begin`` to ``end`` somebody waited."""
        if end <= begin:
            return
        # They are apart and in order, and what is added nearly always comes last: only the end of the list is looked at.
        after = len(self._closed)
        while after and self._closed[after - 1][0] > end:
            after -= 1
        first = after
        while first and self._closed[first - 1][1] >= begin:
            first -= 1
            begin, end = min(begin, self._closed[first][0]), max(end, self._closed[first][1])
        self._closed[first:after] = [(begin, end)]

    def doubt(self, begin: float, end: float) -> int:
        """Note that from ``begin`` to ``end`` somebody waited, as far as is known; returns the number to take it back with."""
        self._next += 1
        self._doubtful[self._next] = begin, end
        return self._next

    def was_work(self, number: int) -> None:
        """Take back what was taken for waiting."""
        self._doubtful.pop(number, None)

    def begin_wait(self, now: float) -> int:
        """Note that somebody waits from now on; returns the number to end it with."""
        self._next += 1
        self._open[self._next] = now
        return self._next

    def end_wait(self, number: int, now: float) -> None:
        """End a wait."""
        self.waited(self._open.pop(number), now)

    def waiting(self, now: float) -> float:
        """Return the seconds of waiting up to now."""
        end = now if self.ended is None else min(now, self.ended)
        spans = [*self._closed, *self._doubtful.values(), *((begin, now) for begin in self._open.values())]
        return sum(max(0.0, min(b, end) - max(a, self.started or 0.0)) for a, b in _union(spans))

    def working(self, now: float) -> float:
        """Return the seconds of work up to now; 0 before the start."""
        if self.started is None:
            return 0.0
        end = now if self.ended is None else min(now, self.ended)
        return max(0.0, end - self.started - self.waiting(now))


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return list(_merge(sorted(spans)))


def _merge(spans: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    current: tuple[float, float] | None = None
    for begin, end in spans:
        if current is None:
            current = (begin, end)
        elif begin <= current[1]:
            current = (current[0], max(current[1], end))
        else:
            yield current
            current = (begin, end)
    if current is not None:
        yield current


@contextmanager
def waiting(clock: WorkingClock, now: Callable[[], float]) -> Iterator[None]:
    """Count the time inside as waiting. ``now`` is the clock's function."""
    number = clock.begin_wait(now())
    try:
        yield
    finally:
        clock.end_wait(number, now())
