"""Ten identical failures of ours in a row pause a run; anything that works, or another cause, starts the count anew.

A gateway or a node that goes away takes many launches along, and is one failure.
"""

from __future__ import annotations

import pytest
from made import Silent

from orchestrator.driver.breaker import LIMIT, Breaker
from orchestrator.interfaces import TrialEnd
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.usage import NOTHING_USED
from orchestrator.records.verdict import Verdict

TRIAL = TrialId("t", "a", 1)


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


TRIALS = [TrialId("t", "a", number) for number in range(1, 101)]


def begin(breaker: Breaker) -> None:
    for trial in TRIALS:
        breaker.phase(trial, "starting")


@pytest.mark.parametrize("cause", ["gateway_restarted", "node_lost", "evicted"])
def test_what_strikes_all_that_runs_is_one_failure(cause: str) -> None:
    breaker = Breaker(Silent())
    for trial in TRIALS:
        breaker.phase(trial, "starting")
        breaker.phase(trial, "running")
    for trial in TRIALS:
        breaker.launch_failed(trial, 1, cause, "it is gone")
        breaker.phase(trial, "starting")
    assert breaker.error is None


def test_what_strikes_the_next_launches_of_the_same_trials_pauses_all_the_same() -> None:
    breaker = Breaker(Silent())
    begin(breaker)
    for trial in TRIALS:
        breaker.launch_failed(trial, 1, "gateway_restarted", "it is gone")
    begin(breaker)
    for trial in TRIALS[: LIMIT - 1]:
        assert breaker.error is None
        breaker.launch_failed(trial, 2, "gateway_restarted", "it is gone")
    assert breaker.error is not None


def test_what_keeps_launches_from_starting_counts_for_each() -> None:
    breaker = Breaker(Silent())
    begin(breaker)
    for trial in TRIALS[:LIMIT]:
        assert breaker.error is None
        breaker.launch_failed(trial, 1, "policy_not_enforced", "a canary answers")
    assert breaker.error is not None


def test_an_event_after_another_cause_is_counted_anew() -> None:
    breaker = Breaker(Silent())
    begin(breaker)
    for number, trial in enumerate(TRIALS[: LIMIT - 1]):
        breaker.launch_failed(trial, 1, "image_pull" if number % 2 else "evicted", "")
    assert breaker.error is None
    for launch in range(LIMIT):
        breaker.launch_failed(TRIALS[0], launch + 2, "evicted", "")
    assert breaker.error is not None


def test_what_a_cluster_refuses_is_told_until_its_trial_has_a_result() -> None:
    breaker = Breaker(Silent())
    fail(breaker, "pod_lost", 1)
    assert breaker.refused == ""
    fail(breaker, "admission_denied", 1)
    breaker.launch_failed(TrialId("u", "a", 1), 1, "pod_security", "not this one")
    assert breaker.refused == f"{TRIAL}: no space left"
    breaker.ended(result())
    assert breaker.refused == "u@a:1: not this one"
