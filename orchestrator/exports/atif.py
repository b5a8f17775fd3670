"""Trials as trajectories of the Agent Trajectory Interchange Format (ATIF) 1.8, one JSON document each.

The conversation with most calls is the trajectory; the others (sub-agents, titles, compaction) are embedded in it. What a tool gave stands
in the step that asked for it, as the format wants it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from orchestrator import __version__
from orchestrator.exports.story import ModelCall, ToolUse, thoughts_of
from orchestrator.exports.trial import ExportedTrial, in_time
from orchestrator.records.message import Message, text_of

SCHEMA_VERSION = "ATIF-v1.8"
_NOT_AGENT = {"system": "system", "developer": "system", "user": "user"}


def trajectory_of(trial: ExportedTrial, *, content: bool = True) -> dict[str, Any]:
    """Return the trajectory of a trial, with its verdict under ``extra``. ``content``: also what was said."""
    main = trial.story.main
    others = sorted({call.conversation for call in trial.story.calls} - {main})
    found = _document(trial, main, content=content)
    usage, task = trial.outcome.usage, trial.row.task
    metrics: dict[str, Any] = {"total_steps": len(found["steps"])}
    if trial.outcome.tells("tokens"):
        metrics |= {
            "total_prompt_tokens": usage.uncached_input + usage.cache_read + usage.cache_write,
            "total_completion_tokens": usage.output,
            "total_cached_tokens": usage.cache_read,
        }
    if usage.cost_nano_usd is not None:
        metrics["total_cost_usd"] = usage.cost_nano_usd / 1e9
    found["final_metrics"] = metrics
    found["extra"] = {
        "orchestrate_run": trial.manifest.run,
        "suite": trial.manifest.suite,
        "task": task.id,
        "trial": trial.outcome.trial,
        "launch": trial.outcome.launch,
        "termination_reason": trial.outcome.termination_reason,
        "result": trial.row.graded_as,
        "passed": trial.passed,
        "working_s": trial.outcome.working_s,
        "waiting_s": trial.outcome.waiting_s,
    }
    if others:
        found["subagent_trajectories"] = [_document(trial, number, content=content) for number in others]
    return found


def _document(trial: ExportedTrial, number: int, *, content: bool) -> dict[str, Any]:
    agent, calls = trial.row.agent, [call for call in trial.story.calls if call.conversation == number]
    about: dict[str, Any] = {"name": agent.name, "version": agent.agent.version or agent.digest}
    if calls:
        about["model_name"] = calls[0].model
    if tools := next((call.tools for call in reversed(calls) if call.tools), []):
        about["tool_definitions"] = [_definition(tool) for tool in tools]
    steps = _Steps(trial, number, content=content).all(calls)
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": f"{trial.manifest.run}/{trial.outcome.trial}/{trial.outcome.launch}",
        "trajectory_id": f"conversation-{number}",
        "agent": {**about, "extra": {"digest": agent.digest, "exported_by": f"orchestrate {__version__}"}},
        "steps": [{"step_id": step_id, **step} for step_id, step in enumerate(steps, 1)],
    }


class _Steps:
    """The steps of one conversation."""

    def __init__(self, trial: ExportedTrial, number: int, *, content: bool) -> None:
        self._trial = trial
        self._content = content
        self._main = number == trial.story.main
        self._uses: dict[int, list[ToolUse]] = {}
        for use in trial.story.tools:
            if use.request is not None:
                self._uses.setdefault(use.request, []).append(use)

    def all(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        for call in calls:
            steps += [
                self._said(message, call.started)
                for message in call.input[call.kept :]
                if message["role"] in _NOT_AGENT
            ]
            if call.response is not None:
                steps.append(self._answered(call))
        if self._main:
            steps += [self._used(use) for use in self._trial.story.tools if use.request is None]
        if not steps:  # nobody asked a model: there is still an agent that acted
            _, ended = in_time(self._trial)
            message = self._trial.message if self._content else ""
            steps.append({"timestamp": _iso(ended), "source": "agent", "message": message, "llm_call_count": 0})
        return steps

    def _said(self, message: Message, when: float) -> dict[str, Any]:
        said = self._text(text_of(message))
        return {"timestamp": _iso(when), "source": _NOT_AGENT[message["role"]], "message": said}

    def _answered(self, call: ModelCall) -> dict[str, Any]:
        answer = call.response or {}
        step: dict[str, Any] = {
            "timestamp": _iso(call.ended or call.started),
            "source": "agent",
            "model_name": answer["model"] if isinstance(answer.get("model"), str) else call.model,
            "message": self._text(text_of(call.answer) if call.answer else ""),
            "metrics": _metrics(call),
            "llm_call_count": 1,
        }
        if self._content and call.answer and (thought := thoughts_of(call.answer)):
            step["reasoning_content"] = thought
        if uses := self._uses.get(call.seq):
            step["tool_calls"] = [self._call(use) for use in uses]
            if results := [self._result(use) for use in uses if use.ended is not None]:
                step["observation"] = {"results": results}
        return step

    def _used(self, use: ToolUse) -> dict[str, Any]:
        """Return a step for a tool of the gateway that no model asked for."""
        step = {"timestamp": _iso(use.started), "source": "agent", "message": "", "llm_call_count": 0}
        done = {"observation": {"results": [self._result(use)]}} if use.ended is not None else {}
        return {**step, "tool_calls": [self._call(use)], **done}

    def _call(self, use: ToolUse) -> dict[str, Any]:
        arguments, extra = use.parsed, {"source": use.source, "valid": use.valid, "problem": use.problem}
        if arguments is None:  # the format has objects alone
            arguments, extra["unparsed"] = {}, self._text(str(use.arguments))
        return {
            "tool_call_id": _id(use),
            "function_name": use.name,
            "arguments": arguments if self._content else {},
            "extra": {key: value for key, value in extra.items() if value is not None},
        }

    def _result(self, use: ToolUse) -> dict[str, Any]:
        extra = {"is_error": use.is_error, "outcome": use.outcome, "seconds": use.seconds}
        return {
            "source_call_id": _id(use),
            "content": self._text(use.result or ""),
            "extra": {key: value for key, value in extra.items() if value is not None},
        }

    def _text(self, text: str) -> str:
        return text if self._content else ""


def _id(use: ToolUse) -> str:
    return use.id or f"call-{use.seq}"


def _metrics(call: ModelCall) -> dict[str, Any]:
    tokens = call.tokens
    if not tokens:
        return {}
    read, write = tokens.get("cache_read", 0), tokens.get("cache_write", 0)
    found: dict[str, Any] = {
        "prompt_tokens": tokens.get("uncached_input", 0) + read + write,
        "completion_tokens": tokens.get("output", 0),
        "cached_tokens": read,
        "extra": {"cache_write_tokens": write, "reasoning_tokens": tokens.get("reasoning", 0)},
    }
    if "cost_nano_usd" in tokens:
        found["cost_usd"] = tokens["cost_nano_usd"] / 1e9
    return found


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool.get("schema")}
    return {"type": "function", "function": json.loads(json.dumps(function))}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
