"""Which runs go, which may not, and how one goes.

A run is removed in an order that leaves no half of it to be seen: a notice that stays for ever, then the manifest, then all
the rest, then a second notice. Until the manifest is gone the run is whole. From then on nobody finds it, and whoever reads
it looks for the manifest again at the end; the notice says what became of it. What a killed gc left is finished by the next.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.dataset.rows import read_many
from orchestrator.driver.gc.broom import Amount, Broom
from orchestrator.driver.lease import Holder, Timing, read_holder, wait_for_silence
from orchestrator.errors import NotFoundError, RefusedError, SpecError, StoreError
from orchestrator.interfaces import ObjectStore, Stored, SweepableStore
from orchestrator.records import keys
from orchestrator.records.manifest import RunManifest
from orchestrator.records.removal import Removal, Removed

DAY_S = 86_400.0
_STRAGGLERS_S = 7 * DAY_S
"""For so long after a run is gone, what a driver that slept through its removal still wrote is removed too."""


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """Which runs a person wants to be rid of."""

    runs: tuple[str, ...] | None = None
    """Exactly these; None: those that are both old and not among the newest."""
    older_than_s: float | None = None
    """Runs that were submitted longer ago, in seconds."""
    keep: int | None = None
    """All but so many newest ones of each suite."""
    grace_s: float = DAY_S
    """What is younger is left alone, in seconds: somebody may be at it."""
    said: str = ""
    """What was asked for, when ``runs`` are those that it came to."""

    @property
    def empty(self) -> bool:
        """Whether they name no run at all."""
        return self.runs is None and self.older_than_s is None and self.keep is None

    def __str__(self) -> str:
        if self.said or self.empty:
            return self.said
        if self.runs is not None:
            return "named by a person"
        words = [] if self.older_than_s is None else [f"older than {spell_age(self.older_than_s)}"]
        return ", ".join([*words, *([] if self.keep is None else [f"not among the newest {self.keep} of its suite"])])


@dataclass(frozen=True, kw_only=True)
class Known:
    """A run of the store."""

    run: str
    data: bytes
    """Its manifest."""
    manifest: RunManifest | None
    """None: this version cannot read it."""


@dataclass(frozen=True, kw_only=True)
class RemovedRun:
    """A run that was removed, or would be."""

    run: str
    suite: str | None
    created_at: datetime | None
    why: str
    finished: bool
    """Whether an earlier gc had begun with it."""
    amount: Amount


@dataclass(frozen=True, kw_only=True)
class KeptRun:
    """A run that was to go and stays."""

    run: str
    why: str


def spell_age(seconds: float) -> str:
    """Return a length of time for people: ``30 d``, ``12 h``, ``5 min``, ``3 s``."""
    for unit, name in ((DAY_S, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


async def read_runs(store: ObjectStore, known: Mapping[str, Known] | None = None) -> dict[str, Known]:
    """Return all runs that have a manifest now; those already known are not read again. Raises StoreError."""
    before = known or {}

    async def read(run: str) -> Known | None:
        if run in before:
            return before[run]
        key = keys.manifest(run)
        try:
            data = await store.get(key)
        except NotFoundError:  # removed since it was listed
            return None
        try:
            return Known(run=run, data=data, manifest=RunManifest.from_bytes(data, key))
        except StoreError:
            return Known(run=run, data=data, manifest=None)

    runs = [run for key in await store.list(keys.RUNS) if (run := keys.run_of_manifest(key)) is not None]
    return {one.run: one for one in await read_many(read, runs) if one is not None}


def choose(known: Mapping[str, Known], criteria: Criteria, now: datetime) -> list[str]:
    """Return the runs that meet the criteria, oldest first; one whose manifest cannot be read only by its name.

    Raises SpecError for a named run that is not there and for criteria that name none.
    """
    if criteria.runs is not None:
        missing = sorted(set(criteria.runs) - set(known))
        if missing:
            msg = f"no run {missing[0]!r} in the store"
            raise SpecError(msg)
        return sorted(set(criteria.runs))
    if criteria.empty:
        msg = "say what may go: --older-than 30d, --keep N or --run RUN; --dry-run shows what it comes to"
        raise SpecError(msg)
    newest_first = sorted(
        (one.manifest for one in known.values() if one.manifest is not None),
        key=lambda manifest: (manifest.created_at, manifest.run),
        reverse=True,
    )
    chosen, seen = [], dict.fromkeys((manifest.suite for manifest in newest_first), 0)
    for manifest in newest_first:
        seen[manifest.suite] += 1
        old = criteria.older_than_s is None or (now - manifest.created_at).total_seconds() > criteria.older_than_s
        if old and (criteria.keep is None or seen[manifest.suite] > criteria.keep):
            chosen.append(manifest.run)
    return chosen[::-1]


async def why_kept(store: SweepableStore, run: str, grace_s: float) -> str | None:
    """Return why a run must not be removed now; None when it may. Raises StoreError."""
    holder = await read_holder(store, run)
    if holder is not None and holder.release is None and not holder.gone:
        silent = min((each.age_s for each in await store.stored(keys.leases(run))), default=0.0)
        if silent < holder.claim.term_s:
            return _driven(run, holder)
    manifest = await store.stored(keys.manifest(run))
    if manifest and manifest[0].age_s < grace_s and not await store.list(keys.outcomes(run)):
        return f"it is only {spell_age(max(0.0, manifest[0].age_s))} old and may be about to start (--grace)"
    return None


def _driven(run: str, holder: Holder) -> str:
    return f"it is driven by {holder}; end it first: orchestrate stop {run}"


async def why_heard(store: SweepableStore, run: str) -> str | None:
    """Listen for a whole term, by our own clock, to a driver that seems to be silent and is not proven dead.

    Its last sign of life may look old because a clock was set. Returns why the run must not be removed; None: it may. Raises StoreError.
    """
    holder = await read_holder(store, run)
    if holder is None or holder.release is not None or holder.gone:
        return None
    try:
        await wait_for_silence(store, holder, Timing())
    except RefusedError:
        return _driven(run, holder)
    return None


class RunRemover:
    """Removes runs from a store."""

    def __init__(self, broom: Broom, writer_id: str, criteria: Criteria) -> None:
        self._broom = broom
        self._store = broom.store
        self._writer_id = writer_id
        self._criteria = criteria

    async def unfinished(self) -> list[str]:
        """Return the runs whose removal was begun and has not ended, sorted. Raises StoreError."""
        begun: set[str] = set()
        done: set[str] = set()
        for key in await self._store.list(keys.removals("runs")):
            run, step = keys.parse_removal(key)
            (done if step == "done" else begun).add(run)
        return sorted(begun - done)

    async def heard(self, runs: Sequence[str]) -> dict[str, KeptRun]:
        """Return the runs whose drivers give signs of life though by the calendar they gave none lately. Raises StoreError."""
        if self._broom.dry:
            return {}

        async def listen(run: str) -> str | None:
            return await why_heard(self._store, run)

        told = zip(runs, await read_many(listen, list(runs)), strict=True)
        return {run: KeptRun(run=run, why=why) for run, why in told if why is not None}

    async def remove(self, run: str, known: Known | None) -> RemovedRun | KeptRun:
        """Remove one run, or finish with it. Raises StoreError; the next gc goes on then."""
        if (why := await why_kept(self._store, run, self._criteria.grace_s)) is not None:
            return KeptRun(run=run, why=why)
        manifest = known.manifest if known else None
        notice = Removal(
            at=time.time(), by=self._writer_id, why=str(self._criteria), suite=manifest.suite if manifest else None
        )
        finished = not await self._note(run, "begun", notice)
        # A driver looks for the notice after it has claimed the run: whichever came first, one of both sees the other.
        if not self._broom.dry and (why := await why_kept(self._store, run, self._criteria.grace_s)) is not None:
            return KeptRun(run=run, why=f"{why}; a later gc removes it")
        amount = await self._sweep(run)
        await self._note(run, "done", Removed(at=time.time(), objects=amount.objects, size=amount.size))
        return RemovedRun(
            run=run,
            suite=notice.suite,
            created_at=manifest.created_at.astimezone(UTC) if manifest else None,
            why=notice.why,
            finished=finished,
            amount=amount,
        )

    async def stragglers(self, present: Collection[str]) -> Amount:
        """Remove what was written about runs after their removal had ended. Raises StoreError."""
        lately = []
        for each in await self._store.stored(keys.removals("runs")):
            run, step = keys.parse_removal(each.key)
            if step == "done" and each.age_s < _STRAGGLERS_S and run not in present:
                lately.append(run)
        return sum(await read_many(self._sweep, lately), Amount())

    async def _note(self, run: str, step: keys.Step, record: Removal | Removed) -> bool:
        """Write a notice; True: it was not there before."""
        key = keys.removal("runs", run, step)
        if self._broom.dry:
            return not await self._store.exists(key)
        return await self._store.create(key, record.to_bytes())

    async def _sweep(self, run: str) -> Amount:
        amount = await self._broom.delete(await self._exactly(keys.manifest(run)))
        every = (keys.run_files, keys.outcomes, keys.verdicts, keys.records, keys.blobs, keys.leases, keys.stages)
        for prefix in every:
            rest = await self._store.stored(prefix(run))
            amount += await self._broom.delete([each for each in rest if each.key != keys.manifest(run)])
        return amount

    async def _exactly(self, key: str) -> list[Stored]:
        return [each for each in await self._store.stored(key) if each.key == key]
