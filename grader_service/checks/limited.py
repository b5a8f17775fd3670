"""Checks that read what an agent wrote: one limited child evaluates all of them for a trial."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, ValidationError

from grader_service.checks.case import Case, Ending, PermanentError, Tools, run_to_end
from grader_service.programs import LIB, PACKAGES, packages_of
from orchestrator.interfaces import Input, SandboxLimits, SandboxSpec
from orchestrator.records.base import Record
from orchestrator.records.verdict import CheckResult, GradingError
from orchestrator.spec.checks import DiffCheck, FilesCheck, PathsUnchanged, PublicApiUnchanged, SqlCheck

LimitedCheck = FilesCheck | DiffCheck | SqlCheck | PathsUnchanged | PublicApiUnchanged

log = logging.getLogger("grader_service")

_PROGRAM = f"import sys; sys.path.insert(0, {LIB!r}); from grader_service.child.main import main; main()"


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
    ending, frozen = await run_to_end(tools.backend, _spec(checks, case, case.state, tools))
    if frozen.final is None:
        log.warning("a limited child ended with %s (%s): %r", ending.exit, ending.cause, frozen.output[-500:])
        return [_unread(check, ending) for check in checks]
    answer = _parse(frozen.final)
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
    _, frozen = await run_to_end(tools.backend, _spec((), case, state, tools))
    if frozen.final is not None and (problem := _parse(frozen.final).evidence) is not None:
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


def _spec(checks: Sequence[LimitedCheck], case: Case, state: Path, tools: Tools) -> SandboxSpec:
    settings = tools.settings
    packages = _packages(checks)
    job: dict[str, Any] = {
        "state": "/grader/state",
        "pristine": "/grader/pristine",
        "hidden": "/grader/hidden",
        "root": "/workspace/frozen",
        "limit_bytes": case.state_bytes,
        "packages": [PACKAGES] if packages else [],
        "checks": [check.model_dump(mode="json") for check in checks],
        "lay": not checks,
        "seconds": settings.check_seconds,
        "memory_bytes": settings.check_memory_bytes,
    }
    inputs = [
        Input(source=tools.programs.lib, target=LIB),
        Input(source=state, target="/grader/state"),
        *case.pristine(),
    ]
    if (case.graders / "hidden").is_dir():
        inputs.append(Input(source=case.graders / "hidden", target="/grader/hidden"))
    return SandboxSpec(
        name=f"{case.name}-checks",
        command=("python3", "-I", "-S", "-c", _PROGRAM),
        limits=SandboxLimits(
            cpu=1,
            memory_bytes=2 * settings.check_memory_bytes,
            disk_bytes=case.state_bytes + (256 << 20),
            processes=32,
            wall_seconds=settings.check_seconds * 2 * len(checks) + 60,
            output_bytes=8192,
        ),
        stdin=json.dumps(job).encode(),
        inputs=tuple(inputs),
        requires=("python3",),
        packages=packages,
    )


def _packages(checks: Sequence[LimitedCheck]) -> tuple[Path, ...]:
    names: list[str] = []
    if any(isinstance(check, PublicApiUnchanged) for check in checks):
        names.append("griffe")
    if any(isinstance(check, FilesCheck) and _is_yaml(check) for check in checks):
        names.append("ruamel")
    return packages_of(names, sys.path)


def _is_yaml(check: FilesCheck) -> bool:
    return bool(check.values) and (
        check.format == "yaml" or (check.format is None and check.path.endswith((".yaml", ".yml")))
    )
