"""The pool that runs trials in this process, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from orchestrator.driver.breaker import Breaker
from orchestrator.errors import SpendingLimitError
from orchestrator.interfaces import PlannedTrial, TrialEnd
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.trial.crew import Crew
from orchestrator.trial.run import grade, run_trial, take_over

_Item = TypeVar("_Item")


class InlinePool:
    """``concurrency`` workers over one list. Implements TrialPool. ``ended`` hears of each trial as it ends."""

    def __init__(
        self, crew: Crew, breaker: Breaker, concurrency: int, ended: Callable[[TrialEnd], None] = lambda end: None
    ) -> None:
        self._crew = crew
        self._ended = ended
        self._breaker = breaker
        self._concurrency = max(1, concurrency)
        self._stop = asyncio.Event()
        self._limit: SpendingLimitError | None = None

    async def stop(self) -> None:
        """Start no more trials; what runs is stopped, frozen and committed."""
        self._stop.set()

    async def run(self, manifest: RunManifest, trials: list[PlannedTrial]) -> AsyncIterator[TrialEnd]:
        """Yield each trial as it ends. Raises as ``TrialPool`` says; what was committed stays."""

        async def work(planned: PlannedTrial) -> TrialEnd:
            return await run_trial(manifest.run, planned, self._crew, self._stop)

        async for end in self._each(trials, work, lambda: self._stop.is_set() or self._halted):
            yield end
        if self._limit is not None:
            raise self._limit

    async def grade(self, manifest: RunManifest, trials: list[tuple[PlannedTrial, Outcome]]) -> AsyncIterator[TrialEnd]:
        """Ask for the verdicts of committed results that have none yet."""

        async def work(item: tuple[PlannedTrial, Outcome]) -> TrialEnd:
            planned, outcome = item
            return TrialEnd(
                trial=planned.id, outcome=outcome, verdict=await grade(manifest.run, planned, outcome, self._crew)
            )

        stopped = self._stop.is_set()
        async for end in self._each(trials, work, lambda: (self._stop.is_set() and not stopped) or self._halted):
            yield end

    async def take_over(self, manifest: RunManifest, trials: list[PlannedTrial]) -> AsyncIterator[TrialEnd]:
        """Bring launches that were left to their end, whatever keeps others from starting."""

        async def work(planned: PlannedTrial) -> TrialEnd:
            return await take_over(manifest.run, planned, self._crew, self._stop)

        async for end in self._each(trials, work, lambda: False):
            yield end

    @property
    def _halted(self) -> bool:
        return self._limit is not None or self._breaker.error is not None

    async def _each(
        self, items: Sequence[_Item], work: Callable[[_Item], Awaitable[TrialEnd]], halted: Callable[[], bool]
    ) -> AsyncIterator[TrialEnd]:
        waiting = iter(items)
        ends: asyncio.Queue[TrialEnd | None] = asyncio.Queue()
        failed = False

        async def worker() -> None:
            try:
                for item in waiting:
                    if failed or halted():
                        return
                    ends.put_nowait(await work(item))
            except SpendingLimitError as error:  # nothing more is started; what runs is paid for and ends as it likes
                self._limit = error
            finally:
                ends.put_nowait(None)  # one for each worker: the reader knows when the last has gone

        workers = [asyncio.create_task(worker()) for _ in range(min(self._concurrency, len(items)))]
        try:
            running = len(workers)
            while running:
                end = await ends.get()
                if end is not None:
                    self._breaker.ended(end)
                    self._ended(end)
                    yield end
                    continue
                running -= 1
                if any(task.done() and task.exception() is not None for task in workers):
                    failed = True
                    self._stop.set()
            await asyncio.gather(*workers)
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
