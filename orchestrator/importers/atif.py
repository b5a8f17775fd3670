"""Traces in the Agent Trajectory Interchange Format of Harbor, up to version 1.8.

https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator import wiring
from orchestrator.gateway.dialects.base import Reply
from orchestrator.gateway.dialects.shape import arguments_text, entries, obj, word
from orchestrator.importers.recorded import Given, Recorder, Trace, ending_of, reason_of
from orchestrator.records.message import MediaPart, Message, Part, Role, Tool, ToolResultPart
from orchestrator.records.usage import Usage

_ROLES: dict[object, Role] = {"system": "system", "user": "user", "agent": "assistant"}
_MOST = 10**12


def read_atif(value: Mapping[str, Any], where: tuple[str, int], path: Path, given: Given) -> Trace:
    """Record a document, with the trajectories of sub-agents in it as conversations of their own. ``path``: a new file."""
    agent, extra = obj(value.get("agent")), obj(value.get("extra"))
    names = ("schema_version", "session_id", "trajectory_id")
    facts = {"format": "atif", **{name: value[name] for name in names if word(value.get(name))}}
    span = _span(value)
    with Recorder(path, facts, given.price, span and span[0]) as recorder:
        for conversation, document in enumerate([value, *entries(value.get("subagent_trajectories"))]):
            _Walk(recorder, document, conversation, given.tools).all()
        stated = extra.get("termination_reason")
        return recorder.close(
            *where,
            task=word(extra.get("task")) or word(extra.get("task_id")),
            agent=word(agent.get("name")),
            reason=reason_of(stated),
            ended_as=ending_of(stated),
            usage=_totals(obj(value.get("final_metrics"))) if recorder.usage is None else None,
            span=span,
        )


def _span(value: Mapping[str, Any]) -> tuple[float, float] | None:
    times = [at for step in entries(value.get("steps")) if (at := seconds_of(step.get("timestamp"))) is not None]
    return (min(times), max(times)) if times else None


class _Walk:
    """One document, step by step."""

    def __init__(
        self, recorder: Recorder, document: Mapping[str, Any], conversation: int, tools: list[Tool] | None
    ) -> None:
        agent = obj(document.get("agent"))
        self._recorder = recorder
        self._document = document
        self._conversation = conversation
        self._model = word(agent.get("model_name"))
        self._tools = wiring.dialect("chat").tools({"tools": agent.get("tool_definitions")}) or tools
        self._pending: list[Message] = []

    def all(self) -> None:
        for step in entries(self._document.get("steps")):
            at = seconds_of(step.get("timestamp"))
            message: Message = {"role": _ROLES.get(word(step.get("source")), "user"), "parts": _parts(step)}
            calls = entries(step.get("tool_calls"))
            if step.get("source") != "agent" or step.get("is_copied_context") is True:
                self._pending.append(message)
            elif step.get("llm_call_count") == 0:  # what was done without asking a model
                for part in _calls(calls):
                    self._recorder.call(part, at, conversation=self._conversation)
            else:
                self._answer(step, message, at)
            for result in entries(obj(step.get("observation")).get("results")):
                self._recorder.result(_result(result), at, conversation=self._conversation)
        if self._pending:  # nobody answered these
            self._request(None, None)

    def _answer(self, step: Mapping[str, Any], message: Message, at: float | None) -> None:
        model = word(step.get("model_name")) or self._model
        message["parts"] += _calls(entries(step.get("tool_calls")))
        tokens = _tokens(obj(step.get("metrics")))
        reply = Reply(
            id=None, model=model, message=message, finish_reason=None, usage=step.get("metrics"), tokens=tokens
        )
        self._recorder.response(self._request(at, model), reply, at, conversation=self._conversation)

    def _request(self, at: float | None, model: str | None) -> int:
        pending, self._pending = self._pending, []
        return self._recorder.request(pending, at, model=model, tools=self._tools, conversation=self._conversation)


def _parts(step: Mapping[str, Any]) -> list[Part]:
    thought = word(step.get("reasoning_content"))
    found: list[Part] = [{"type": "reasoning", "text": thought}] if thought else []
    return [*found, *_content(step.get("message"))]


def _content(content: object) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    found: list[Part] = []
    for part in entries(content):
        if part.get("type") == "text":
            found.append({"type": "text", "text": word(part.get("text")) or ""})
            continue
        source = obj(part.get("source"))
        media: MediaPart = {
            "type": "media",
            "media_type": word(source.get("media_type")) or f"{word(part.get('type')) or 'application'}/*",
            "url": word(source.get("path")),
            "sha256": None,
            "bytes": None,
        }
        found.append(media)
    return found


def _calls(calls: list[dict[str, Any]]) -> list[Any]:
    return [
        {
            "type": "tool_call",
            "id": word(call.get("tool_call_id")),
            "name": word(call.get("function_name")),
            "arguments": arguments_text(call.get("arguments")),
        }
        for call in calls
    ]


def _result(result: Mapping[str, Any]) -> ToolResultPart:
    parts = _content(result.get("content"))
    text = "\n".join(part["text"] if part["type"] == "text" else f"[{part['type']}]" for part in parts)
    failed = obj(result.get("extra")).get("is_error") is True or result.get("is_error") is True
    return {"type": "tool_result", "id": word(result.get("source_call_id")), "content": text, "is_error": failed}


def _tokens(metrics: Mapping[str, Any], prefix: str = "") -> Usage | None:
    """Return the tokens of a step; of a whole trajectory with the prefix ``total_``. ``prompt_tokens`` includes cached ones."""
    prompt, output = (_count(metrics.get(f"{prefix}{name}_tokens")) for name in ("prompt", "completion"))
    cached = _count(metrics.get(f"{prefix}cached_tokens", 0))
    if prompt is None or output is None or cached is None or cached > prompt:
        return None
    cost = metrics.get(f"{prefix}cost_usd")
    known = isinstance(cost, int | float) and 0 <= cost < 10**6
    return Usage(
        uncached_input=prompt - cached,
        cache_read=cached,
        output=output,
        cost_nano_usd=round(cost * 1e9) if known and cost is not None else None,
    )


def _totals(metrics: Mapping[str, Any]) -> Usage | None:
    return _tokens(metrics, "total_")


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None


def seconds_of(value: object) -> float | None:
    """Return an ISO 8601 time as seconds since 1970; None for anything else. Without a zone it is UTC."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
