"""What the trials of a validation prove of one task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.driver.order import final_checked
from orchestrator.interfaces import TrialEnd
from orchestrator.records.verdict import CheckResult, TrialResult, trial_result
from orchestrator.spec.loaded import LoadedTask

_HAPPENED: dict[TrialResult, str] = {
    "passed": "it passed",
    "abstained": "it ended without completing the task",
    "infra": "it was lost for our reasons",
    "cancelled": "it was stopped",
    "missing": "it was not run",
}


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


@dataclass(frozen=True)
class Fault:
    """One reason why a task measures nothing yet."""

    agent: str
    """Who shows it: ``oracle``, ``nop`` or ``wrong/NAME``."""
    message: str
    """What is wrong, in one sentence."""
    details: tuple[str, ...] = ()
    """What the grader saw, a line for each failed check. An agent's program may have written them."""

    def __str__(self) -> str:
        return "; ".join((self.message, *self.details))


@dataclass
class TaskProof:
    """What was proved of a task. It is valid when there are no faults."""

    task: str
    oracle: TrialResult = "missing"
    nop: TrialResult = "missing"
    wrong: list[WrongProof] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the task measures something."""
        return not self.faults

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
            "problems": [str(fault) for fault in self.faults],
        }


def prove(loaded: LoadedTask, ends: Mapping[str, TrialEnd | None]) -> TaskProof:
    """Compare how ``oracle``, ``nop`` and each wrong solution ended with what the author of the task says."""
    proof = TaskProof(loaded.task.id)
    results = {agent: _result(loaded, end) for agent, end in ends.items()}
    proof.oracle, proof.nop = results["oracle"], results["nop"]
    judge = _Judge(proof, ends, results)
    if proof.oracle != "passed":
        judge.blame("oracle", "the reference solution", "must pass")
    if proof.nop != "failed":
        judge.blame("nop", "doing nothing", "must fail", ": the checks ask for no work")
    for agent, named in sorted(loaded.wrong.items()):
        failed = tuple(check.id for check in _failed(ends[agent]))
        name = agent.removeprefix("wrong/")
        proof.wrong.append(WrongProof(name, results[agent], failed))
        missed = [check for check in named if check not in failed]
        if results[agent] not in {"failed", "abstained"}:
            judge.blame(agent, f"the wrong solution {name!r}", "must fail")
        elif missed:
            judge.blame(agent, f"the wrong solution {name!r}", f"must fail by {_named(missed)}")
    return proof


class _Judge:
    """Puts faults into words; the grader's own error is told once for each task."""

    def __init__(
        self, proof: TaskProof, ends: Mapping[str, TrialEnd | None], results: Mapping[str, TrialResult]
    ) -> None:
        self._proof = proof
        self._ends = ends
        self._results = results
        self._told: set[str] = set()

    def blame(self, agent: str, who: str, must: str, moral: str = "") -> None:
        """Note that this agent did not end as it must."""
        end, result = self._ends[agent], self._results[agent]
        if result == "grader_error":
            message, details = f"{who} could not be graded", self._grader_error(end)
        else:
            details = tuple(_seen(check) for check in _failed(end))
            message = f"{who} {must}, but {_happened(result, end)}{moral if result == 'passed' else ''}"
        if end is not None and end.outcome.error:
            details = (*details, end.outcome.error)
        self._proof.faults.append(Fault(agent, message, details))

    def _grader_error(self, end: TrialEnd | None) -> tuple[str, ...]:
        error = None if end is None or end.verdict is None else end.verdict.error
        if error is None or error.message in self._told:
            return ()
        self._told.add(error.message)
        return (error.message,)


def _result(loaded: LoadedTask, end: TrialEnd | None) -> TrialResult:
    if end is None:
        return "missing"
    return trial_result(loaded.task.expect, end.outcome, end.verdict, final_checked(loaded.task))


def _failed(end: TrialEnd | None) -> list[CheckResult]:
    if end is None or end.verdict is None:
        return []
    return [check for check in (*end.verdict.checks, *end.verdict.invariants) if check.passed is False]


def _happened(result: TrialResult, end: TrialEnd | None) -> str:
    failed = [check.id for check in _failed(end)]
    words = _HAPPENED.get(result) or (f"it failed by {_named(failed)}" if failed else f"it {result}")
    if result == "failed" and not failed:
        words = "it ended in another way than the task expects"
    if end is None or end.outcome.termination_reason == "completed":
        return words
    return f"{words} (it ended as {end.outcome.termination_reason})"


def _seen(check: CheckResult) -> str:
    """Return a failed check with the first thing that was noted of it."""
    lines = [line.strip() for text in check.evidence for line in text.splitlines() if line.strip()]
    if lines:
        return f"{check.id}: {lines[0]}"
    return f"{check.id}: expected {check.expected}, actual {check.actual}"


def _named(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
