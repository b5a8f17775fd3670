"""Coding agents as their registries have them, unmodified, in a sandbox with scripted models: from the task to the verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from real_agents import DONE, FIX, LOOK, REAL, Real, events, kept_cache, limited_suite, project, run

pytestmark = [pytest.mark.registry, pytest.mark.timeout(900)]

each = pytest.mark.parametrize("real", REAL, ids=lambda real: real.name)


@each
def test_it_finishes_a_starter_task(real: Real, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shown = run(tmp_path, project(real, tmp_path, kept_cache(request)))
    outcome = shown["outcome"]
    assert shown["result"] == "passed"
    assert (outcome["termination_reason"], outcome["ended_as"], outcome["exit"]["code"]) == (
        "completed",
        "completed",
        0,
    )
    assert outcome["final"]["message"].strip() == DONE
    calls = [(real.tool, {real.argument: LOOK}), (real.tool, {real.argument: FIX})]
    told = 2 if real.name in {"claude-code", "codex"} else 3  # the others end by a call, too
    assert (outcome["steps"], outcome["tool_calls"], outcome["models"], outcome["findings"]) == (
        3,
        told,
        ["careful"],
        [],
    )
    usage = outcome["usage"]
    assert usage["uncached_input"] > 3 * 500
    assert usage["output"] > 100
    assert usage["cost_nano_usd"] == 1250 * usage["uncached_input"] + 5000 * usage["output"]
    seen = events(tmp_path)
    made = [event for event in seen if event["type"] == "tool_call" and event["source"] == "agent"]
    assert [(call["name"], json.loads(call["arguments"])) for call in made][:2] == calls
    assert all(call["valid"] for call in made)
    results = [event for event in seen if event["type"] == "tool_result"]
    assert "version 2" in results[0]["content"]
    assert not [event for event in seen if event["type"] == "refusal"]
    asked = [event for event in seen if event["type"] == "model_request"]
    assert [(event["conversation"], event["kept"] > 0) for event in asked] == [(0, False), (0, True), (0, True)]


@pytest.mark.slow
@each
def test_its_budget_ends_it_whatever_it_does(real: Real, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    file = project(real, tmp_path, kept_cache(request), [real.shell("true")] * 9)
    shown = run(tmp_path, file, suite=limited_suite(tmp_path, max_steps=3))
    outcome = shown["outcome"]
    assert (outcome["termination_reason"], outcome["steps"], outcome["ended_as"]) == ("step_cap", 3, None)


@pytest.mark.slow
@pytest.mark.parametrize("real", [each for each in REAL if each.name == "claude-code"], ids=lambda real: real.name)
def test_it_finishes_by_the_tool_of_the_gateway(real: Real, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    ending = {"status": "declined", "message": "Not mine.", "confidence": "high"}
    turns = [
        {"calls": [{"name": "ToolSearch", "arguments": {"query": "select:mcp__gateway__finish"}}]},
        {"calls": [{"name": "mcp__gateway__finish", "arguments": ending}]},
        {"text": "I have declined."},
    ]
    outcome = run(tmp_path, project(real, tmp_path, kept_cache(request), turns))["outcome"]
    assert (outcome["ended_as"], outcome["termination_reason"]) == ("declined", "declined")
    assert (outcome["final"]["message"], outcome["final"]["confidence"]) == ("Not mine.", "high")
    made = [(event["source"], event["name"]) for event in events(tmp_path) if event["type"] == "tool_call"]
    assert ("gateway", "finish") in made
    assert outcome["tool_calls"] == 2


@pytest.mark.parametrize("real", [each for each in REAL if each.name == "codex"], ids=lambda real: real.name)
def test_with_a_model_that_it_knows_it_works_by_scripts(
    real: Real, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # For its newer models Codex has one tool of free text, JavaScript that it runs itself, and declares it in the input.
    def script(command: str) -> dict[str, Any]:
        code = f"text(await tools.exec_command({{cmd: {json.dumps(command)}}}));"
        return {"calls": [{"name": "exec", "arguments": {"input": code}}]}

    turns = [script(LOOK), {**script(FIX), "expect": "version 2"}, real.end()]
    file = project(real, tmp_path, kept_cache(request), turns, "scripted/gpt-6.1-sol")
    shown = run(tmp_path, file)
    assert shown["result"] == "passed"
    assert (shown["outcome"]["steps"], shown["outcome"]["tool_calls"]) == (3, 2)
    made = [event for event in events(tmp_path) if event["type"] == "tool_call"]
    assert [(call["name"], call["known"]) for call in made] == [("exec", True)] * 2
