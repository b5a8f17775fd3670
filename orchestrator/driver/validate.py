"""Prove that the tasks of a suite measure something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.driver.inline import InlinePool
from orchestrator.driver.order import Order, load_order, select
from orchestrator.driver.single import run_order
from orchestrator.interfaces import TrialEnd
from orchestrator.records.verdict import TrialResult, trial_result
from orchestrator.settings import Settings
from orchestrator.spec.load import load_suite
from orchestrator.spec.loaded import LoadedTask


@dataclass(frozen=True)
class WrongProof:
    """What a wrong solution came to."""

    name: str
    """Without ``wrong/``."""
    result: TrialResult
    failed_checks: tuple[str, ...]
    """Checks and invariants that failed."""

    def words(self) -> str:
        """Return ``failed by a, b`` or the bare result."""
        return f"{self.result} by {', '.join(self.failed_checks)}" if self.failed_checks else self.result


@dataclass
class TaskProof:
    """What was proved of a task. It is valid when there are no problems."""

    task: str
    oracle: TrialResult = "missing"
    nop: TrialResult = "missing"
    wrong: list[WrongProof] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the task measures something."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """Return the published form."""
        wrong = [
            {"name": item.name, "result": item.result, "failed_checks": list(item.failed_checks)} for item in self.wrong
        ]
        return {
            "task": self.task,
            "ok": self.ok,
            "oracle": self.oracle,
            "nop": self.nop,
            "wrong": wrong,
            "problems": self.problems,
        }


async def validate_suite(
    folder: Path, patterns: tuple[str, ...], settings: Settings, on_pool: Callable[[InlinePool], None]
) -> list[TaskProof]:
    """Run oracle, nop and every wrong solution once and compare with what the authors say.

    Raises SpecError for files that cannot be used and InfrastructureError when the machine does not carry the run.
    """
    names = sorted({name for task in select(load_suite(folder), patterns) for name in task.wrong})
    agents = ("oracle", "nop", *names)
    order = Order(suite=folder, agents=agents, samples=1, tasks=patterns)
    loaded = load_order(order)
    _, ends = await run_order(order, loaded, settings, on_pool)
    by_trial = {(end.trial.task, end.trial.agent): end for end in ends}
    return [_proof(task, {agent: by_trial.get((task.task.id, agent)) for agent in agents}) for task in loaded.tasks]


def _proof(loaded: LoadedTask, ends: dict[str, TrialEnd | None]) -> TaskProof:
    proof = TaskProof(loaded.task.id)
    proof.oracle = _result(loaded, ends["oracle"], proof)
    proof.nop = _result(loaded, ends["nop"], proof)
    if proof.oracle != "passed":
        proof.problems.append(f"the reference solution must pass: {_why(proof.oracle, ends['oracle'])}")
    if proof.nop != "failed":
        proof.problems.append(f"doing nothing must fail, it {proof.nop}: the checks do not ask for any work")
    for name, named in sorted(loaded.wrong.items()):
        end = ends[name]
        result = _result(loaded, end, proof)
        failed = _failed(end)
        proof.wrong.append(WrongProof(name.removeprefix("wrong/"), result, failed))
        if result not in {"failed", "abstained"}:
            proof.problems.append(f"{name.replace('/', '-')} must fail: {_why(result, end)}")
        elif missing := [check for check in named if check not in failed]:
            proof.problems.append(f"{name.replace('/', '-')} says that it fails {', '.join(missing)}, which passed")
    return proof


def _result(loaded: LoadedTask, end: TrialEnd | None, proof: TaskProof) -> TrialResult:
    from orchestrator.driver.order import final_checked

    if end is None:
        return "missing"
    if end.outcome.error:
        proof.problems.append(f"{end.trial}: {end.outcome.error}")
    return trial_result(loaded.task.expect, end.outcome, end.verdict, final_checked(loaded.task))


def _failed(end: TrialEnd | None) -> tuple[str, ...]:
    if end is None or end.verdict is None:
        return ()
    return tuple(check.id for check in (*end.verdict.checks, *end.verdict.invariants) if check.passed is False)


def _why(result: TrialResult, end: TrialEnd | None) -> str:
    """Return why, in one line: the ending, the checks that failed, the grader's error."""
    words = [f"it {result}"]
    if end is not None:
        words.append(f"ended as {end.outcome.termination_reason}")
        words += [f"failed {check}" for check in _failed(end)]
        if end.verdict is not None and end.verdict.error is not None:
            words.append(end.verdict.error.message)
    return ", ".join(words)
