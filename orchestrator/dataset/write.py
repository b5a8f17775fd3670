"""Put a run's rows into the dataset: once, whole, and replaced when there is more to know about the run."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.dataset import parts as part_io
from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import Change, Disturbed, Part, RunEntry, Snapshot, append
from orchestrator.dataset.files import PartFiles
from orchestrator.dataset.metrics import metric_table
from orchestrator.dataset.parts import Encoded
from orchestrator.dataset.rows import RunData, collect
from orchestrator.dataset.stages import Taken, take_stages
from orchestrator.dataset.steps import ReadEvents, read_steps
from orchestrator.dataset.tables import record_tables, step_table
from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.spec.base import canonical_json

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Written:
    """What became of a run's rows."""

    run: str
    added: bool
    """False: they were there already, equal or from a later reading of the run."""
    rows: dict[str, int]
    """Rows of the run by table."""
    gone: tuple[str, ...] = ()
    """Launches whose trajectory is no longer in the store, so that their steps are not in the table."""
    restored: tuple[str, ...] = ()
    """Keys of parts that were lost and are whole again."""
    also_lost: tuple[str, ...] = ()
    """Other runs that lost rows with a part of this one; rebuild them too."""
    staged: int = 0
    """Trials whose steps were taken from stages."""
    ignored: tuple[str, ...] = ()
    """Stages that were not believed, and why; their rows were made from the records."""


async def commit_run(
    store: ObjectStore, run: str, events: ReadEvents, cache: Path, disturbed: Disturbed | None = None
) -> Written:
    """Make the rows of a run from its records, with steps from its stages where they fit, and commit them. Doing it again adds nothing.

    Raises NotFoundError for an unknown run and StoreError, after which the dataset is as it was before or complete.
    """
    return await _write(_Place(store, events, cache, disturbed), run, repair=False)


async def rebuild(
    store: ObjectStore, run: str, events: ReadEvents, cache: Path, disturbed: Disturbed | None = None
) -> Written:
    """Make the rows of a run anew from its records and trajectories alone, and put back what the dataset has lost of them.

    A lost part that held rows of other runs too is dropped; they are named, to be rebuilt as well. Raises NotFoundError
    for an unknown run and StoreError.
    """
    return await _write(_Place(store, events, cache, disturbed), run, repair=True)


@dataclass(frozen=True)
class _Place:
    store: ObjectStore
    events: ReadEvents
    cache: Path
    disturbed: Disturbed | None


async def _write(at: _Place, run: str, *, repair: bool) -> Written:
    data = await collect(at.store, run)
    tables = await asyncio.to_thread(record_tables, data)
    staged = Taken() if repair else await take_stages(at.store, data, tables)
    launches = ((row.trial, outcome) for row in data.rows if row.trial not in staged.trials for outcome in row.launches)
    steps, gone = await read_steps(data.manifest, launches, at.events)
    tables["steps"] = part_io.concat([await asyncio.to_thread(step_table, data, steps), *staged.steps])
    tables["metrics"] = await asyncio.to_thread(metric_table, data, tables["steps"], gone)
    encoded = await asyncio.to_thread(_encode, data, tables)
    entry = RunEntry(fingerprint=_fingerprint(encoded), records=_records(data))
    replacement = _Replacement(at.store, PartFiles(at.store, at.cache), run, encoded, entry, gone, repair)
    commit = await append(at.store, replacement.propose, at.disturbed)
    rows = {one.part.table: one.part.rows for one in encoded}
    return Written(
        run=run,
        added=commit is not None,
        rows={name: rows.get(name, 0) for name in TABLES},
        gone=gone,
        restored=tuple(sorted(replacement.restored)),
        also_lost=tuple(sorted(replacement.also_lost)),
        staged=len(staged.trials),
        ignored=tuple(staged.ignored),
    )


def _encode(data: RunData, tables: Mapping[str, pa.Table]) -> list[Encoded]:
    return [
        part_io.encode(TABLES[name], rows, data.manifest.suite, data.month)
        for name, rows in tables.items()
        if rows.num_rows
    ]


def _fingerprint(encoded: list[Encoded]) -> str:
    facts = sorted([one.part.table, one.part.sha256] for one in encoded)
    return hashlib.sha256(canonical_json(facts)).hexdigest()


def _records(data: RunData) -> int:
    return sum(len(row.launches) + len(row.verdicts) for row in data.rows)


@dataclass
class _Replacement:
    """The change that makes the rows of one run these rows."""

    store: ObjectStore
    files: PartFiles
    run: str
    encoded: list[Encoded]
    entry: RunEntry
    gone: tuple[str, ...]
    repair: bool
    restored: set[str] = field(default_factory=set)
    also_lost: set[str] = field(default_factory=set)

    async def propose(self, snapshot: Snapshot) -> Change | None:
        known = snapshot.runs.get(self.run)
        old = snapshot.with_run(self.run)
        lost = {part.key for part in old if self.repair and not await part_io.is_whole(self.store, part)}
        if known is not None and not lost and (known == self.entry or known.records > self.entry.records):
            return None
        if known is not None and self.gone:
            msg = (
                f"run {self.run} is in the dataset, and {len(self.gone)} of its trajectories are gone from the store "
                f"(first: {self.gone[0]}): making its rows anew would lose their steps, so nothing was changed"
            )
            raise StoreError(msg, cause="dataset_trajectory_gone")
        return await self._change(snapshot, old, lost)

    async def _change(self, snapshot: Snapshot, old: list[Part], lost: set[str]) -> Change | None:
        rest = await self._without_run([part for part in old if part.runs != (self.run,) and part.key not in lost])
        new = {one.part.key: one for one in [*self.encoded, *rest]}
        # A part that stays, because its rows are the same, is neither added nor removed.
        fresh = [new[key] for key in sorted(new.keys() - (snapshot.parts.keys() - lost))]
        again = functools.partial(part_io.put_all, self.store, fresh)
        await again()
        self.restored |= lost & new.keys()
        removed = [part for part in old if part.key not in new]
        others = {run for part in removed if part.key in lost for run in part.runs} - {self.run}
        self.also_lost = others
        change = Change(
            type="run",
            added=[one.part for key, one in new.items() if key not in snapshot.parts],
            removed=[part.key for part in removed],
            # Runs that lost rows are known without any, so that the next commit of their rows is not taken for a repetition.
            runs={self.run: self.entry, **{run: RunEntry(fingerprint="", records=0) for run in others}},
            again=again,
        )
        unchanged = not change.added and not change.removed and snapshot.runs.get(self.run) == self.entry
        return None if unchanged else change

    async def _without_run(self, shared: list[Part]) -> list[Encoded]:
        """Return parts that hold rows of other runs too, written again without this run."""
        return [
            await asyncio.to_thread(_drop_run, part, path, self.run)
            for part, path in zip(shared, await self.files.paths(shared), strict=True)
        ]


def _drop_run(part: Part, path: Path, run: str) -> Encoded:
    kept = part_io.only_run(part_io.decode(part, path), run, others=True)
    return part_io.encode(TABLES[part.table], kept, part.suite, part.month)
