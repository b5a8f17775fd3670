"""The writing side of stages: whoever ends trials puts their rows aside while others still run."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence

from orchestrator.dataset import parts as part_io
from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.parts import Encoded
from orchestrator.dataset.rows import RunData, TrialRow, assemble, read_many
from orchestrator.dataset.stages import STAGED, Stage, StagedTrial, record_digests
from orchestrator.dataset.steps import ReadEvents, read_steps
from orchestrator.dataset.tables import Trajectories, arrow_tables
from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore, TrialEnd
from orchestrator.records import keys
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome

STAGE_EVERY = 200
"""Ended trials of a stage."""
FINISH_SECONDS = 60.0
"""For the last stage."""
MOST_FAILURES = 3
"""Stages in a row that could not be written, after which the writer writes no more."""


class Stager:
    """Writes the rows of ended trials, ``every`` of them at a time. Nothing that goes wrong here is raised: see ``problem``."""

    def __init__(
        self, store: ObjectStore, manifest: RunManifest, writer: str, events: ReadEvents, every: int = STAGE_EVERY
    ) -> None:
        self.problem: str | None = None
        """Why a stage could not be written, the first time; the run needs none."""
        self._store = store
        self._manifest = manifest
        self._planned = manifest.trials()
        self._writer = writer
        self._events = events
        self._every = every
        self._waiting: deque[TrialEnd] = deque()
        self._written = 0
        self._failures = 0
        self._lock = asyncio.Lock()
        self._working: asyncio.Task[None] | None = None

    def ended(self, end: TrialEnd) -> None:
        """Take a trial, and begin a stage in the background when enough of them wait."""
        if self._failures >= MOST_FAILURES:
            return
        self._waiting.append(end)
        if len(self._waiting) >= self._every and (self._working is None or self._working.done()):
            self._working = asyncio.create_task(self._write_down_to(self._every))

    async def finish(self) -> None:
        """Write what waits; a store that does not answer is given up."""
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self._write_down_to(1)
        except TimeoutError:
            self.problem = self.problem or f"the store did not take them in {FINISH_SECONDS:.0f} s"

    async def abandon(self) -> None:
        """Leave what waits and what is being written."""
        self._waiting.clear()
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    async def _write_down_to(self, least: int) -> None:
        async with self._lock:
            while len(self._waiting) >= least:
                ends = [self._waiting.popleft() for _ in range(min(self._every, len(self._waiting)))]
                try:
                    await self._write(ends)
                    self._failures = 0
                except Exception as error:  # noqa: BLE001 - a stage saves time; a trial is never lost for it
                    self._failures += 1
                    self.problem = self.problem or str(error) or type(error).__name__
                if self._failures >= MOST_FAILURES:
                    self._waiting.clear()

    async def _write(self, ends: Sequence[TrialEnd]) -> None:
        last = {end.trial: end for end in ends}  # of a trial that ended twice
        launches = await read_many(self._launches, list(last.values()))
        data = assemble(
            self._manifest,
            [outcome for found in launches for outcome in found],
            [end.verdict for end in last.values() if end.verdict is not None],
            {trial: self._planned[trial] for trial in last},
        )
        steps, gone = await read_steps(
            self._manifest, ((row.trial, outcome) for row in data.rows for outcome in row.launches), self._events
        )
        if gone:  # whoever makes the rows at the end must find that too
            msg = f"the trajectory of {gone[0]} is gone from the store"
            raise StoreError(msg, cause="dataset_trajectory_gone")
        self._written += 1
        encoded = await asyncio.to_thread(self._encode, data, steps)
        await part_io.put_all(self._store, encoded)
        stage = Stage(
            run=self._manifest.run,
            writer=self._writer,
            number=self._written,
            trials=tuple(self._named(row) for row in data.rows),
            parts=tuple(one.part for one in encoded),
        )
        await self._store.create(keys.stage_marker(stage.run, stage.writer, stage.number), stage.to_bytes())

    async def _launches(self, end: TrialEnd) -> list[Outcome]:
        """Return all launches of a trial: those before the last one, which are few, from the store."""
        before = []
        if end.outcome.launch > 1:
            last = keys.outcome(self._manifest.run, end.trial, end.outcome.launch)
            names = await self._store.list(keys.outcomes(self._manifest.run, end.trial))
            before = [Outcome.from_bytes(await self._store.get(name), name) for name in names if name != last]
        return [*before, end.outcome]

    def _named(self, row: TrialRow) -> StagedTrial:
        return StagedTrial(trial=str(row.trial), records=record_digests(self._manifest.run, row) or {})

    def _encode(self, data: RunData, steps: Trajectories) -> list[Encoded]:
        tables = arrow_tables(data, steps)
        made = []
        for name in STAGED:
            if tables[name].num_rows:
                one = part_io.encode(TABLES[name], tables[name], self._manifest.suite, data.month)
                key = keys.stage_file(self._manifest.run, self._writer, self._written, name)
                made.append(Encoded(one.part.model_copy(update={"key": key}), one.data))
        return made


@contextlib.asynccontextmanager
async def staging(
    store: ObjectStore, manifest: RunManifest, writer: str, events: ReadEvents, every: int = STAGE_EVERY
) -> AsyncIterator[Stager]:
    """Give a Stager; at the end it writes what waits, unless an error ends the context. ``writer`` is a name that nobody else ever has."""
    stager = Stager(store, manifest, writer, events, every)
    try:
        yield stager
        await stager.finish()
    finally:
        await stager.abandon()
