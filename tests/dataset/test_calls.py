"""What a call was for and what came of it, from foreign text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.dataset.calls import arguments_of, commands_of, goal_of, is_verifying, outcome_of
from orchestrator.dataset.columns import CALL_OUTCOMES
from orchestrator.dataset.steps import step_rows
from orchestrator.records.event import Event


@pytest.mark.parametrize(
    ("content", "is_error", "outcome"),
    [
        ("fine", None, "ok"),
        ("fine", False, "ok"),
        ("fine", True, "error"),
        (None, None, None),
        (None, False, "ok"),
        ("Error: not enough seats on flight HAT229", None, "error"),
        ("error: there is no tool 'x'", None, "error"),
        ("errors were 0", None, "ok"),
        ("Error handling was added", None, "ok"),
        ("builtins.KeyError: 'id'", None, "error"),
        ("Traceback (most recent call last):\n…", None, "error"),
        ('{"exit_code": 0, "output": "Error"}', None, "ok"),
        ('{"exit_code": 2}', None, "error"),
        ('{"error": null, "rows": []}', None, "ok"),
        ('{"error": "no such order"}', None, "error"),
        ('{"isError": true}', None, "error"),
        ("1 failed\n[exit code 1]", None, "error"),
        ("1 passed\n[exit code 0]", None, "ok"),
        ("error: old\n[exit code 0]", None, "ok"),
        ("[timed out after 10 s and was killed]", None, "timeout"),
        ('{"error": ' * 50_000, None, "ok"),
    ],
)
def test_a_result_says_what_came_of_its_call(content, is_error, outcome):
    assert outcome_of(content, is_error) == outcome


@pytest.mark.parametrize(
    ("arguments", "goal", "verifies"),
    [
        ({"command": "pytest -q"}, "shell pytest", True),
        ({"command": "cd src && PYTHONPATH=. pytest -q tests | tail -5"}, "shell pytest", True),
        ({"cmd": ["bash", "-lc", "ls; pytest"]}, "shell ls", True),
        ({"command": "/usr/bin/git diff"}, "shell git", False),
        ({"command": ""}, "shell", False),
        ({"path": "pytest.ini"}, "shell", False),
        ({"command": 7}, "shell", False),
    ],
)
def test_a_command_is_told_by_its_program(arguments, goal, verifies):
    commands = commands_of(arguments)
    assert goal_of("shell", commands) == goal
    assert is_verifying("shell", commands, ["pytest*", "get_order"]) is verifies


def test_tools_verify_by_name_and_nothing_does_without_patterns():
    assert is_verifying("get_order", [], ["get_*"]) is True
    assert is_verifying("get_order", [], []) is None


@given(st.one_of(st.none(), st.text(), st.dictionaries(st.text(), st.text()), st.integers(), st.lists(st.text())))
def test_no_arguments_break_it(value):
    found, wellformed = arguments_of(value)
    assert (found is not None) == (wellformed is True)
    assert isinstance(goal_of("t", commands_of(found)), str)


@given(st.one_of(st.none(), st.text()), st.one_of(st.none(), st.booleans(), st.text()))
def test_every_result_has_an_outcome_of_the_list_or_none(content, is_error):
    assert outcome_of(content, is_error) in {*CALL_OUTCOMES, None}


def events(*facts):
    return [
        Event(v=1, seq=seq, t=1.0 + seq, source=source, type=kind, data=data)
        for seq, (kind, source, data) in enumerate(facts)
    ]


def test_results_of_the_gateway_are_joined_by_number_and_reported_ones_by_id():
    rows = step_rows(
        events(
            ("tool_call", "gateway", {"name": "get", "arguments": {"id": 1}, "valid": True}),
            ("tool_call", "agent", {"id": "a", "name": "get", "arguments": '{"id": 1}', "known": True, "valid": None}),
            ("tool_result", "gateway", {"call": 0, "name": "get", "outcome": "timeout", "content": "slow"}),
            ("tool_result", "agent", {"id": "a", "content": "Error: slow", "is_error": False}),
            ("tool_result", "agent", {"id": "b", "content": "of no call"}),
            ("tool_result", "gateway", {"call": 77, "outcome": "ok"}),
        ),
        verify=["get"],
    )
    assert [(row["source"], row["outcome"], row["verify"], row["wellformed"]) for row in rows] == [
        ("gateway", "timeout", True, True),
        ("agent", "error", True, True),
    ]


def test_tokens_and_cost_are_those_that_were_counted():
    tokens = {"uncached_input": 1, "cache_read": 2, "cache_write": 3, "cache_write_1h": 1, "output": 5, "reasoning": 4}
    answer = {"request": 0, "model": "m-1", "tokens": {**tokens, "cost_nano_usd": 9}, "estimated": False}
    nonsense = {"request": 0, "tokens": {"uncached_input": -1, "cost_nano_usd": 2**63}}
    rows = step_rows(
        events(
            ("model_request", "agent", {"model": "x/m"}),
            ("model_response", "gateway", answer),
            ("model_response", "gateway", nonsense),
        )
    )
    assert rows[0].items() >= {**tokens, "cost_nano_usd": 9, "estimated": False, "asked": "x/m", "model": "m-1"}.items()
    assert rows[1].items() >= {"uncached_input": None, "cost_nano_usd": None, "estimated": None}.items()


def test_output_is_what_was_counted_before_what_was_reported():
    counted = {"tokens": {"output": 7}, "usage": {"completion_tokens": 9}}
    rows = step_rows(
        events(("model_response", "gateway", counted), ("model_response", "gateway", {"usage": {"output_tokens": 3}}))
    )
    assert [row["output"] for row in rows] == [7, 3]
