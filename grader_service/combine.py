"""From single results to one word. Invariants are absolute; our own failures are never the agent's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from orchestrator.records.verdict import CheckResult, GradingError
from orchestrator.spec.checks import (
    RUNNABLE_CHECKS,
    RUNNABLE_INVARIANTS,
    AnyOfCheck,
    Check,
    CommandCheck,
)
from orchestrator.spec.task import Task, flat_checks

Word = Literal["passed", "failed", "grader_error"]


def combine(checks: Sequence[CheckResult], invariants: Sequence[CheckResult]) -> tuple[Word, GradingError | None]:
    """Return the verdict's word. Any gate that has no result makes it an error; any that failed makes it failed."""
    gates = [result for result in (*checks, *invariants) if result.gate]
    unknown = [result.id for result in gates if result.passed is None]
    if unknown:
        return "grader_error", GradingError(type="check", message=f"no result of: {', '.join(unknown)}")
    return ("passed" if gates and all(result.passed for result in gates) else "failed"), None


def group(spec: AnyOfCheck, parts: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the group's result followed by its alternatives, which do not decide by themselves. One that passes is enough."""
    passed = (
        True if any(part.passed for part in parts) else None if any(part.passed is None for part in parts) else False
    )
    words = ", ".join(f"{part.id} {'passed' if part.passed else 'failed'}" for part in parts)
    whole = CheckResult(
        id=spec.id,
        type="any_of",
        passed=passed,
        expected="at least one passes",
        actual=words,
        seconds=sum(part.seconds for part in parts),
    )
    return [whole, *(part.model_copy(update={"gate": False}) for part in parts)]


def refusals(task: Task) -> list[str]:
    """Return one sentence for each thing that this version does not grade. No check is ever skipped silently."""
    lines = []
    for check in flat_checks(task.checks):
        lines += _refused_check(check)
    lines += [
        f"invariant {i.id}: type {i.type!r} is not built yet"
        for i in task.invariants
        if i.type not in RUNNABLE_INVARIANTS
    ]
    lines += [f"trace check {t.id}: policy on the path is not built yet" for t in task.trace if t.policy]
    return lines


def _refused_check(check: Check) -> list[str]:
    if check.type not in RUNNABLE_CHECKS:
        return [f"check {check.id}: type {check.type!r} is not built yet"]
    if not isinstance(check, CommandCheck):
        return []
    lines = []
    if check.isolation != "process":
        lines.append(f"check {check.id}: isolation {check.isolation!r} is not built yet; use isolation: process")
    if check.results not in {"exit_code", "junit"}:
        lines.append(f"check {check.id}: results {check.results!r} are not built yet; use exit_code or junit")
    if check.confirm != 1:
        lines.append(f"check {check.id}: confirm above 1 is not built yet")
    return lines
