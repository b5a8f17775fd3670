"""Reads a trajectory from the store while it is written, and to its end once it is sealed."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId
from orchestrator.trace.read import EventReader, is_whole


@dataclass(frozen=True, order=True)
class LaunchPlace:
    """A launch as its gateway's records name it. Later ones are greater."""

    launch: int
    epoch: int
    """The driver's epoch at its registration."""


async def launches_of(store: ObjectStore, run: str, trial: TrialId) -> list[LaunchPlace]:
    """Return the launches of a trial that left a segment or a record, in order. Raises StoreError."""
    segments, records = await asyncio.gather(
        store.list(keys.segments(run, trial)), store.list(keys.trial_records(run, trial))
    )
    places = {LaunchPlace(*keys.parse_segment(key)[:2]) for key in segments}
    places |= {LaunchPlace(*keys.parse_launch_record(key)[:2]) for key in records}
    return sorted(places)


class LiveTrajectory:
    """Reads one launch's trajectory piece by piece. Each event is given once."""

    def __init__(self, store: ObjectStore, run: str, trial: TrialId, place: LaunchPlace) -> None:
        self._store = store
        self._run = run
        self._trial = trial
        self._place = place
        self._next = 0
        """Number of the segment that comes next."""
        self._offset = 0
        self._read = hashlib.sha256()
        self._events = EventReader(f"the trajectory of {trial}, launch {place.launch}")

    async def more(self) -> list[Event]:
        """Return the events that have come since the last call. Raises StoreError; then it may be called again, and nothing is lost."""
        found: dict[int, tuple[int, str]] = {}
        prefix = f"{keys.segments(self._run, self._trial)}{self._place.launch}/{self._place.epoch}/"
        for key in await self._store.list(prefix):
            _, _, number, offset = keys.parse_segment(key)
            found[number] = offset, key
        events: list[Event] = []
        while (here := found.get(self._next)) is not None and here[0] == self._offset:
            try:
                data = await self._store.get(here[1])
            except StoreError:
                if events:  # these would be lost; the error comes again with the next call
                    break
                raise
            events += self._take(data)
            self._next += 1
        return events

    async def rest(self, blob: BlobRef) -> list[Event]:
        """Return what is left of the sealed trajectory, which ends it.

        Raises StoreError, with the cause ``blob_digest`` when it is not what was sealed, or does not begin with what was read.
        """
        data = await self._store.get(blob.key)
        if not await asyncio.to_thread(is_whole, data, blob):
            msg = f"{blob.key} is not the trajectory that was sealed: its bytes have another digest"
            raise StoreError(msg, cause="blob_digest")
        if hashlib.sha256(data[: self._offset]).digest() != self._read.digest():
            msg = f"{blob.key} does not begin with what was read of it while it was written"
            raise StoreError(msg, cause="blob_digest")
        return self._take(data[self._offset :])

    def _take(self, data: bytes) -> list[Event]:
        self._read.update(data)
        self._offset += len(data)
        return self._events.feed(data)
