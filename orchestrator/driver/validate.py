"""Prove that the tasks of a suite measure something."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orchestrator.driver.committed import load_end
from orchestrator.driver.local import Stopper
from orchestrator.driver.order import Loaded, Order, load_order, select
from orchestrator.driver.proof import TaskProof, prove
from orchestrator.driver.single import run_order
from orchestrator.interfaces import ObjectStore, TrialEnd
from orchestrator.plan.trials import all_trials
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings
from orchestrator.spec.load import load_suite


async def validate_suite(
    folder: Path, patterns: tuple[str, ...], settings: Settings, stopper: Stopper
) -> list[TaskProof]:
    """Run oracle, nop and every wrong solution once and compare with what the authors say.

    Raises SpecError for files that cannot be used and InfrastructureError when the machine does not carry the run.
    """
    order = validation(folder, patterns)
    loaded = load_order(order)
    _, ends = await run_order(order, loaded, settings, stopper)
    return proofs(order, loaded, ends)


def validation(folder: Path, patterns: tuple[str, ...]) -> Order:
    """Return the order of a suite's validation: oracle, nop and every wrong solution once. Raises SpecError."""
    names = sorted({name for task in select(load_suite(folder), patterns) for name in task.wrong})
    return Order(suite=folder, agents=("oracle", "nop", *names), samples=1, tasks=patterns)


def proofs(order: Order, loaded: Loaded, ends: Iterable[TrialEnd]) -> list[TaskProof]:
    """Compare how the trials of a validation ended with what the authors say, task by task."""
    by_trial = {(end.trial.task, end.trial.agent): end for end in ends}
    return [
        prove(task, {agent: by_trial.get((task.task.id, agent)) for agent in order.agents}) for task in loaded.tasks
    ]


async def kept_ends(store: ObjectStore, manifest: RunManifest) -> list[TrialEnd]:
    """Return how the trials of a validation ended that a Job has driven. Raises StoreError."""
    found = [await load_end(store, manifest.run, planned.id) for planned in all_trials(manifest)]
    return [end for end in found if end is not None]
