"""New connections, in a lane for each address: whoever floods waits behind itself.

Taking a connection from the kernel costs little, setting it up to speak HTTP much more. So connections are taken as they come, and set
up in turn: one of each address, each address so many a second. What exceeds that waits, and where too many wait the oldest is closed. The
newest is served first: its sender still waits for it, and may be the freezer beside a hostile agent.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WAITING = 64
"""Those that may wait."""
_REMEMBERED = 10_000
"""Addresses whose rate is remembered before old ones are looked for."""


@dataclass(frozen=True)
class Rate:
    """How many connections of one address are set up."""

    per_second: float
    """For long."""
    burst: int
    """Those that may come at once."""


class Pacer:
    """Has whoever comes too often wait, each address for itself (the generic cell rate algorithm; ITU-T I.371)."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._due: dict[str | None, float] = {}
        """When the rate of an address would have let its next one in, had they come evenly."""

    def delay(self, peer: str | None) -> float:
        """Return the seconds until the next of an address may come; not above 0: now."""
        now = self._clock()
        return self._due.get(peer, now) - now - self._rate.burst / self._rate.per_second

    def count(self, peer: str | None) -> None:
        """Note that one of an address has come."""
        now = self._clock()
        self._due[peer] = max(now, self._due.get(peer, now)) + 1 / self._rate.per_second
        if len(self._due) > _REMEMBERED:
            self._due = {known: due for known, due in self._due.items() if due > now}

    async def pace(self, peer: str | None) -> None:
        """Count one, and wait until it may come."""
        self.count(peer)
        if (delay := self.delay(peer)) > 0:
            await asyncio.sleep(delay)


class Lanes:
    """Hands out connections fairly. ``rate=None``: there is one lane for all, without a limit."""

    def __init__(self, rate: Rate | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._pacer = None if rate is None else Pacer(rate, clock)
        self._lanes: dict[str | None, deque[socket.socket]] = {}
        """Those that wait, by address; the address whose turn it is comes first."""
        self._arrived = asyncio.Event()

    def put(self, peer: str | None, connection: socket.socket) -> None:
        """Add a connection."""
        lane = self._lanes.setdefault(peer, deque())
        lane.append(connection)
        if self._pacer is not None and len(lane) > WAITING:
            lane.popleft().close()
        self._arrived.set()

    async def next(self) -> socket.socket:
        """Return the connection whose turn it is, once there is one."""
        while True:
            self._arrived.clear()
            peer, delay = self._turn()
            if delay is None:
                await self._arrived.wait()
            elif delay > 0:
                try:
                    async with asyncio.timeout(delay):
                        await self._arrived.wait()
                except TimeoutError:
                    continue
            else:
                return self._take(peer)

    def close(self) -> None:
        """Close all that wait."""
        for lane in self._lanes.values():
            for connection in lane:
                connection.close()
        self._lanes.clear()

    def _turn(self) -> tuple[str | None, float | None]:
        """Return whose turn is next and in how many seconds; None when nobody waits."""
        first: tuple[str | None, float | None] = None, None
        for peer in self._lanes:
            delay = 0.0 if self._pacer is None else self._pacer.delay(peer)
            if delay <= 0:
                return peer, 0.0
            if first[1] is None or delay < first[1]:
                first = peer, delay
        return first

    def _take(self, peer: str | None) -> socket.socket:
        lane = self._lanes.pop(peer)
        connection = lane.popleft() if self._pacer is None else lane.pop()
        if lane:
            self._lanes[peer] = lane  # at the end: the others come first
        if self._pacer is not None:
            self._pacer.count(peer)
        return connection
