"""A supervisor: runs trials in its own process, as many at one time as it has slots, with the same spine as every pool."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from orchestrator import wiring
from orchestrator.driver.committed import load_committed
from orchestrator.driver.ray.messages import (
    Aborted,
    Ended,
    Failure,
    Job,
    LaunchFailed,
    LaunchForfeited,
    LaunchSettled,
    Orders,
    PhaseEntered,
    Report,
    Waits,
)
from orchestrator.driver.ray.outbox import Outbox
from orchestrator.errors import OrchestrateError
from orchestrator.interfaces import Phase, PlannedTrial, TrialEnd
from orchestrator.plan.trials import all_trials
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.trial.crew import Crew
from orchestrator.trial.run import grade, run_trial, take_over

_HEARTBEAT_SECONDS = 1.0
"""Between reports while nothing happens: how soon a stop is heard."""
_EVENTS = 500
"""Events in one report."""


class Line(Protocol):
    """The way to the coordinator. Both methods go on until there is an answer: a coordinator that died comes back."""

    async def report(self, report: Report) -> Orders:
        """Tell and be told."""
        ...

    async def reserve(self, index: int, name: str, trial: TrialId, launch: int) -> Failure | None:
        """Ask to start a launch; the answer says why not."""
        ...


class Supervisor:
    """One of the supervisors of a run. Implements Observer and Allowance for its trials."""

    def __init__(self, index: int, generation: int, line: Line, slots: int) -> None:
        self.name = wiring.writer_id()
        self._index = index
        self._line = line
        self._slots = slots
        self._generation = generation
        self._outbox = Outbox(self.name)
        self._holds: dict[TrialId, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._due = asyncio.Event()
        self._reports = 0
        self._ended: Callable[[TrialEnd], None] = lambda end: None

    async def work(
        self, manifest: RunManifest, crew: Crew, ended: Callable[[TrialEnd], None] = lambda end: None
    ) -> None:
        """Take work until this process is replaced or cancelled; then what runs here is killed. ``ended`` hears of each ended trial."""
        self._ended = ended
        planned = {each.id: each for each in all_trials(manifest)}
        try:
            while not (orders := await self._report()).replaced:
                if orders.stop:
                    self._stop.set()
                for job in orders.jobs:
                    task = asyncio.create_task(self._do(manifest.run, planned[job.trial], job, crew))
                    task.add_done_callback(lambda _: self._due.set())
                    self._holds[job.trial] = task
                for task in self._holds.values():
                    if task.done():
                        task.result()  # still held, so it raised: a mistake in this program
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._due.wait(), _HEARTBEAT_SECONDS)
        finally:
            for task in self._holds.values():
                task.cancel()
            await asyncio.gather(*self._holds.values(), return_exceptions=True)

    async def _report(self) -> Orders:
        self._due.clear()  # before the look at what there is: what happens during the call is told at once after it
        self._reports += 1
        events = self._outbox.first(_EVENTS)
        report = Report(
            index=self._index,
            name=self.name,
            generation=self._generation,
            number=self._reports,
            holds=tuple(self._holds),
            free=self._slots - len(self._holds),
            events=events,
        )
        orders = await self._line.report(report)
        self._outbox.drop(len(events))
        return orders

    async def _do(self, run: str, planned: PlannedTrial, job: Job, crew: Crew) -> None:
        """Bring one trial to its end and tell it. What is not the trial's own error goes to the driver."""
        try:
            fresh = replace(planned, first_launch=job.launch, launches_left=job.launches_left)
            if job.kind == "run":
                end = await run_trial(run, fresh, crew, self._stop)
            elif job.kind == "left":
                end = await take_over(run, replace(fresh, left=True), crew, self._stop)
            else:
                end = await self._grade(run, planned, job, crew)
            self._finish(Ended.of(end))
            self._ended(end)
        except OrchestrateError as error:
            self._finish(Aborted(planned.id, Failure.of(error)))

    async def _grade(self, run: str, planned: PlannedTrial, job: Job, crew: Crew) -> TrialEnd:
        launches: Mapping[int, Outcome] = {
            outcome.launch: outcome
            for outcome in (await load_committed(crew.store, run, planned.id)).outcomes[planned.id]
        }
        outcome = launches[job.launch]
        return TrialEnd(trial=planned.id, outcome=outcome, verdict=await grade(run, planned, outcome, crew))

    def _finish(self, event: Ended | Aborted) -> None:
        """Let go of a trial and tell its end: both or neither is in a report."""
        self._holds.pop(event.trial, None)
        self._outbox.add(event)
        self._due.set()

    # --- Observer ----------------------------------------------------------------------------------------------------------------------

    def begins(self, planned: int, before: int) -> None:
        """The driver knows."""

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """Tell it with the next report."""
        self._outbox.add(PhaseEntered(trial, phase))

    def waits(self, trial: TrialId, why: str) -> None:
        """Tell it with the next report."""
        self._outbox.add(Waits(trial, why))

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """Tell it now: it may be the last one that the run bears."""
        self._outbox.add(LaunchFailed(trial, launch, cause, message))
        self._due.set()

    def ended(self, end: TrialEnd) -> None:
        """Told by the work itself."""

    # --- Allowance ---------------------------------------------------------------------------------------------------------------------

    async def reserve(self, planned: PlannedTrial, launch: int) -> None:
        """Ask the coordinator, which has the purse. Raises as ``Allowance`` says, and LeaseLostError when this process was replaced."""
        refused = await self._line.reserve(self._index, self.name, planned.id, launch)
        if refused is not None:
            raise refused.error()

    async def settle(self, outcome: Outcome) -> None:
        """Tell what a launch did cost, with the next report: most runs have no limit, and the trial's end is near."""
        self._outbox.add(LaunchSettled(outcome.to_bytes()))

    async def forfeit(self, trial: TrialId, launch: int) -> None:
        """Tell that nobody will say what a launch did cost, with the next report."""
        self._outbox.add(LaunchForfeited(trial, launch))
