"""The coordinator: hands out trials, holds the purse and the stop flag, gathers what happens for the driver.

It keeps nothing that is not in the store or with the supervisors, so it may be killed and made again at any instant: ``begin`` waits until
every supervisor has said what it holds, reads the store after that, and goes by both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from orchestrator.driver.breaker import LOST, Breaker
from orchestrator.driver.committed import load_committed, load_end
from orchestrator.driver.ray.floor import Floor
from orchestrator.driver.ray.messages import (
    Aborted,
    Batch,
    Ended,
    Event,
    Failure,
    Job,
    LaunchFailed,
    LaunchForfeited,
    LaunchSettled,
    Orders,
    PhaseEntered,
    Report,
)
from orchestrator.driver.ray.outbox import Outbox
from orchestrator.errors import LeaseLostError, OrchestrateError, SpendingLimitError
from orchestrator.interfaces import Allowance, ObjectStore, Phase, PlannedTrial, TrialEnd
from orchestrator.plan.trials import Remaining, all_trials, remaining
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.trial.lost import Undertaker

_POLL_SECONDS = 1.0
"""How long a call of the driver is held while nothing happens: how soon a stop is heard."""
_BATCH = 200
"""Events in one answer."""
Kind = Literal["run", "left", "grade"]
"""What a pool does at the moment: the methods of TrialPool."""


class Coordinator:
    """Serves ``report`` and ``reserve`` to supervisors, ``begin`` and ``poll`` to the driver. All in one event loop."""

    def __init__(
        self,
        name: str,
        manifest: RunManifest,
        store: ObjectStore,
        undertaker: Undertaker,
        allowance: Allowance,
        supervisors: int,
        *,
        adopts: bool = False,
    ) -> None:
        """``adopts``: sandboxes outlive the process that made them, so whoever is given a dead one's trial goes on with its launch."""
        self.name = name
        self._adopts = adopts
        self._manifest = manifest
        self._store = store
        self._undertaker = undertaker
        self._allowance = allowance
        self._planned = {planned.id: planned for planned in all_trials(manifest)}
        self._outbox = Outbox(name)
        self._breaker = Breaker(_Unheard())
        self._floor = Floor(supervisors)
        self._waiting: deque[Job] = deque()
        self._open: set[TrialId] = set()
        """Trials of this call of the pool that have not ended."""
        self._recovering: dict[TrialId, asyncio.Task[None]] = {}
        self._allowed: set[tuple[TrialId, int]] = set()
        """Launches that a supervisor was allowed to start."""
        self._allowed_all = False
        """Whether no coordinator before this one can have allowed any."""
        self._begun = False
        self._kind: Kind = "run"
        self._stop = False
        self._stopped_before = False
        """Whether it was stopped before it began with what it does."""
        self._failed: OrchestrateError | None = None

    async def begin(self, kind: Kind, trials: Iterable[TrialId], *, again: bool, stop: bool = False) -> str:
        """Take these trials on, once every supervisor was met, and return the name of this coordinator.

        ``again``: an earlier coordinator did so before. ``stop``: as for ``poll``. Raises StoreError, and GatewayError when ``again``.
        """
        self._begun, self._open, self._failed = False, set(trials), None
        self._allowed_all = self._allowed_all or not again
        self._stop = self._stop or stop
        self._kind, self._stopped_before = kind, self._stop
        self._waiting.clear()
        await self._floor.all_met()
        left = await self._left(self._open)
        idle = self._open - self._floor.held() - set(self._recovering)
        if again and not self._adopts:
            idle -= await self._bury_unnoticed([planned for planned in left.to_run if planned.id in idle])
        idle -= {job.trial for job in self._waiting}  # what came back meanwhile
        jobs = [job for job in _jobs(left, kind) if job.trial in idle]
        self._waiting.extend(jobs)
        for trial in sorted(idle - {job.trial for job in jobs}):
            await self._tell_end(trial)
        self._begun = True
        return self.name

    async def poll(self, after: int, *, stop: bool) -> Batch:
        """Return what happened since event ``after``; wait a moment for something to happen."""
        self._stop = self._stop or stop
        self._outbox.forget(after)
        if not self._outbox.waiting and not self._over:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._outbox.filled.wait(), _POLL_SECONDS)
        events = self._outbox.first(_BATCH)
        over = self._over and len(events) == self._outbox.waiting
        failure = Failure.of(self._failed) if over and self._failed is not None else None
        return Batch(coordinator=self.name, events=events, last=after + len(events), over=over, failure=failure)

    async def report(self, report: Report) -> Orders:
        """Take a supervisor's report and give it work, as far as it has room."""
        arrival = self._floor.arrive(report)
        seat = arrival.seat
        if seat is None:
            return Orders(coordinator=self.name, replaced=True)
        for trial in arrival.lost:
            self._recover(trial)
        if arrival.stale:
            return Orders(coordinator=self.name, stop=self._stop)
        fresh = seat.new_events(report)  # all of this without a pause: a later report must find it done
        for numbered in fresh:
            seat.note(numbered.event)
            self._outbox.forward(numbered)
            self._note(numbered.event)
        self._waiting.extendleft(seat.reconcile(report))
        jobs: list[Job] = []
        while self._begun and self._waiting and not self._halted and len(jobs) < report.free:
            jobs.append(self._waiting.popleft())
        seat.holds.update({job.trial: job for job in jobs})
        for numbered in fresh:
            await self._account(numbered.event)
        return Orders(coordinator=self.name, jobs=tuple(jobs), stop=self._stop)

    async def reserve(self, index: int, name: str, trial: TrialId, launch: int) -> Failure | None:
        """Let a supervisor start a launch, once the purse has what it may cost. Returns why not.

        A supervisor that was replaced starts nothing more: what it held is handed out anew.
        """
        await self._floor.met(index)
        try:
            self._check_seated(index, name)
            await self._allowance.reserve(replace(self._planned[trial], left=self._kind == "left"), launch)
            try:
                self._check_seated(index, name)
            except LeaseLostError:
                await self._allowance.forfeit(trial, launch)
                raise
        except OrchestrateError as error:
            return Failure.of(error)
        self._allowed.add((trial, launch))
        return None

    @property
    def _over(self) -> bool:
        busy = bool(self._floor.held() or self._recovering) or (bool(self._waiting) and not self._halted)
        return self._begun and not busy

    @property
    def _halted(self) -> bool:
        """Whether nothing more is begun. What was left by others is taken over in any case but an error that ends the run."""
        if self._kind == "left":
            return self._failed is not None
        stopped = self._stop and not (self._kind == "grade" and self._stopped_before)
        return stopped or self._failed is not None or self._breaker.error is not None

    def _check_seated(self, index: int, name: str) -> None:
        if not self._floor.is_seated(index, name):
            msg = f"supervisor {index} was given up for dead and another has its work; this one ends"
            raise LeaseLostError(msg)

    async def _left(self, trials: Iterable[TrialId]) -> Remaining:
        """Return what the store says is left of these trials."""
        chosen = set(trials)
        one = next(iter(chosen)) if len(chosen) == 1 else None
        committed = await load_committed(self._store, self._manifest.run, one)
        left = remaining(self._manifest, committed.outcomes, committed.graded)
        return Remaining(
            [planned for planned in left.to_run if planned.id in chosen],
            [(planned, outcome) for planned, outcome in left.to_grade if planned.id in chosen],
            [planned for planned in left.given_up if planned.id in chosen],
        )

    # --- events ----------------------------------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._outbox.add(event)
        self._note(event)

    async def _account(self, event: Event) -> None:
        match event:
            case LaunchSettled(outcome):
                await self._allowance.settle(Outcome.from_bytes(outcome))
            case LaunchForfeited(trial, launch):
                await self._allowance.forfeit(trial, launch)

    def _note(self, event: Event) -> None:
        match event:
            case PhaseEntered(trial, phase):
                self._breaker.phase(trial, phase)
            case LaunchFailed(trial, launch, cause, message):
                self._breaker.launch_failed(trial, launch, cause, message)
            case Ended(trial):
                self._open.discard(trial)
                self._breaker.ended(event.read())
            case Aborted(_, failure):
                self._fail(failure.error())

    def _fail(self, error: OrchestrateError) -> None:
        """Start nothing more. A limit lets what runs go on; with any other error it is stopped, frozen and kept."""
        limited = isinstance(error, SpendingLimitError)
        if self._failed is None or (isinstance(self._failed, SpendingLimitError) and not limited):
            self._failed = error
        self._stop = self._stop or not limited

    async def _tell_end(self, trial: TrialId) -> None:
        """Tell of a trial that is at its end in the store."""
        end = await load_end(self._store, self._manifest.run, trial)
        if end is not None:
            self._tell(Ended.of(end))

    # --- what a dead supervisor held ---------------------------------------------------------------------------------------------------

    def _recover(self, trial: TrialId) -> None:
        if trial not in self._recovering:
            task = self._recovering[trial] = asyncio.create_task(self._recovered(trial))
            task.add_done_callback(lambda _: self._recovering.pop(trial))

    async def _recovered(self, trial: TrialId) -> None:
        """Close the launch that ran, if one may have and its sandbox died with it, and hand the trial out again, or tell its end."""
        try:
            left = await self._left([trial])
            for planned in [each for each in left.to_run if not self._adopts and self._may_have_started(each)]:
                await self._bury(planned)
                left = await self._left([trial])
            jobs = _jobs(left, "left" if self._kind == "left" else "run")
            self._waiting.extendleft(jobs)
            if not jobs:
                await self._tell_end(trial)
        except OrchestrateError as error:
            self._fail(error)

    def _may_have_started(self, planned: PlannedTrial) -> bool:
        """Return whether the trial's next launch may have begun. One that still waited for its turn or for money has cost nothing."""
        return not self._allowed_all or (planned.id, planned.first_launch) in self._allowed

    async def _bury(self, planned: PlannedTrial) -> None:
        message = "the process that ran it was killed or lost its connection"
        outcome = await self._undertaker.bury(planned, LOST, message)
        await self._allowance.settle(outcome)
        if outcome.cause == LOST:
            self._tell(LaunchFailed(planned.id, planned.first_launch, LOST, message))

    async def _bury_unnoticed(self, trials: list[PlannedTrial]) -> set[TrialId]:
        """Recover the trials whose supervisor died together with the coordinator before this one: the gateway knows their launch."""
        found: set[TrialId] = set()
        for planned in trials:
            if await self._undertaker.knows(planned):
                self._recover(planned.id)
                found.add(planned.id)
        return found


class _Unheard:
    """An observer for the breaker alone: the driver's own observers hear the events."""

    def begins(self, planned: int, before: int) -> None:
        """Nothing to do."""

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """Nothing to do."""

    def waits(self, trial: TrialId, why: str) -> None:
        """Nothing to do."""

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """Nothing to do."""

    def ended(self, end: TrialEnd) -> None:
        """Nothing to do."""


def _jobs(left: Remaining, kind: Kind) -> list[Job]:
    """Return what is to be done, grading first: it brings trials to their end."""
    jobs = [Job.to_grade(planned, outcome) for planned, outcome in left.to_grade]
    return jobs if kind == "grade" else jobs + [Job.to_run(planned, kind) for planned in left.to_run]
