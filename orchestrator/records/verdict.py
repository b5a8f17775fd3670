"""The grader's word on a trial, and what it makes of the trial in every table."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from orchestrator.records.base import Record
from orchestrator.records.outcome import Outcome
from orchestrator.records.state import EndedAs, Finding
from orchestrator.records.usage import Usage
from orchestrator.spec.task import Expect


class GradingError(Record):
    """A permanent failure of the grading, never a zero for the agent."""

    type: Literal["evidence", "integrity", "check", "config"]
    """``evidence``: bytes do not match their digests. ``integrity``: a check was tampered with. ``check``: it cannot
    run. ``config``: this version does not run it."""
    message: str
    """What, in one line, without hidden material."""


class CheckResult(Record):
    """One check or invariant."""

    id: str
    """The check's id."""
    type: str
    """The check's type."""
    gate: bool = True
    """Whether it decides the trial."""
    passed: bool | None
    """None when it could not be evaluated; then the verdict is an error."""
    expected: JsonValue = None
    """What should have been, short."""
    actual: JsonValue = None
    """What was, short."""
    evidence: tuple[str, ...] = ()
    """Lines for a person: failed tests, differing paths, output."""
    seconds: float = Field(default=0, ge=0)
    """How long it took."""


class Verdict(Record):
    """The grader's record for a trial. Written once."""

    schema_version: Literal[1] = 1
    run: str
    """Run id."""
    trial: str
    """``TASK@AGENT:N``."""
    launch: int = Field(ge=1)
    """The launch that was graded."""
    state_sha256: str | None
    """Digest of the frozen state; None when the launch left none."""
    grader_digest: str
    """Digest over graders bundle, service version and configuration."""
    grader_version: str = ""
    """Version of the service with the digest of its sources; empty in verdicts of versions that did not say it."""
    result: Literal["passed", "failed", "grader_error"]
    """What the checks say, the ending not yet considered."""
    error: GradingError | None = None
    """Why there is no result."""
    checks: tuple[CheckResult, ...] = ()
    """End-state checks, in order."""
    invariants: tuple[CheckResult, ...] = ()
    """Invariants, in order."""
    findings: tuple[Finding, ...] = ()
    """What the grader noticed."""
    judge_usage: Usage | None = None
    """What the judges' model calls used; None: not known."""


TrialResult = Literal[
    "passed", "failed", "abstained", "infra", "grader_error", "quarantined", "cancelled", "missing", "not_applicable"
]
"""The one word that every table counts. planned is their sum; passed + failed + abstained is the denominator."""


def ending_result(
    expect: Expect, ended_as: EndedAs | None, *, checks_passed: bool, final_checked: EndedAs | None
) -> TrialResult:
    """Combine what the task expects, how the agent ended and what the checks say.

    ``final_checked`` is the status that a ``final`` check of the task lists: an ending other than the expected one
    passes only if the task lists it. No ending counts as completed.
    """
    ended = ended_as or "completed"
    passed: TrialResult = "passed" if checks_passed else "failed"
    if expect == "complete":
        return passed if ended == "completed" else "abstained"
    if ended_as == "completed" or ended_as is None:
        return passed if expect == "ask_then_complete" else "failed"
    wanted: EndedAs = "declined" if expect == "decline" else "asked"
    return passed if ended_as in {wanted, final_checked} else "failed"


def has_left_recording(result: TrialResult, outcome: Outcome | None) -> bool:
    """Return whether a fail says nothing: some call had no recorded answer, so what failed may be the recording and not the agent.

    Whoever decides by such a task cannot judge it. A pass holds: the agent got there without that answer.
    """
    return result == "failed" and outcome is not None and outcome.fixture_misses > 0


def trial_result(
    expect: Expect, outcome: Outcome | None, verdict: Verdict | None, final_checked: EndedAs | None = None
) -> TrialResult:
    """Return the word for a trial from its winning outcome and its verdict.

    Quarantine and applicability are the planner's to say.
    """
    if outcome is None:
        return "missing"
    if outcome.outcome_class != "result":
        return "infra" if outcome.outcome_class == "infra" else "cancelled"
    if verdict is None:
        return "missing"
    if verdict.result == "grader_error":
        return "grader_error"
    return ending_result(
        expect, outcome.ended_as, checks_passed=verdict.result == "passed", final_checked=final_checked
    )
