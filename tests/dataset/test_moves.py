"""Moves of a trial: what was called, by whoever vouches best, and what came of it."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.dataset.moves import LONGEST_ARGUMENTS, moves_of
from orchestrator.records.event import Event


def moves(*events: tuple[str, str, dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    made = [Event(seq=n, t=0, source=source, type=kind, data=data) for n, (kind, source, data) in enumerate(events)]  # type: ignore[arg-type]
    return [(move.tool, move.arguments, move.outcome) for move in moves_of(made)]


def reported(name: str, arguments: str, call: str = "c1") -> tuple[str, str, dict[str, Any]]:
    return "tool_call", "agent", {"name": name, "arguments": arguments, "id": call, "conversation": 0}


def answered(content: str, call: str = "c1") -> tuple[str, str, dict[str, Any]]:
    return "tool_result", "agent", {"id": call, "conversation": 0, "content": content, "is_error": None}


def test_a_call_that_the_gateway_saw_counts_once() -> None:
    found = moves(
        reported("mcp__gateway__get_order", '{"order_id": "o1"}'),
        ("tool_call", "gateway", {"name": "get_order", "arguments": {"order_id": "o1"}, "valid": True}),
        ("tool_result", "gateway", {"call": 1, "name": "get_order", "outcome": "error", "error": {"kind": "not_found"}}),
        answered("not_found: no order o1"),
    )  # fmt: skip
    assert found == [("get_order", '{"order_id":"o1"}', "not_found")]


def test_an_agents_own_tools_count_as_it_tells() -> None:
    found = moves(
        reported("shell", '{"b": 1.0, "a": "x"}'), answered("text\n[exit code 2]"), reported("shell", "no json", "c2"),
    )  # fmt: skip
    assert found == [("shell", '{"a":"x","b":1}', "error"), ("shell", "no json", None)]


def test_long_arguments_are_known_by_their_digest() -> None:
    one, other = (json.dumps({"text": word * LONGEST_ARGUMENTS}) for word in "ab")
    [(_, first, _), (_, second, _), (_, third, _)] = moves(
        reported("w", one), reported("w", other, "c2"), reported("w", one, "c3")
    )
    assert first.startswith("sha256:")
    assert first == third != second


def test_foreign_values_are_no_trouble() -> None:
    assert moves(("tool_call", "agent", {"name": None, "arguments": 5}), ("tool_result", "agent", {"content": 7})) == [
        ("None", "5", None)
    ]
