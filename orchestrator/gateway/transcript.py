"""Turns model traffic into trajectory events.

A request repeats the whole conversation, so only its new messages are recorded, with a digest of the whole. The conversation
is found by its messages: a request continues the one whose earlier request is a prefix of it; side calls begin their own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from orchestrator.interfaces import Trajectory

_REMEMBERED = 16
"""Conversations of one launch that later requests are compared with."""


@dataclass
class _Conversation:
    number: int
    digests: list[bytes]
    tools: str | None = None


class Transcript:
    """Writes one launch's model calls into its trajectory."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._conversations: list[_Conversation] = []
        self._count = 0

    def request(self, model: str, body: dict[str, Any]) -> int:
        """Record a request, and before it the tool results that it brings. Returns the number of its event."""
        messages: list[dict[str, Any]] = body["messages"]
        digests = [_digest(message) for message in messages]
        conversation, kept = self._find(digests)
        for index, message in enumerate(messages[kept:], kept):
            if message.get("role") == "tool":
                result = {"id": message.get("tool_call_id"), "content": message.get("content"), "index": index}
                self._trajectory.append("tool_result", "agent", {"conversation": conversation.number, **result})
        new: list[Any] = [{"index": i, **m} for i, m in enumerate(messages[kept:], kept) if m.get("role") != "tool"]
        return self._trajectory.append(
            "model_request",
            "gateway",
            {
                "model": model,
                "conversation": conversation.number,
                "kept": kept,
                "total": len(messages),
                "sha256": hashlib.sha256(b"".join(digests)).hexdigest(),
                "messages": new,
                "params": {k: v for k, v in body.items() if k not in {"messages", "tools", "model"}},
                **self._tools(conversation, body.get("tools")),
            },
        )

    def response(self, request: int, answer: dict[str, Any], known: set[str], seconds: float) -> None:
        """Record an answer and the tool calls in it."""
        choice = first_choice(answer)
        self._trajectory.append(
            "model_response",
            "gateway",
            {
                "request": request,
                "id": answer.get("id"),
                "model": answer.get("model"),
                "message": choice.get("message"),
                "finish_reason": choice.get("finish_reason"),
                "usage": answer.get("usage"),
                "seconds": round(seconds, 4),
            },
        )
        for call in tool_calls(answer):
            function = next((f for f in (call.get("function"), call.get("custom")) if isinstance(f, dict)), {})
            name, arguments = function.get("name"), function.get("arguments", function.get("input"))
            event = {"request": request, "id": call.get("id"), "name": name, "arguments": arguments}
            checks = {"known": name in known, "valid": _is_json_object(arguments)}
            self._trajectory.append("tool_call", "agent", {**event, **checks})

    def _tools(self, conversation: _Conversation, tools: Any) -> dict[str, Any]:
        digest = hashlib.sha256(orjson.dumps(tools, option=orjson.OPT_SORT_KEYS)).hexdigest() if tools else None
        if digest == conversation.tools:
            return {}
        conversation.tools = digest
        return {"tools": tools}

    def _find(self, digests: list[bytes]) -> tuple[_Conversation, int]:
        best: _Conversation | None = None
        for known in self._conversations:
            length = len(known.digests)
            if (
                length <= len(digests)
                and digests[:length] == known.digests
                and (not best or length > len(best.digests))
            ):
                best = known
        if best is None:
            best = _Conversation(self._count, [])
            self._count += 1
        else:
            self._conversations.remove(best)
        kept = len(best.digests)
        best.digests = digests
        self._conversations = [*self._conversations, best][-_REMEMBERED:]
        return best, kept


def first_choice(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the first choice of an answer; empty when there is none."""
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def tool_calls(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of an answer."""
    message = first_choice(answer).get("message")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _digest(message: dict[str, Any]) -> bytes:
    return hashlib.sha256(orjson.dumps(message, option=orjson.OPT_SORT_KEYS)).digest()


def _is_json_object(text: Any) -> bool:
    try:
        return isinstance(orjson.loads(text), dict) if isinstance(text, str) else False
    except orjson.JSONDecodeError:
        return False
