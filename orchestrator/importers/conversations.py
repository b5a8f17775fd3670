"""Traces that are conversations in the shape of the Chat Completions or Messages API, and trajectories of tau-bench, which hold some."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator import wiring
from orchestrator.gateway.dialects.base import Dialect, Reply
from orchestrator.importers.recorded import Given, Recorder, Trace, ending_of, reason_of
from orchestrator.records.message import Message, Tool

_IDS = ("id", "trace_id", "session_id", "conversation_id")


def is_messages(value: object) -> bool:
    """Return whether a value is a list of messages."""
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) and "role" in each for each in value)


def read_conversation(value: Mapping[str, Any], where: tuple[str, int], path: Path, given: Given) -> Trace:
    """Record ``{"messages": […]}`` or an element of tau-bench's files, ``{"task_id", "reward", "traj", "trial"}``.

    ``tools``, ``model``, ``task_id``, ``agent`` and ``termination_reason`` beside the messages are taken as what they say. ``path``: a new
    file.
    """
    is_tau = "traj" in value
    body = {**value, "messages": value["traj" if is_tau else "messages"]}
    dialect = wiring.dialect("messages" if _has_blocks(body["messages"]) else "chat")
    offered = dialect.tools(body) or given.tools
    facts = {"format": "tau-bench" if is_tau else "messages", **_facts(value)}
    with Recorder(path, facts, given.price, endpoint=dialect.name) as recorder:
        _Walk(recorder, dialect, value.get("model"), offered).all(dialect.items(body))
        return recorder.close(
            *where,
            task=_task(value),
            agent=_word(value.get("agent")),
            reason=reason_of(value.get("termination_reason")),
            ended_as=ending_of(value.get("termination_reason")),
        )


def _has_blocks(messages: list[Any]) -> bool:
    """Return whether calls and results of tools are blocks of contents, as in the Messages API."""
    contents = (message.get("content") for message in messages)
    return any(
        isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result")
        for content in contents
        if isinstance(content, list)
        for block in content
    )


def _facts(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells this trace from another with the same messages, and what its own harness made of it."""
    kept = {name: value[name] for name in (*_IDS, "task_id", "trial") if isinstance(value.get(name), str | int)}
    reward = value.get("reward")
    return {**kept, "reported_reward": reward} if isinstance(reward, int | float) else kept


def _task(value: Mapping[str, Any]) -> str | None:
    found = value.get("task_id", value.get("task"))
    if isinstance(found, int):
        return f"task-{found}"
    return _word(found)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


class _Walk:
    def __init__(self, recorder: Recorder, dialect: Dialect, model: object, tools: list[Tool] | None) -> None:
        self._recorder = recorder
        self._dialect = dialect
        self._model = _word(model)
        self._tools = tools
        self._pending: list[Message] = []

    def all(self, messages: list[Any]) -> None:
        for each in messages:
            message = self._dialect.message(each)
            if message["role"] != "assistant":
                self._pending.append(message)
                continue
            model = _word(each.get("model")) or self._model
            request = self._request(model)
            self._recorder.response(request, _reply(self._dialect, each, message, model), None)
        if self._pending:  # nobody answered these
            self._request(None)

    def _request(self, model: str | None) -> int:
        pending, self._pending = self._pending, []
        return self._recorder.request(pending, None, model=model, tools=self._tools)


def _reply(dialect: Dialect, raw: Mapping[str, Any], message: Message, model: str | None) -> Reply:
    usage = raw.get("usage")
    counted = dialect.reply({"usage": usage}).tokens if isinstance(usage, dict) else None
    finish = _word(raw.get("finish_reason")) or _word(raw.get("stop_reason"))
    return Reply(id=None, model=model, message=message, finish_reason=finish, usage=usage, tokens=counted)
