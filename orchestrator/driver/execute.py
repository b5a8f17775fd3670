"""Drive a run to its end, from whatever the store holds of it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.driver.breaker import Breaker
from orchestrator.driver.committed import load_committed
from orchestrator.driver.inline import InlinePool
from orchestrator.errors import InfrastructureError
from orchestrator.interfaces import ObjectStore
from orchestrator.plan.trials import remaining
from orchestrator.records.manifest import RunManifest


@dataclass(frozen=True)
class Execution:
    """What this process did for the run."""

    ended: int
    """Trials that it brought to an end."""
    left: int
    """Trials that are still to be run or graded: resume goes on with them."""
    lost: int
    """Trials of the run whose launches all failed on our side."""
    paused: InfrastructureError | None
    """The failure that paused the run, if one did."""


async def execute(manifest: RunManifest, store: ObjectStore, pool: InlinePool, breaker: Breaker) -> Execution:
    """Run what is not committed, grade what is not graded.

    Raises StoreError when outcomes cannot be committed; what was committed stays, and another call goes on from there.
    """
    committed = await load_committed(store, manifest.run)
    left = remaining(manifest, committed.outcomes, committed.graded)
    ended = 0
    async for _ in pool.grade(manifest, left.to_grade):
        ended += 1
    async for _ in pool.run(manifest, left.to_run):
        ended += 1
    committed = await load_committed(store, manifest.run)
    again = remaining(manifest, committed.outcomes, committed.graded)
    return Execution(ended, len(again.to_grade) + len(again.to_run), len(again.given_up), breaker.error)
