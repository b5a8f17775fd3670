"""Prove that the tasks of a suite measure something."""

from __future__ import annotations

from pathlib import Path

from orchestrator.driver.local import Stopper
from orchestrator.driver.order import Order, load_order, select
from orchestrator.driver.proof import TaskProof, prove
from orchestrator.driver.single import run_order
from orchestrator.settings import Settings
from orchestrator.spec.load import load_suite


async def validate_suite(
    folder: Path, patterns: tuple[str, ...], settings: Settings, stopper: Stopper
) -> list[TaskProof]:
    """Run oracle, nop and every wrong solution once and compare with what the authors say.

    Raises SpecError for files that cannot be used and InfrastructureError when the machine does not carry the run.
    """
    names = sorted({name for task in select(load_suite(folder), patterns) for name in task.wrong})
    agents = ("oracle", "nop", *names)
    order = Order(suite=folder, agents=agents, samples=1, tasks=patterns)
    loaded = load_order(order)
    _, ends = await run_order(order, loaded, settings, stopper)
    by_trial = {(end.trial.task, end.trial.agent): end for end in ends}
    return [prove(task, {agent: by_trial.get((task.task.id, agent)) for agent in agents}) for task in loaded.tasks]
