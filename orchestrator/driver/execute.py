"""Drive a run to its end, from whatever the store holds of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from orchestrator.driver.breaker import Breaker
from orchestrator.driver.committed import load_committed
from orchestrator.errors import InfrastructureError, SpendingLimitError
from orchestrator.interfaces import ObjectStore, PlannedTrial, TrialPool
from orchestrator.plan.trials import Remaining, all_trials, remaining
from orchestrator.records.ids import TrialId, launch_id
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
    refused: str = ""
    """What a cluster said of the first trial that it refused, which is left until a person mends that; empty when there is none."""

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
        return "failed", self.refused or "some trials could not be graded"


async def what_is_left(manifest: RunManifest, store: ObjectStore) -> Remaining:
    """Return what a run still has to do, by what the store holds."""
    committed = await load_committed(store, manifest.run)
    return remaining(manifest, committed.outcomes, committed.graded)


def nothing_left(left: Remaining) -> Execution | None:
    """Return what there is to say of a run with nothing to run or grade; None when there is something."""
    return None if left.to_run or left.to_grade else Execution(0, 0, _ids(left.given_up), None)


def _ids(trials: list[PlannedTrial]) -> tuple[TrialId, ...]:
    return tuple(trial.id for trial in trials)


async def _nothing() -> AbstractSet[str]:
    return frozenset()


async def execute(
    manifest: RunManifest,
    store: ObjectStore,
    pool: TrialPool,
    breaker: Breaker,
    left_behind: Callable[[], Awaitable[AbstractSet[str]]] = _nothing,
) -> Execution:
    """Run what is not committed, grade what is not graded.

    When a stop or a limit keeps the pool from running all, ``left_behind`` is asked which launches, by their short names, have sandboxes
    that an earlier driver made, or a process of this one that died: those are brought to their end, too, since they spend.

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
    if again.to_run and (taken := _of(manifest.run, again, await left_behind())):
        async for _ in pool.take_over(manifest, taken):
            ended += 1
        again = await what_is_left(manifest, store)
    count, lost = len(again.to_grade) + len(again.to_run), _ids(again.given_up)
    return Execution(ended, count, lost, breaker.error, limited, breaker.refused if again.to_run else "")


def _of(run: str, left: Remaining, launches: AbstractSet[str]) -> list[PlannedTrial]:
    """Return the trials whose next launch is one of these."""
    return [
        replace(planned, left=True)
        for planned in left.to_run
        if launch_id(run, planned.id, planned.first_launch) in launches
    ]
