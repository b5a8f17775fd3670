"""What the runner reported, and what it makes of a ``command`` check. No byte of the agent decides here, only our runner's report."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Set

from pydantic import ValidationError

from grader_service.checks.case import Ending, PermanentError
from grader_service.child.assemble import shown
from orchestrator.records.base import Record
from orchestrator.records.verdict import CheckResult, GradingError
from orchestrator.spec.checks import CommandCheck

_REPORT_BYTES = 16 << 20
_LINES = 20
_LINE = 300
_OTHERS = 3
"""Tests that are named beside one that did not run."""
_IMPORT_ERRORS = ("ModuleNotFoundError: ", "ImportError: ")
_USAGE_ERROR, _NO_TESTS = 4, 5


class Report(Record):
    """Results of the tests, as the runner's plugin writes them."""

    exit_status: int
    """pytest's own exit status."""
    tests: tuple[tuple[str, str, str], ...]
    """Id relative to ``hidden/``, outcome, short message."""
    errors: tuple[tuple[str, str], ...]
    """Files that could not be collected, with the reason."""
    asked: bool
    """Whether the subject was asked anything: what went wrong after that, the agent may have caused."""


def read_report(data: bytes | None) -> Report | None:
    """Read the runner's report; None when it wrote none. Raises PermanentError when it is damaged or too large."""
    if data is None:
        return None
    try:
        unpack = zlib.decompressobj()
        text = unpack.decompress(data, _REPORT_BYTES)
        return Report.model_validate_json(text)
    except (zlib.error, ValidationError) as error:
        message = f"the report of the hidden tests cannot be read ({type(error).__name__})"
        raise PermanentError(GradingError(type="integrity", message=message)) from error


def judge(
    check: CommandCheck, ending: Ending, report: Report | None, expected: frozenset[str] | None, output: bytes
) -> CheckResult:
    """Decide the check. It passes when the command ended with 0 and, where tests are named, exactly those passed."""
    ended = _ended(ending)
    if ending.cause != "exited":
        words = (
            f"not finished within {check.timeout_seconds} s"
            if ending.cause == "wall_clock"
            else f"ended by {ending.cause}"
        )
        return _failed(check, "exit code 0", words, (words, *_tests_that_failed(report)))
    _refuse_broken(check, report, expected, output)
    if expected is not None and report is not None:
        wrong = _against(report, expected)
        passed = not wrong and ended == "exit code 0"
        good = sum(outcome == "passed" and name in expected for name, outcome, _ in report.tests)
        evidence = (*wrong, *_silent(report, output)) or (() if passed else (f"the command ended with {ended}",))
        wanted = "1 test passed" if len(expected) == 1 else f"{len(expected)} tests passed"
        return _result(check, passed, wanted, f"{good} of {len(expected)} passed", evidence)
    if ended == "exit code 0" and (check.results == "exit_code" or (report is not None and _all_good(report))):
        return _result(check, True, "exit code 0", ended, ())
    return _failed(check, "exit code 0", ended, _tests_that_failed(report) or _tail(output))


def _ended(ending: Ending) -> str:
    return f"exit code {ending.exit.code}" if ending.exit.code is not None else f"signal {ending.exit.signal}"


def _refuse_broken(check: CommandCheck, report: Report | None, expected: frozenset[str] | None, output: bytes) -> None:
    """What only the author can have caused is no result of the agent."""
    if report is None:
        if check.results == "junit" or expected is not None:
            message = (
                f"check {check.id}: the command reported no tests; with results or expect it must run pytest. "
                f"It said: {_last_words(output)}"
            )
            raise PermanentError(GradingError(type="check", message=message))
        return
    if report.asked:
        return
    if report.exit_status == _USAGE_ERROR or (report.exit_status == _NO_TESTS and expected is None):
        what = "was called wrongly" if report.exit_status == _USAGE_ERROR else "found no tests"
        message = f"check {check.id}: pytest {what} ({check.run}). It said: {_last_words(output)}"
        raise PermanentError(GradingError(type="check", message=message))


def _all_good(report: Report) -> bool:
    outcomes = Counter(outcome for _, outcome, _ in report.tests)
    return not report.errors and outcomes["passed"] > 0 and not (outcomes.keys() - {"passed", "skipped", "xfailed"})


def _against(report: Report, expected: frozenset[str]) -> tuple[str, ...]:
    outcomes = {name: (outcome, message) for name, outcome, message in report.tests}
    times = Counter(name for name, _, _ in report.tests)
    lines = [
        f"{name}: {outcome}{_colon(message)}"
        for name, (outcome, message) in sorted(outcomes.items())
        if outcome != "passed" and name in expected
    ]
    lines += [f"{name}: reported {count} times" for name, count in sorted(times.items()) if count > 1]
    lines += _not_collected(report)
    lines += _did_not_run(expected, outcomes.keys())
    lines += [
        f"{name}: {outcome}, and not expected"
        for name, (outcome, _) in sorted(outcomes.items())
        if name not in expected and outcome != "passed"
    ]
    return _short(lines)


def _tests_that_failed(report: Report | None) -> tuple[str, ...]:
    if report is None:
        return ()
    lines = [
        f"{name}: {outcome}{_colon(message)}" for name, outcome, message in sorted(report.tests) if outcome != "passed"
    ]
    return _short([*lines, *_not_collected(report)])


def _not_collected(report: Report) -> list[str]:
    """Return why files could not be collected, and a hint where a hidden test imports what it can only ask for."""
    lines = [f"{file}: could not be collected{_colon(message)}" for file, message in report.errors]
    if any(message.startswith(_IMPORT_ERRORS) for _, message in report.errors):
        lines.append("hidden tests cannot import the workspace; use `from subject import call`")
    return lines


def _did_not_run(expected: Set[str], ran: Set[str]) -> list[str]:
    """Return what is missing; the first line names what ran instead, where an id is likely misspelt."""
    missing, others = sorted(expected - ran), sorted(ran - expected)
    more = f" and {len(others) - _OTHERS} more" if len(others) > _OTHERS else ""
    instead = f"; these ran: {', '.join(others[:_OTHERS])}{more}" if others else "" if ran else "; no test ran"
    return [f"{name}: did not run{instead if index == 0 else ''}" for index, name in enumerate(missing)]


def _colon(message: str) -> str:
    return f": {' '.join(message.split())}" if message else ""


def _tail(output: bytes) -> tuple[str, ...]:
    lines = [line for line in output[-4000:].decode("utf-8", "replace").splitlines() if line.strip()]
    return _short(lines[-10:])


def _silent(report: Report, output: bytes) -> tuple[str, ...]:
    """Return what a command said that ran no test."""
    return () if report.tests or report.errors else _tail(output)


def _last_words(output: bytes) -> str:
    return " | ".join(_tail(output)[-3:]) or "nothing"


def _short(lines: list[str]) -> tuple[str, ...]:
    cut = [shown(line if len(line) <= _LINE else line[: _LINE - 1] + "…") for line in lines[:_LINES]]
    return (*cut, f"… and {len(lines) - _LINES} more") if len(lines) > _LINES else tuple(cut)


def _failed(check: CommandCheck, expected: str, actual: str, evidence: tuple[str, ...]) -> CheckResult:
    return _result(check, False, expected, actual, evidence)


def _result(check: CommandCheck, passed: bool, expected: str, actual: str, evidence: tuple[str, ...]) -> CheckResult:
    return CheckResult(id=check.id, type=check.type, passed=passed, expected=expected, actual=actual, evidence=evidence)
