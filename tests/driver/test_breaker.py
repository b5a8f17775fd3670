"""Ten identical failures of ours in a row pause a run; anything that works, or another cause, starts the count anew."""

from __future__ import annotations

from orchestrator.driver.breaker import LIMIT, Breaker
from orchestrator.interfaces import TrialEnd
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.usage import NOTHING_USED
from orchestrator.records.verdict import Verdict

TRIAL = TrialId("t", "a", 1)


class Silent:
    def phase(self, *_: object) -> None: ...
    def begins(self, *_: object) -> None: ...
    def launch_failed(self, *_: object) -> None: ...
    def ended(self, *_: object) -> None: ...


def result() -> TrialEnd:
    times = Times(started=0, ended=1, working_s=1, waiting_s=0)
    outcome = Outcome(
        run="r",
        trial=str(TRIAL),
        launch=1,
        outcome_class="result",
        termination_reason="completed",
        usage=NOTHING_USED,
        times=times,
        writer_id="w",
    )
    verdict = Verdict(run="r", trial=str(TRIAL), launch=1, state_sha256=None, grader_digest="d", result="failed")
    return TrialEnd(trial=TRIAL, outcome=outcome, verdict=verdict)


def fail(breaker: Breaker, cause: str, times: int) -> None:
    for launch in range(times):
        breaker.launch_failed(TRIAL, launch + 1, cause, "no space left")


def test_ten_of_one_cause_pause_and_name_it() -> None:
    breaker = Breaker(Silent())
    fail(breaker, "store", LIMIT - 1)
    assert breaker.error is None
    fail(breaker, "store", 1)
    assert breaker.error is not None
    assert breaker.error.cause == "store"
    assert "no space left" in str(breaker.error)


def test_another_cause_or_a_graded_trial_starts_anew() -> None:
    breaker = Breaker(Silent())
    fail(breaker, "store", LIMIT - 1)
    fail(breaker, "gateway", LIMIT - 1)
    assert breaker.error is None
    breaker.ended(result())
    fail(breaker, "gateway", 1)
    assert breaker.error is None
