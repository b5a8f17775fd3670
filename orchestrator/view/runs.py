"""Runs as they are now. What is read again and again, because a page is open, is read no faster than the store bears."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

from orchestrator import wiring
from orchestrator.dataset.measured import read_metrics
from orchestrator.dataset.rows import RunData, RunReader, short
from orchestrator.driver.dataset import part_cache
from orchestrator.driver.lease import read_holder
from orchestrator.driver.lookout import by_the_calendar
from orchestrator.driver.overview import Line, Overview, overview
from orchestrator.driver.standing import Standing
from orchestrator.driver.wishes import last_wish
from orchestrator.interfaces import ObjectStore
from orchestrator.report.jsonform import as_json
from orchestrator.report.summary import summarise
from orchestrator.settings import Settings
from orchestrator.view.filter import hay_of

MOST_RUNS = 4
"""Runs whose rows are kept in memory."""
LEAST_SECONDS = 1.0
"""Between two looks at one thing."""
SHARE = 5.0
"""A look that took so long is not made again for so many times as long."""

Value = TypeVar("Value")


class Fresh(Generic[Value]):
    """A value that is read again when it is asked for and not fresh any more; who asks meanwhile waits for the same reading."""

    def __init__(self, read: Callable[[], Awaitable[Value]], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value: Value | None = None
        self._until = 0.0

    async def get(self) -> Value:
        """Return the value. Raises as the reading does."""
        async with self._lock:
            begun = self._clock()
            if self._value is None or begun >= self._until:
                self._value = await self._read()
                now = self._clock()
                self._until = now + max(LEAST_SECONDS, SHARE * (now - begun))
            return self._value


class Loaded:
    """A run at one moment, and what is counted of it once."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.data: RunData = standing.data

    @cached_property
    def records(self) -> str:
        """What tells apart two states of the records, which are only ever added to."""
        rows = self.data.rows
        return f"{sum(len(row.launches) for row in rows)}-{sum(len(row.verdicts) for row in rows)}"

    @cached_property
    def report(self) -> dict[str, Any]:
        """The report's own JSON form."""
        return as_json(summarise(self.data))

    @cached_property
    def hays(self) -> list[str]:
        """The text of each row."""
        return [hay_of(row) for row in self.data.rows]

    def head(self) -> dict[str, Any]:
        """Return how far the run is."""
        standing, manifest = self.standing, self.data.manifest
        holder = standing.sight.holder
        return {
            "run": manifest.run,
            "suite": manifest.suite,
            "created_at": manifest.created_at.isoformat(),
            "commit": manifest.code.commit,
            "dirty": manifest.code.dirty,
            "suite_digest": short(manifest.suite_digest),
            "backend": manifest.backend,
            "pool": manifest.pool,
            "state": standing.state,
            "stop": standing.stop.by if standing.stop else None,
            "released": holder.release.detail if holder and holder.release else None,
            "planned": standing.planned,
            "left": standing.left,
            "to_run": standing.to_run,
            "to_grade": standing.to_grade,
            "phases": dict(standing.phases),
            "waits": dict(standing.waits),
            "failed_launches": dict(standing.failed_launches),
            "spent_nano_usd": standing.spent_nano_usd,
            "limit_usd": manifest.limits.cost_usd,
            "eta_s": standing.eta_s,
        }


class _Run:
    """Reads one run again and again."""

    def __init__(self, store: ObjectStore, run: str) -> None:
        self._store = store
        self._name = run
        self._reader = RunReader(store, run)
        self._last: Loaded | None = None

    async def read(self) -> Loaded:
        data = await self._reader.read()
        sight = by_the_calendar(await read_holder(self._store, self._name))
        found = Loaded(Standing(data, sight, await last_wish(self._store, self._name)))
        if self._last is not None and self._last.records == found.records:
            # Nothing was added: what was counted then still holds.
            self._last.standing = Standing(self._last.data, sight, found.standing.wish)
            return self._last
        self._last = found
        return found


class Runs:
    """The runs of a store."""

    def __init__(self, store: ObjectStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._runs: OrderedDict[str, Fresh[Loaded]] = OrderedDict()
        self._metrics: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()
        self._measuring = asyncio.Lock()
        self._lists: OrderedDict[int, Fresh[Overview]] = OrderedDict()

    async def get(self, run: str) -> Loaded:
        """Return a run. Raises NotFoundError and StoreError."""
        if run not in self._runs:
            self._runs[run] = Fresh(_Run(self._store, run).read)
        self._runs.move_to_end(run)
        try:
            return await self._runs[run].get()
        finally:
            while len(self._runs) > MOST_RUNS:
                self._runs.popitem(last=False)

    async def metrics(self, run: str) -> dict[str, Any]:
        """Return the trajectory metrics of a run's agents, as the report has them, and what a reader must know. Raises as ``get``."""
        loaded = await self.get(run)
        async with self._measuring:
            if self._metrics.get(run, ("",))[0] != loaded.records:
                events = wiring.event_reader(self._store)
                found = await read_metrics(self._store, part_cache(self._settings), events, loaded.data)
                report = await asyncio.to_thread(lambda: as_json(summarise(loaded.data, measured=found)))
                agents = [{name: agent[name] for name in ("agent", "metrics")} for agent in report["agents"]]
                self._metrics[run] = loaded.records, {"agents": agents, "notes": list(found.notes)}
                while len(self._metrics) > MOST_RUNS:
                    self._metrics.popitem(last=False)
            return self._metrics[run][1]

    async def list(self, most: int) -> dict[str, Any]:
        """Return the newest runs. Raises StoreError."""

        async def read() -> Overview:
            return await overview(self._store, self._settings, suite=None, most=most)

        if most not in self._lists:
            self._lists[most] = Fresh(read)
        while len(self._lists) > MOST_RUNS:
            self._lists.popitem(last=False)
        found = await self._lists[most].get()
        return {"runs": [_line(line) for line in found.lines], "more": found.more, "notes": list(found.notes)}


def _line(line: Line) -> dict[str, Any]:
    return {
        "run": line.run,
        "state": line.state,
        "suite": line.suite,
        "created_at": line.created_at.isoformat() if line.created_at else None,
        "agents": list(line.agents),
        "backend": line.backend,
        "pool": line.pool,
        "commit": line.commit,
        "rerun_of": line.rerun_of,
        "planned": line.planned,
        "ended": line.ended,
        "counts": None if line.counts is None else dict(line.counts),
        "spent_nano_usd": line.spent_nano_usd,
        "problem": line.problem,
    }
