"""See from outside who drives a run and whether it lives: the other side of ``lease``. Only reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.driver.lease import Holder, Timing, read_holder
from orchestrator.driver.process import is_gone
from orchestrator.errors import NotFoundError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.lease import Beat, Release

DriverState = Literal["nobody", "driving", "silent", "gone", "released"]
"""Nobody ever drove it; one does; one gives no sign of life for its whole term, and may be taken over; one is proven dead; one let go."""
RunState = Literal[
    "running", "silent", "waiting", "stopped", "paused", "limit", "interrupted", "complete", "unreadable"
]
"""``waiting``: nobody has begun. ``stopped``, ``paused``, ``limit``: why its driver let go. ``interrupted``: it died or failed.
``unreadable``: its records cannot be read, so nothing is known."""


@dataclass(frozen=True)
class Sight:
    """The driver of a run as it was seen at one moment."""

    holder: Holder | None
    silent_s: float = 0.0
    """Seconds since its last sign of life; never negative."""

    @property
    def state(self) -> DriverState:
        """Return what that says of the driver."""
        if self.holder is None:
            return "nobody"
        if self.holder.release is not None:
            return "released"
        if self.holder.gone:
            return "gone"
        return "silent" if self.silent_s >= self.holder.claim.term_s else "driving"

    @property
    def is_driven(self) -> bool:
        """Whether somebody holds the run, or did and is not proven to have let go."""
        return self.state in {"driving", "silent"}

    def run_state(self, left: int, ended: int) -> RunState:
        """Return what that says of the run, when so many trials are left and so many have ended."""
        state = self.state
        if state == "driving":
            return "running"
        if state == "silent":
            return "silent"
        if left == 0:
            return "complete"
        if state == "nobody" and not ended:
            return "waiting"
        reason = self.holder.release.reason if self.holder and self.holder.release else None
        return reason if reason in {"stopped", "paused", "limit"} else "interrupted"


def by_the_calendar(holder: Holder | None, now: float | None = None) -> Sight:
    """Judge by one reading, and so by the clocks of two machines: a glance. Seconds of difference between them do not matter."""
    if holder is None:
        return Sight(None)
    last = holder.claim.at if holder.beat is None else holder.beat.at
    return Sight(holder, max(0.0, (time.time() if now is None else now) - last))


class Lookout:
    """Looks again and again, and judges silence by this process's own clock alone, from the first look on.

    Cheap to repeat: three questions to the store as long as nothing has changed.
    """

    def __init__(self, store: ObjectStore, run: str, clock: Callable[[], float] | None = None) -> None:
        self._store = store
        self._run = run
        self._clock = clock or Timing().clock
        self._holder: Holder | None = None
        self._heard = self._clock()

    async def look(self) -> Sight:
        """Return what can be seen now. Raises StoreError."""
        before = self._holder
        self._holder = await self._next(before)
        if self._holder is not before and _sign(self._holder) != _sign(before):
            self._heard = self._clock()
        return Sight(self._holder, self._clock() - self._heard)

    async def _next(self, known: Holder | None) -> Holder | None:
        if known is None or await self._store.exists(keys.claim(self._run, known.claim.epoch + 1)):
            return await read_holder(self._store, self._run)
        if known.release is not None:
            return known
        epoch = known.claim.epoch
        found = replace(known, gone=is_gone(known.claim.process))
        number = known.beat.number if known.beat else 0
        while await self._store.exists(key := keys.beat(self._run, epoch, number + 1)):
            number += 1
            found = replace(found, beat=Beat.from_bytes(await self._store.get(key), key))
        key = keys.release(self._run, epoch)
        try:
            return replace(found, release=Release.from_bytes(await self._store.get(key), key))
        except NotFoundError:
            return found


def _sign(holder: Holder | None) -> tuple[int, int] | None:
    return None if holder is None else (holder.claim.epoch, holder.beat.number if holder.beat else 0)
