"""A trajectory for people: amounts in words, nothing said twice, nothing that says nothing."""

import asyncio
import io
import json

from hostile_state import TRIAL, hostile_run
from rich.console import Console

from orchestrator.report.logs import show_logs


def printed(tmp_path, *events):
    """Return the lines that are printed of events (type, data)."""
    lines = [
        json.dumps({"v": 1, "seq": seq, "t": 10 + seq, "source": "gateway", "type": kind, **data}).encode() + b"\n"
        for seq, (kind, data) in enumerate(events)
    ]

    async def story():
        store, data = await hostile_run(tmp_path, events=b"".join(lines))
        await show_logs(store, data, TRIAL, Console(file=out, width=100))

    out = io.StringIO()
    asyncio.run(story())
    return [line.strip() for line in out.getvalue().split("\n")[1:-1]]


BUDGETS = {"max_steps": 1, "max_tool_calls": 32, "max_wall_seconds": 90, "hard_wall_seconds": None, "max_tokens": 2000}
COUNTERS = {"steps": 1, "tool_calls": 2, "tokens": 4899, "cost_nano_usd": 7_931_250}


def test_budgets_and_money_are_words(tmp_path):
    launch, seal = printed(
        tmp_path,
        ("launch", {"run": "r", "launch": 2, "models": {"main": "a/b"}, "budgets": {**BUDGETS, "max_cost_usd": 0.5}}),
        ("seal", {**COUNTERS, "stopped": None, "waiting_s": 0.0, "sha256_before": "ab"}),
    )
    assert launch.endswith(
        "launch: 2; models main: a/b; budgets 1 step, 32 tool calls, 90s of work, 2,000 tokens, $0.50"
    )
    assert seal.endswith("1 step, 2 tool calls, 4,899 tokens, cost $0.0079, waited 0.0s")


def test_a_stop_and_an_unknown_cost_are_said(tmp_path):
    budget, seal = printed(
        tmp_path,
        ("budget", {"reason": "step_cap", "end_in_s": 10, **COUNTERS}),
        ("seal", {**COUNTERS, "cost_nano_usd": None, "stopped": "step_cap"}),
    )
    assert "reason: step_cap, ends in 10s, 1 step" in budget
    assert seal.endswith("cost unknown, stopped: step_cap")


CALL = {"type": "tool_call", "id": "c1", "name": "shell", "arguments": "{}"}


def test_an_answer_that_a_request_repeats_is_not_printed_again(tmp_path):
    said = {"role": "assistant", "parts": [CALL]}
    other = {"role": "assistant", "parts": [{**CALL, "name": "rm"}]}
    lines = printed(
        tmp_path,
        ("model_response", {"model": "m", "finish_reason": "tool_calls", "message": said}),
        ("model_request", {"model": "m", "total": 3, "messages": [said, {"role": "assistant", "parts": []}]}),
        ("model_request", {"model": "m", "total": 4, "messages": [other]}),
    )
    assert not [line for line in lines if line.endswith("assistant:")]
    assert [line for line in lines if "│" in line] == ["│ assistant: (calls rm)"]


def test_a_cut_text_names_the_command_that_shows_it(tmp_path):
    lines = printed(tmp_path, ("tool_result", {"id": "c1", "content": "x\n" * 41}))
    assert lines[-2] == "… 1 more line"
    assert lines[-1].startswith("in full, as JSON: ")
    assert lines[-1].endswith(" logs run-1 fix@sly:1 --json")


def test_what_broke_off_and_what_does_not_fit_is_said(tmp_path):
    picture = {"type": "media", "media_type": "image/png", "url": None, "sha256": "ab", "bytes": 3}
    message = {"role": "assistant", "parts": [{"type": "text", "text": "half"}, picture]}
    lines = printed(
        tmp_path,
        ("model_response", {"model": "m", "finish_reason": None, "message": message, "broken": True}),
        ("tool_call", {"name": "shell", "arguments": "{}", "known": True, "valid": False, "problem": "x is missing"}),
    )
    assert lines[0].endswith("m, broke off")
    assert lines[1:3] == ["│ half", "│ [image/png]"]
    assert "shell (arguments do not fit: x is missing)" in lines[3]
