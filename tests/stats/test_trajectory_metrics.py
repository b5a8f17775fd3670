"""The nine metrics on vectors made by hand, and what holds for every trial."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.stats.trajectory import FORMS, Ending, Expected, Step, aggregate, measure, recovery, selection

ENDING = Ending(
    seen="gateway", passed=True, claimed="completed", reason="completed", steps=3, cost_nano_usd=5, working_s=1.5
)
PHASES = Expected(phases=(frozenset({"get"}), frozenset({"change", "note"}), frozenset({"tell"})))


def call(tool="shell", outcome="ok", **fields):
    return Step(**{"source": "agent", "type": "tool_call", "tool": tool, "outcome": outcome, "known": True} | fields)


def one(*steps, expected=None, form="agent", **ending):
    return measure(replace(ENDING, **ending), steps, expected or Expected(), form)


def of(*trials, form="agent"):
    return aggregate([("t", trial) for trial in trials], form)


def test_without_a_call_no_rate_of_calls_is_a_number():
    found = of(one())
    for rate in (found.tool_call_validity, found.tool_selection_accuracy, found.verification_failures):
        assert (rate.value, rate.denominator) == (None, 0)
        assert rate.reason
    assert found.recovery_rate.reason == "no call is known to have failed"
    assert found.tool_call_validity.reason == "no tool was called"


@pytest.mark.parametrize(
    ("fields", "right", "by_schema"),
    [
        ({"valid": True}, True, 1),
        ({"valid": False}, False, 1),
        ({"valid": True, "known": False}, False, 1),
        ({"known": False}, False, 1),
        ({"known": None, "wellformed": True}, True, 0),
        ({"known": None, "wellformed": False}, False, 0),
        ({"valid": True, "wellformed": False}, True, 1),
    ],
)
def test_a_call_is_right_by_its_tool_and_its_schema_else_by_its_form(fields, right, by_schema):
    found = one(call(**fields))
    assert (found.calls, found.right_calls, found.schema_calls) == (1, int(right), by_schema)


def test_a_rate_that_no_schema_decided_says_so():
    rate = of(one(call(valid=True), call(wellformed=True, known=None), call(valid=False))).tool_call_validity
    assert (rate.numerator, rate.denominator) == (2, 3)
    assert "1 of 3 calls had no schema to fit" in rate.reason


@pytest.mark.parametrize(
    ("tools", "right", "judged"),
    [
        ([], 0, 0),
        (["get", "get", "change", "note", "tell"], 5, 5),
        (["change"], 0, 1),
        (["get", "tell", "tell"], 2, 3),
        (["get", "change", "get"], 2, 3),
        (["get", "odd", "change", "tell"], 3, 4),
        (["get", "finish"], 1, 1),
    ],
)
def test_a_tool_fits_the_phase_or_the_next_one(tools, right, judged):
    assert selection(map(call, tools), PHASES) == (right, judged)


def test_tools_of_no_phase_that_are_allowed_are_not_counted_and_without_phases_the_list_decides():
    with_list = replace(PHASES, allow=frozenset({"get", "change", "tell", "think"}))
    assert selection(map(call, ["think", "get", "other"]), with_list) == (1, 2)
    assert selection(map(call, ["think", "finish", "rm"]), Expected(allow=frozenset({"think"}))) == (1, 2)
    assert selection([call("anything")], Expected()) == (0, 0)


@pytest.mark.parametrize(
    ("story", "episodes", "recovered"),
    [
        ("", 0, 0),
        ("a+", 0, 0),
        ("a- a- a- a+", 1, 1),
        ("a- b+", 1, 0),
        ("a- a+ a- a-", 2, 1),
        ("a- b- b+ a+", 2, 2),
        ("a? a- a? a+", 1, 1),
    ],
)
def test_an_episode_ends_with_a_success_for_the_same_goal(story, episodes, recovered):
    words = {"+": "ok", "-": "error", "?": None}
    calls = [call("shell", words[step[1]], goal=step[0]) for step in story.split()]
    assert recovery(calls) == (episodes, recovered)


def test_completion_that_nothing_verified_is_told():
    verifies = Expected(verifies=True)
    assert one(call(verify=True), expected=verifies).unverified_claim is False
    assert one(call(verify=True, outcome="error"), expected=verifies).unverified_claim is True
    assert one(call(verify=False), expected=verifies).unverified_claim is True
    assert one(call(verify=False), expected=verifies, claimed="declined").unverified_claim is None
    assert one(call(verify=True)).unverified_claim is None


def test_the_gateway_does_not_know_of_verifying_that_it_never_sees():
    verifies = Expected(verifies=True)
    assert one(call(verify=True), form="gateway", expected=verifies).unverified_claim is None
    failed = call(verify=True, outcome="error", source="gateway")
    assert one(failed, form="gateway", expected=verifies).unverified_claim is True


def test_verify_calls_of_unknown_outcome_are_in_no_denominator():
    found = one(
        *(call(verify=True, outcome=said) for said in ("ok", "error", "timeout", None)),
        expected=Expected(verifies=True),
    )
    assert (found.verify_failures, found.verify_calls) == (2, 3)


@pytest.mark.parametrize(
    ("ending", "step", "exhausted"),
    [
        ({}, {}, False),
        ({"reason": "context_exhausted"}, {}, True),
        ({}, {"type": "model_error", "code": "context_length_exceeded"}, True),
        ({"seen": "agent"}, {}, None),
        ({"seen": "agent"}, {"finish_reason": "stop"}, False),
        ({"seen": "agent"}, {"finish_reason": "model_context_window_exceeded"}, True),
    ],
)
def test_a_full_window_is_seen_or_said_or_unknown(ending, step, exhausted):
    form = ending.get("seen", "gateway")
    found = one(Step(**{"source": form, "type": "model_response"} | step), form=form, **ending)
    assert found.context_exhausted is exhausted


def test_forms_are_never_mixed():
    steps = [call("get"), call("finish", source="gateway", valid=True), call("get", outcome="error")]
    seen, said = (measure(ENDING, steps, Expected(), form) for form in FORMS)
    assert (seen.calls, seen.error_episodes, said.calls, said.error_episodes) == (1, 0, 2, 1)
    assert (seen.steps, seen.cost_nano_usd, seen.working_s, seen.completed) == (3, 5, 1.5, True)
    assert (said.steps, said.cost_nano_usd, said.working_s, said.completed) == (None, None, None, True)
    imported = [
        measure(replace(ENDING, seen="agent", passed=None, claimed=None), steps, Expected(), form) for form in FORMS
    ]
    assert [found.steps for found in imported] == [None, 3]
    assert [found.completed for found in imported] == [None, None]


def test_a_trajectory_that_is_gone_leaves_what_the_records_say():
    found = measure(ENDING, None, Expected(verifies=True), "gateway")
    assert (found.calls, found.verify_calls, found.unverified_claim, found.error_episodes) == (None,) * 4
    assert (found.steps, found.termination_reason) == (3, "completed")
    assert of(found, form="gateway").tool_call_validity.reason == "no trajectory was read"


def test_a_claim_of_nobody_is_no_completion():
    found = of(one(claimed="completed"), one(claimed="declined"), one(claimed=None)).task_completion
    assert (found.numerator, found.denominator, found.planned) == (1, 2, 3)


_CALLS = st.builds(
    Step,
    source=st.sampled_from(FORMS),
    type=st.sampled_from(["tool_call", "model_response", "model_error", "refusal"]),
    tool=st.sampled_from([None, "get", "change", "tell", "odd", "finish"]),
    known=st.sampled_from([None, True, False]),
    valid=st.sampled_from([None, True, False]),
    wellformed=st.sampled_from([None, True, False]),
    outcome=st.sampled_from([None, "ok", "error", "refused", "timeout", "invalid"]),
    goal=st.sampled_from([None, "a", "b"]),
    verify=st.sampled_from([None, True, False]),
)


@given(st.lists(st.lists(_CALLS, max_size=12), max_size=6), st.sampled_from(FORMS))
def test_parts_never_exceed_their_denominator_and_undefined_is_a_reason(trials, form):
    expected = replace(PHASES, verifies=True)
    every = [measure(ENDING, steps, expected, form) for steps in trials]
    for found in every:
        assert found.right_calls <= found.calls
        assert found.schema_calls <= found.calls
        assert found.matching_calls <= found.expected_calls <= found.calls
        assert found.verify_failures <= found.verify_calls
        assert found.recovered_episodes <= found.error_episodes <= found.calls
    metrics = aggregate([("t", found) for found in every], form)
    for rate in (
        metrics.task_completion,
        metrics.tool_call_validity,
        metrics.tool_selection_accuracy,
        metrics.verification_failures,
        metrics.unverified_claims,
        metrics.recovery_rate,
        metrics.context_exhaustion,
    ):
        assert rate.reason
        assert (rate.value is None) == (rate.denominator == 0)
        assert rate.value is None or 0 <= rate.value <= 1


@given(st.lists(_CALLS, max_size=12))
def test_the_forms_together_have_every_call_once(steps):
    found = [measure(ENDING, steps, Expected(), form).calls for form in FORMS]
    assert sum(found) == sum(step.type == "tool_call" for step in steps)
