"""All runs of a store at a glance: from the dataset where it has a run, else from the run's own records, as far as that is cheap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from orchestrator.dataset.commits import RunEntry, load_snapshot
from orchestrator.dataset.query import query
from orchestrator.dataset.rows import RunData, collect, read_many, record_keys
from orchestrator.driver.committed import load_manifest
from orchestrator.driver.dataset import part_cache
from orchestrator.driver.lease import read_holder
from orchestrator.driver.lookout import RunState, Sight, by_the_calendar
from orchestrator.errors import InfrastructureError, NotFoundError, StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings

MOST_RECORDS = 5_000
"""Outcomes and verdicts that one list reads, newest runs first. Of runs beyond that it tells only what their keys say."""
_COUNTED = ("passed", "failed", "abstained", "infra", "grader_error", "quarantined", "not_applicable")
"""Words of the denominator table that end a trial."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One run."""

    run: str
    state: RunState
    suite: str = ""
    created_at: datetime | None = None
    agents: tuple[str, ...] = ()
    backend: str = ""
    pool: str = ""
    commit: str | None = None
    rerun_of: str | None = None
    planned: int = 0
    left: int = 0
    """Trials that ``resume`` would run or grade."""
    counts: Mapping[str, int] | None = None
    """Ended trials by word; None: nobody counted them."""
    spent_nano_usd: int | None = None
    """None: unknown."""
    problem: str | None = None
    """Why it is unreadable."""

    @property
    def ended(self) -> int:
        """Trials that are at their end."""
        return self.planned - self.left


@dataclass(frozen=True)
class Overview:
    """Runs, newest first."""

    lines: tuple[Line, ...]
    more: int
    """Older runs that are not shown."""
    notes: tuple[str, ...] = ()


@dataclass
class _Known:
    """What is known of a run before its records are read."""

    line: Line
    manifest: RunManifest | None = None
    records: tuple[list[str], list[str]] | None = None
    sight: Sight = field(default_factory=lambda: Sight(None))


async def overview(store: ObjectStore, settings: Settings, *, suite: str | None, most: int | None) -> Overview:
    """Return the newest runs, ``most`` of them, or all; of one suite, or of all. Raises StoreError when the store cannot be listed."""
    runs = [run for key in await store.list(keys.RUNS) if (run := keys.run_of_manifest(key))]
    rows, notes = await _rows(store, settings) if runs else ({}, ())
    found = await read_many(lambda run: _begin(store, run, rows.get(run)), runs)
    every = [each for each in found if each is not None and suite in {None, each.line.suite}]
    every.sort(key=lambda each: (each.line.created_at or _LONG_AGO, each.line.run), reverse=True)
    shown = every if most is None else every[:most]
    await _look(store, shown)
    lines = [await _count(store, known, may_read) for known, may_read in _within(shown, MOST_RECORDS)]
    return Overview(tuple(lines), len(every) - len(shown), notes)


_LONG_AGO = datetime.fromtimestamp(0, UTC)


async def _rows(store: ObjectStore, settings: Settings) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """Return what the dataset says, by run. A dataset that cannot be read is said and done without."""
    try:
        answer = await query(store, "SELECT * FROM runs", part_cache(settings))
    except InfrastructureError as error:
        return {}, (f"the dataset cannot be read, so runs are counted one by one: {error}",)
    names = [name for name, _ in answer.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in answer.rows}, ()


async def _begin(store: ObjectStore, run: str, row: dict[str, Any] | None) -> _Known | None:
    """Return what a run is; None when it was removed meanwhile."""
    if row is not None and row["left"] is not None:
        return _Known(_line_of_row(row))
    try:
        manifest = await load_manifest(store, run)
    except NotFoundError:
        return None
    except StoreError as error:
        return _Known(Line(run=run, state="unreadable", problem=str(error)))
    planned = len(manifest.trials())
    line = Line(
        run=run,
        state="waiting",
        suite=manifest.suite,
        created_at=manifest.created_at,
        agents=tuple(agent.name for agent in manifest.agents),
        backend=manifest.backend,
        pool=manifest.pool,
        commit=manifest.code.commit,
        rerun_of=manifest.rerun_of,
        planned=planned,
        left=planned,
    )
    return _Known(line, manifest)


def _line_of_row(row: dict[str, Any]) -> Line:
    same = {name: row[name] for name in ("run", "suite", "backend", "pool", "commit", "rerun_of", "planned", "left")}
    return Line(
        **same,
        state="complete",
        created_at=row["created_at"].astimezone(UTC),
        agents=tuple(row["agents"]),
        counts={word: row[word] for word in _COUNTED},
        spent_nano_usd=row["spent_nano_usd"],
    )


async def _look(store: ObjectStore, shown: Sequence[_Known]) -> None:
    """See who drives the runs that are not over, and which records the dataset does not have."""
    open_ = [each for each in shown if each.line.left and each.line.problem is None]
    entries: Mapping[str, RunEntry] = {}
    if any(each.manifest is None for each in open_):
        entries = (await load_snapshot(store)).runs

    async def one(known: _Known) -> None:
        try:
            known.sight = by_the_calendar(await read_holder(store, known.line.run))
            records = await record_keys(store, known.line.run)
        except (StoreError, ValueError) as error:
            known.line = _unreadable(known.line, error)
            return
        entry = entries.get(known.line.run)
        if known.manifest is not None or entry is None or entry.records != sum(map(len, records)):
            known.records = records

    await read_many(one, open_)


def _within(shown: Sequence[_Known], room: int) -> list[tuple[_Known, bool]]:
    """Say of each run whether its records may be read."""
    found = []
    for known in shown:
        needed = sum(map(len, known.records or ()))
        found.append((known, needed <= room))
        room -= needed if needed <= room else 0
    return found


async def _count(store: ObjectStore, known: _Known, may_read: bool) -> Line:
    line = known.line
    if line.problem is not None:
        return line
    if known.records is not None:
        try:
            line = _of_data(line, await collect(store, line.run)) if may_read else _of_keys(line, known.records)
        except (StoreError, ValueError) as error:
            return _unreadable(line, error)
    return replace(line, state=known.sight.run_state(line.left, line.ended))


def _of_data(line: Line, data: RunData) -> Line:
    counts = Counter(row.result for row in data.rows)
    costs = [row.spent_nano_usd for row in data.rows]
    return replace(
        line,
        left=sum(row.is_left(data.manifest.max_launches) for row in data.rows),
        counts={word: counts.get(word, 0) for word in _COUNTED},  # type: ignore[call-overload]
        spent_nano_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def _of_keys(line: Line, records: tuple[list[str], list[str]]) -> Line:
    """Count trials with a verdict; those that were given up stay among those that are left."""
    graded = {keys.parse_verdict(name) for name in records[1]}
    return replace(line, left=max(0, line.planned - len(graded)), counts=None, spent_nano_usd=None)


def _unreadable(line: Line, error: Exception) -> Line:
    return replace(line, state="unreadable", problem=str(error))
