"""A run whose one agent talks to a model, calls tools with and without sense, and has a sub-agent: as a store holds it."""

from __future__ import annotations

import json

from run_builder import agent, manifest, outcome, put, save, task, verdict

from orchestrator.records.ids import TrialId
from orchestrator.records.state import FinalAnswer
from orchestrator.records.verdict import CheckResult
from orchestrator.storage.file import FileStore

RUN = "run-1"
SHELL = {
    "name": "shell",
    "type": "function",
    "description": "Run it.",
    "schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}
TOKENS = {"uncached_input": 3, "cache_read": 100, "cache_write": 20, "output": 7, "reasoning": 2, "cost_nano_usd": 1500}
SECRET = "the-prompt-itself"


def said(role, *parts, index=None):
    return {"role": role, "parts": list(parts), **({} if index is None else {"index": index})}


def text(words):
    return {"type": "text", "text": words}


def called(identity, name, arguments):
    return {"type": "tool_call", "id": identity, "name": name, "arguments": arguments}


def request(messages, *, kept, conversation=0, parent=None, **more):
    total = kept + len(messages)
    base = {
        "model": "openai/gpt-x",
        "endpoint": "chat",
        "stream": False,
        "conversation": conversation,
        "parent": parent,
        "kept": kept,
    }
    return (
        "model_request",
        "gateway",
        {**base, "total": total, "messages": messages, "params": {"temperature": 0.5, "seed": 3}, **more},
    )


def response(number, *parts, finish="stop", model="gpt-x-2026"):
    timing = {"seconds": 0.5, "waited_s": 0.25, "first_token_s": None, "broken": False}
    answer = {
        "request": number,
        "id": f"resp-{number}",
        "model": model,
        "message": said("assistant", *parts),
        "finish_reason": finish,
    }
    return "model_response", "gateway", {**answer, "tokens": TOKENS, "estimated": False, **timing}


def events():
    """Two steps with tools, a sub-agent, a failed call, a tool of the gateway that the model asked for, and one that it did not."""
    first = [said("system", text(f"Be brief. {SECRET}"), index=0), said("user", text("Fix it."), index=1)]
    shell = called("c1", "shell", '{"command": "ls"}')
    odd = called("c2", "shell", "not json")
    finish = called("c3", "mcp__gateway__finish", '{"status": "completed"}')
    return [
        ("launch", "gateway", {"run": RUN, "launch": 1}),
        request(first, kept=0, tools=[SHELL]),
        response(1, {"type": "reasoning", "text": "hm"}, text("Let me see."), shell, odd, finish="tool_calls"),
        (
            "tool_call",
            "agent",
            {
                "request": 1,
                "conversation": 0,
                "id": "c1",
                "name": "shell",
                "arguments": shell["arguments"],
                "valid": True,
            },
        ),
        (
            "tool_call",
            "agent",
            {
                "request": 1,
                "conversation": 0,
                "id": "c2",
                "name": "shell",
                "arguments": "not json",
                "valid": False,
                "problem": "no JSON",
            },
        ),
        request([said("user", text("Name this."), index=0)], kept=0, conversation=1),
        response(5, text("A name")),
        ("tool_result", "agent", {"conversation": 0, "index": 3, "id": "c1", "content": "a.py", "is_error": False}),
        ("tool_result", "agent", {"conversation": 0, "index": 4, "id": "c2", "content": "what?", "is_error": True}),
        (
            "model_error",
            "gateway",
            {"request": 10, "attempt": 0, "status": 429, "code": "rate_limited", "message": "slow down"},
        ),
        request([said("assistant", text("Let me see."), shell, odd, index=2)], kept=2),
        response(10, text("Done."), finish, finish="tool_calls"),
        (
            "tool_call",
            "agent",
            {
                "request": 10,
                "conversation": 0,
                "id": "c3",
                "name": "mcp__gateway__finish",
                "arguments": finish["arguments"],
                "valid": True,
            },
        ),
        (
            "tool_call",
            "gateway",
            {"name": "finish", "arguments": {"status": "completed"}, "via": "mcp", "valid": True, "problem": None},
        ),
        (
            "tool_result",
            "gateway",
            {"call": 13, "name": "finish", "outcome": "ok", "seconds": 0.01, "content": "accepted"},
        ),
        (
            "tool_call",
            "gateway",
            {"name": "ask_user", "arguments": {"question": "why"}, "via": "http", "valid": True, "problem": None},
        ),
        (
            "tool_result",
            "gateway",
            {"call": 15, "name": "ask_user", "outcome": "refused", "seconds": 0.2, "content": "no"},
        ),
        request([said("user", text("More?"), index=5)], kept=5),
        (
            "model_error",
            "gateway",
            {"request": 17, "attempt": 0, "status": 400, "code": "bad_request", "message": "no"},
        ),
        ("seal", "gateway", {"steps": 3}),
    ]


def lines(found=None):
    return b"".join(
        json.dumps({"v": 1, "seq": seq, "t": 1000.0 + seq / 4, "source": source, "type": kind, **data}).encode() + b"\n"
        for seq, (kind, source, data) in enumerate(events() if found is None else found)
    )


async def told_run(folder, found=None):
    """Lay three trials: one told and passed, one without a model and failed, one lost without a trajectory. Returns the store."""
    store = FileStore(folder / ".orchestrate/store")
    trials = [TrialId("fix", name, sample) for name, sample in (("talker", 1), ("talker", 2), ("mute", 1), ("mute", 2))]
    told = await put(store, RUN, "told", lines(found))
    mute = await put(store, RUN, "mute", lines([("launch", "gateway", {}), ("seal", "gateway", {})]))
    final = FinalAnswer(status="completed", message=f"It works. {SECRET}", confidence="high")
    checks = (
        CheckResult(id="hidden_tests", type="command", passed=True, evidence=("2 passed",)),
        CheckResult(id="style", type="files", gate=False, passed=None),
    )
    await save(
        store,
        manifest([task("fix", samples=2)], [agent("talker", version="7"), agent("mute")], run=RUN),
        [
            outcome(RUN, trials[0], trajectory=told, final=final, ended_as="completed", cost=4500, working=5.0),
            outcome(RUN, trials[1], reason="infra_lost", error="gateway died", cause="gateway"),
            outcome(RUN, trials[2], trajectory=mute, reason="step_cap"),
        ],
        [verdict(RUN, trials[0], checks=checks), verdict(RUN, trials[2], "failed")],
    )
    return store
