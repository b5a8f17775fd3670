"""Drive a run to its end, from whatever the store holds of it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.driver.breaker import Breaker
from orchestrator.driver.committed import load_committed
from orchestrator.errors import InfrastructureError, SpendingLimitError
from orchestrator.interfaces import ObjectStore, PlannedTrial, TrialPool
from orchestrator.plan.trials import Remaining, all_trials, remaining
from orchestrator.records.ids import TrialId
from orchestrator.records.lease import ReleaseReason
from orchestrator.records.manifest import RunManifest


@dataclass(frozen=True)
class Execution:
    """What this process did for the run."""

    ended: int
    """Trials that it brought to an end."""
    left: int
    """Trials that are still to be run or graded: resume goes on with them."""
    lost: tuple[TrialId, ...]
    """Trials of the run whose launches all failed on our side."""
    paused: InfrastructureError | None
    """The failure that paused the run, if one did."""
    limited: SpendingLimitError | None = None
    """Set when the run's spending limit did not allow another launch."""

    def why_released(self, stopped_by: str | None) -> tuple[ReleaseReason, str]:
        """Return why this driver lets the run go, and more of it for a person; ``stopped_by`` says who asked it to stop, if anybody did."""
        if not self.left:
            return "ended", ""
        if stopped_by is not None:
            return "stopped", f"by {stopped_by}"
        if self.limited is not None:
            return "limit", str(self.limited)
        if self.paused is not None:
            return "paused", str(self.paused)
        return "failed", "some trials could not be graded"


async def what_is_left(manifest: RunManifest, store: ObjectStore) -> Remaining:
    """Return what a run still has to do, by what the store holds."""
    committed = await load_committed(store, manifest.run)
    return remaining(manifest, committed.outcomes, committed.graded)


def nothing_left(left: Remaining) -> Execution | None:
    """Return what there is to say of a run with nothing to run or grade; None when there is something."""
    return None if left.to_run or left.to_grade else Execution(0, 0, _ids(left.given_up), None)


def _ids(trials: list[PlannedTrial]) -> tuple[TrialId, ...]:
    return tuple(trial.id for trial in trials)


async def execute(manifest: RunManifest, store: ObjectStore, pool: TrialPool, breaker: Breaker) -> Execution:
    """Run what is not committed, grade what is not graded.

    Raises StoreError when outcomes cannot be committed, and LeaseLostError; what was committed stays, and another call goes on from there.
    """
    left = await what_is_left(manifest, store)
    planned = len(all_trials(manifest))
    breaker.begins(planned, planned - len(left.to_grade) - len(left.to_run))
    ended, limited = 0, None
    async for _ in pool.grade(manifest, left.to_grade):
        ended += 1
    try:
        async for _ in pool.run(manifest, left.to_run):
            ended += 1
    except SpendingLimitError as error:
        limited = error
    again = await what_is_left(manifest, store)
    return Execution(ended, len(again.to_grade) + len(again.to_run), _ids(again.given_up), breaker.error, limited)
