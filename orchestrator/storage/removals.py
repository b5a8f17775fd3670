"""How gc and those who write keep out of each other's way.

Bundles and parts of the dataset are named by their content, so that a writer may find there what it was about to write, and
name it in a record a moment after gc saw that no record does. Both sides therefore say what they do before they look: gc
writes a notice, looks who names what, deletes the rest and says that it is done; a writer writes its record, then looks
whether there was a removal since it began, waits for the end of one that runs, and looks whether everything is still there.
Whichever came first, one of them sees the other.

A notice counts for ``TERM_S``: gc deletes nothing later than half of that after it, so that a killed gc makes nobody wait for long.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from orchestrator.errors import NotFoundError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.removal import Removal, Removed

TERM_S = 600.0
"""Seconds for which a notice counts; the clocks of gc and of writers may differ by a third of it."""
_POLL_S = 0.5
_STAMP = "%Y%m%dT%H%M%SZ"


async def removed_run(store: ObjectStore, run: str) -> Removal | None:
    """Return the notice of a run's removal, whether it has ended or not; None when there was none. Raises StoreError."""
    key = keys.removal("runs", run, "begun")
    try:
        return Removal.from_bytes(await store.get(key), key)
    except NotFoundError:
        return None


def describe(run: str, removal: Removal) -> str:
    """Say of a run that it was removed, when and why."""
    when = datetime.fromtimestamp(removal.at, UTC)
    return f"run {run} was removed by gc on {when:%Y-%m-%d %H:%M} UTC ({removal.why})"


class Announced:
    """A notice of ours that objects are being removed."""

    def __init__(self, store: ObjectStore, name: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._begun = clock()

    def counts(self) -> bool:
        """Return whether something may still be deleted under it."""
        return self._clock() - self._begun < TERM_S / 2

    async def done(self, objects: int, size: int) -> None:
        """Say that nothing more is deleted under it. Raises StoreError."""
        record = Removed(at=time.time(), objects=objects, size=size)
        await self._store.create(keys.removal("objects", self._name, "done"), record.to_bytes())


async def announce(store: ObjectStore, by: str, why: str, clock: Callable[[], float] = time.monotonic) -> Announced:
    """Say that objects which no record names are about to be deleted; look what records name after this.

    ``clock`` is in seconds and never goes back. Raises StoreError.
    """
    name = f"{datetime.now(UTC):{_STAMP}}-{uuid.uuid4().hex}"
    made = Announced(store, name, clock)
    await store.create(keys.removal("objects", name, "begun"), Removal(at=time.time(), by=by, why=why).to_bytes())
    return made


class Watch:
    """A writer's view of removals. Make it by ``watch`` before looking what is there, ask it after the record is written."""

    def __init__(self, store: ObjectStore, over: frozenset[str]) -> None:
        self._store = store
        self._over = over

    async def disturbed(self, waiting: Callable[[str], None] = lambda _: None) -> bool:
        """Return whether anything may have been deleted since the watch began; waits for the end of a removal that runs.

        ``waiting`` is told once that it does, in a sentence. Raises StoreError.
        """
        seen, running = await _notices(self._store)
        if running - self._over:
            waiting(f"waiting for a gc that is deleting objects of this store, {TERM_S / 60:g} minutes at most")
        while running - self._over:
            await asyncio.sleep(_POLL_S)
            _, running = await _notices(self._store)
        return bool(seen - self._over)


async def watch(store: ObjectStore) -> Watch:
    """Begin to watch for removals. Raises StoreError."""
    seen, running = await _notices(store)
    return Watch(store, seen - running)


async def _notices(store: ObjectStore) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of all removals of objects, and of those that may be under way."""
    steps: dict[str, set[str]] = {}
    for key in await store.list(keys.removals("objects")):
        name, step = keys.parse_removal(key)
        steps.setdefault(name, set()).add(step)
    oldest = f"{datetime.now(UTC) - timedelta(seconds=TERM_S):{_STAMP}}"
    return frozenset(steps), frozenset(name for name, has in steps.items() if "done" not in has and name >= oldest)
