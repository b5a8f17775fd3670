"""Checks that read what an agent wrote: one limited child evaluates all of them for a trial."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

from pydantic import Field, JsonValue, ValidationError

from grader_service.checks.case import Case, Ending, LimitedJob, PermanentError, Tools
from orchestrator.records.base import Record
from orchestrator.records.verdict import CheckResult, GradingError
from orchestrator.spec.bundle import SEED
from orchestrator.spec.checks import (
    DbGoalCheck,
    DiffCheck,
    FilesCheck,
    NoIrreversibleWithoutApproval,
    OutboxCheck,
    PathsUnchanged,
    PublicApiUnchanged,
    RowsUnchanged,
    SqlCheck,
)

WorldCheck = DbGoalCheck | OutboxCheck | RowsUnchanged | NoIrreversibleWithoutApproval
LimitedCheck = FilesCheck | DiffCheck | SqlCheck | PathsUnchanged | PublicApiUnchanged | WorldCheck

log = logging.getLogger("grader_service")


class _Result(Record):
    passed: bool | None
    expected: JsonValue
    actual: JsonValue
    evidence: tuple[str, ...] = Field(max_length=21)
    problem: str | None
    seconds: float


class _Answer(Record):
    results: tuple[_Result, ...] = ()
    evidence: str | None = None


async def run_limited(checks: Sequence[LimitedCheck], case: Case, tools: Tools) -> list[CheckResult]:
    """Evaluate the checks, in order.

    Raises SandboxError when no child could be made, PermanentError when the state contradicts itself or the child breaks.
    """
    if not checks:
        return []
    if case.state is None:
        return [without_state(check.id, check.type) for check in checks]
    end = await tools.limited.run(_job(checks, case, case.state, tools))
    if end.answer is None:
        log.warning("a limited child ended with %s (%s): %r", end.ending.exit, end.ending.cause, end.output[-500:])
        return [_unread(check, end.ending) for check in checks]
    answer = _parse(end.answer)
    if answer.evidence is not None:
        raise PermanentError(GradingError(type="evidence", message=answer.evidence[:500]))
    if len(answer.results) != len(checks):
        raise PermanentError(
            GradingError(
                type="integrity", message="the limited child answered another number of checks than it was asked"
            )
        )
    for check, result in zip(checks, answer.results, strict=True):
        if result.problem is not None:
            raise PermanentError(GradingError(type="check", message=f"check {check.id}: {result.problem}"))
    return [_result(check, result) for check, result in zip(checks, answer.results, strict=True)]


async def prove_state(case: Case, state: Path, tools: Tools) -> None:
    """Put the frozen workspace together where no process of the agent's can be.

    Raises PermanentError when the state contradicts itself, SandboxError.
    """
    end = await tools.limited.run(_job((), case, state, tools))
    if end.answer is not None and (problem := _parse(end.answer).evidence) is not None:
        raise PermanentError(GradingError(type="evidence", message=problem[:500]))


def without_state(name: str, kind: str) -> CheckResult:
    """Return the result of a check that needs a frozen state where the launch left none."""
    line = "the launch left no state to look at"
    return CheckResult(id=name, type=kind, passed=False, actual="no state", evidence=(line,))


def _parse(data: bytes) -> _Answer:
    try:
        return _Answer.model_validate_json(data)
    except ValidationError as error:
        message = f"the limited child's answer cannot be read ({error.error_count()} problems)"
        raise PermanentError(GradingError(type="integrity", message=message)) from error


def _unread(check: LimitedCheck, ending: Ending) -> CheckResult:
    """A child that a limit ended has met something built to end it; any other silence is our own mistake."""
    if ending.cause == "exited":
        code = ending.exit.code if ending.exit.code is not None else f"signal {ending.exit.signal}"
        raise PermanentError(
            GradingError(type="integrity", message=f"the limited child ended with {code} and no answer")
        )
    line = f"what was left could not be read within the grader's limits ({ending.cause})"
    return CheckResult(id=check.id, type=check.type, passed=False, actual=ending.cause, evidence=(line,))


def _result(check: LimitedCheck, result: _Result) -> CheckResult:
    return CheckResult(
        id=check.id,
        type=check.type,
        passed=result.passed,
        expected=result.expected,
        actual=result.actual,
        evidence=result.evidence,
        seconds=result.seconds,
    )


def _job(checks: Sequence[LimitedCheck], case: Case, state: Path, tools: Tools) -> LimitedJob:
    hidden, pristine = case.graders / "hidden", case.sandbox / "workspace"
    return LimitedJob(
        name=f"{case.name}-checks",
        checks=[_told(check, case, tools.settings.check_seconds) for check in checks],
        state=state,
        pristine=pristine if pristine.is_dir() else None,
        hidden=hidden if hidden.is_dir() else None,
        state_bytes=case.state_bytes,
        packages=_packages(checks),
        lay=not checks,
        check_seconds=tools.settings.check_seconds,
        check_memory_bytes=tools.settings.check_memory_bytes,
    )


def _told(check: LimitedCheck, case: Case, seconds: int) -> dict[str, JsonValue]:
    """Return a check as the child gets it: those that compare with the beginning with what makes it."""
    told: dict[str, JsonValue] = check.model_dump(mode="json")
    if isinstance(check, DbGoalCheck | RowsUnchanged):
        seed, now = case.graders / SEED, case.task.environment.now
        told["seed"] = seed.read_text(encoding="utf-8") if seed.is_file() else None
        told["seconds"] = seconds / 4  # for seed and goal each: they end before the check's own time does
        told["now"] = None if now is None else now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return told


def _packages(checks: Sequence[LimitedCheck]) -> tuple[str, ...]:
    names: list[str] = []
    if any(isinstance(check, PublicApiUnchanged) for check in checks):
        names.append("griffe")
    if any(isinstance(check, FilesCheck) and _is_yaml(check) for check in checks):
        names.append("ruamel")
    return tuple(names)


def _is_yaml(check: FilesCheck) -> bool:
    return bool(check.values) and (
        check.format == "yaml" or (check.format is None and check.path.endswith((".yaml", ".yml")))
    )
