"""Events on their way to another process: kept until the other side says that it has them."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from orchestrator.driver.ray.messages import Event, Numbered


class Outbox:
    """Events in order. Those of this process get its name and the next number; those of others are passed on as they are."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._made = 0
        self._gone = 0
        """Events that were forgotten: the first one left has this position, counted from 0."""
        self._events: deque[Numbered] = deque()
        self.filled = asyncio.Event()
        """Set while there is something to send."""

    @property
    def waiting(self) -> int:
        """Events that are still to be sent or confirmed."""
        return len(self._events)

    def add(self, event: Event) -> None:
        """Add an event of this process."""
        self._made += 1
        self.forward(Numbered(self._name, self._made, event))

    def forward(self, event: Numbered) -> None:
        """Add an event of another process."""
        self._events.append(event)
        self.filled.set()

    def first(self, most: int) -> tuple[Numbered, ...]:
        """Return the oldest events."""
        return tuple(islice(self._events, most))

    def forget(self, position: int) -> None:
        """Drop the events before this position: the other side has them."""
        self.drop(position - self._gone)

    def drop(self, count: int) -> None:
        """Drop that many of the oldest events."""
        for _ in range(min(count, len(self._events))):
            self._events.popleft()
            self._gone += 1
        if not self._events:
            self.filled.clear()
