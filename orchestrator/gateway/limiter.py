"""How many calls one provider gets at one time, and whose turn it is.

The number follows what the provider bears: additive increase, multiplicative decrease (Chiu and Jain, "Analysis of the increase and
decrease algorithms for congestion avoidance in computer networks", 1989). It begins at the configured ceiling, halves when the provider
says that it is too much, once for all calls that were sent before it was halved, and grows by one for each round of calls that went well
while all places were taken. A provider that says when to come back is left alone by all until then.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

LONGEST_PAUSE = 60.0
"""Seconds; a provider that asks for more is asked again after this."""

Owner = TypeVar("Owner", bound=Hashable)
Item = TypeVar("Item")


class Window:
    """The number of calls that may be open. Pure: times are given, in seconds of one clock."""

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self._size = float(ceiling)
        self.round = 0
        """Counts the decreases: a call remembers the one in which it was sent."""
        self.resume_at = float("-inf")
        """Nobody calls before this time."""

    @property
    def places(self) -> int:
        """Calls that may be open, from 1 to the ceiling."""
        return int(self._size)

    def fine(self, open_calls: int) -> None:
        """A call went well; ``open_calls`` counts it. Grows where the places are used, for else nothing is known of a higher number."""
        if open_calls >= self.places:
            self._size = min(float(self.ceiling), self._size + 1 / self._size)

    def overloaded(self, sent_in: int, now: float, retry_after_s: float | None) -> None:
        """A call of round ``sent_in`` was refused because there are too many."""
        if retry_after_s is not None:
            self.resume_at = max(self.resume_at, now + min(LONGEST_PAUSE, retry_after_s))
        if sent_in == self.round:
            self._size = max(1.0, self._size / 2)
            self.round += 1


class Turns(Generic[Owner, Item]):
    """A queue that serves owners in turn, and what one owner puts in its order."""

    def __init__(self) -> None:
        self._waiting: dict[Owner, deque[Item]] = {}
        """The owner whose turn it is comes first."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, owner: Owner, item: Item) -> None:
        """Add an item of an owner."""
        self._waiting.setdefault(owner, deque()).append(item)
        self._size += 1

    def take(self) -> Item:
        """Remove and return the next item. Raises IndexError when there is none."""
        owner = next(iter(self._waiting), None)
        if owner is None:
            msg = "nobody waits"
            raise IndexError(msg)
        own = self._waiting.pop(owner)
        item = own.popleft()
        self._size -= 1
        if own:
            self._waiting[owner] = own  # behind all others
        return item

    def remove(self, owner: Owner, item: Item) -> None:
        """Remove an item, if it is there."""
        own = self._waiting.get(owner)
        if own is not None and item in own:
            own.remove(item)
            self._size -= 1
            if not own:
                del self._waiting[owner]


class Place:
    """A place at a provider, for one attempt: a context that gives it back. Whoever has it says how the attempt went."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._round = limiter.window.round

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self._limiter.give_back()

    def fine(self) -> None:
        """The provider has answered."""
        self._limiter.window.fine(self._limiter.open)

    def overloaded(self, retry_after_s: float | None) -> None:
        """The provider has said that it is too much."""
        self._limiter.window.overloaded(self._round, self._limiter.clock(), retry_after_s)


class Limiter:
    """Places at one provider, shared by all launches."""

    def __init__(self, ceiling: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.window = Window(ceiling)
        self.clock = clock
        self.open = 0
        """Places that are taken."""
        self._turns: Turns[Hashable, asyncio.Future[None]] = Turns()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def ceiling(self) -> int:
        """Most places that there can be."""
        return self.window.ceiling

    @property
    def waiting(self) -> int:
        """Those that wait for a place."""
        return len(self._turns)

    def give_back(self) -> None:
        """Take back a place. ``Place`` calls it."""
        self.open -= 1
        self._serve()

    def take_free(self) -> Place | None:
        """Return a place that is free and that nobody waits for; None when there is none."""
        if self.waiting or self.open >= self.window.places or self.window.resume_at > self.clock():
            return None
        self.open += 1
        return Place(self)

    async def acquire(self, owner: Hashable) -> Place:
        """Return a place, once it is the owner's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.put(owner, turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was this call's turn just now: somebody else's then
                self.give_back()
            else:
                self._turns.remove(owner, turn)
            raise
        return Place(self)

    def _serve(self) -> None:
        pause = self.window.resume_at - self.clock()
        if pause > 0:
            if len(self._turns) and self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(pause, self._wake)
            return
        while self.open < self.window.places and len(self._turns):
            turn = self._turns.take()
            if not turn.done():
                self.open += 1
                turn.set_result(None)

    def _wake(self) -> None:
        self._timer = None
        self._serve()
