"""Turns model traffic into trajectory events.

A request repeats the whole conversation, so only its new messages are recorded, with a digest of the whole. The conversation
is found by its messages: a request continues the one whose earlier request is a prefix of it; side calls begin their own.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
from pydantic import JsonValue

from orchestrator.gateway.calls import Timing
from orchestrator.gateway.dialects.base import Dialect, Reply
from orchestrator.gateway.schemas import Effort, fit
from orchestrator.interfaces import Trajectory
from orchestrator.records.message import Message, Part, Tool, ToolResultPart
from orchestrator.records.usage import Usage

_REMEMBERED = 16
"""Conversations of one launch that later requests are compared with."""


_KNOWN_BY = 8
"""Bytes of an entry's digest by which it is known again."""


@dataclass
class _Conversation:
    number: int
    parent: int | None
    digests: list[bytes] = field(default_factory=list)
    tools: str | None = None


@dataclass(frozen=True)
class Looked:
    """What recording a request needs to know of it."""

    items: list[dict[str, Any]]
    digests: list[bytes]
    messages: Mapping[int, Message]
    """Those that seem to be new, by their place."""


@dataclass(frozen=True)
class Asked:
    """A request that has been recorded."""

    event: int
    """Number of its event."""
    conversation: int
    tools: Mapping[str, Tool]
    """What it offers to the model, by name."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """An answer, and what is known of how it came."""

    reply: Reply
    usage: Usage
    """With its cost."""
    estimated: bool
    """The provider reported nothing that could be used."""
    timing: Timing
    first_token_s: float | None
    """Seconds to the first part of a stream."""
    broken: bool
    """The stream ended early."""
    put_together: bool = False
    """A whole answer was asked for, and came as a stream."""


class Transcript:
    """Writes one launch's model calls into its trajectory."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._conversations: list[_Conversation] = []
        self._count = 0

    def look(self, dialect: Dialect, body: Mapping[str, Any]) -> Looked:
        """Look at a request. Nothing is changed, so a thread may do it: of large ones this is nearly all that costs."""
        items = dialect.items(body)
        digests = [_digest(item) for item in items]
        _, kept = self._best([digest[:_KNOWN_BY] for digest in digests])
        return Looked(items, digests, {index: dialect.message(items[index]) for index in range(kept, len(items))})

    def request(self, model: str, dialect: Dialect, body: Mapping[str, Any], looked: Looked | None = None) -> Asked:
        """Record a request, and before it the tool results that it brings. ``looked`` is what ``look`` returned."""
        looked = looked or self.look(dialect, body)
        items, digests = looked.items, looked.digests
        known = [digest[:_KNOWN_BY] for digest in digests]
        conversation, kept = self._find(known)
        new = [
            self._without_results(index, looked.messages.get(index) or dialect.message(item), conversation.number)
            for index, item in enumerate(items[kept:], kept)
        ]
        tools = dialect.tools(body)
        number = self._trajectory.append(
            "model_request",
            "gateway",
            {
                "model": model,
                "endpoint": dialect.name,
                "stream": body.get("stream") is True,
                "conversation": conversation.number,
                "parent": conversation.parent,
                "kept": kept,
                "total": len(items),
                "sha256": hashlib.sha256(b"".join(digests)).hexdigest(),
                "digests": [digest.hex() for digest in known[kept:]],
                "messages": [message for message in new if message is not None],
                "params": dialect.params(body),
                **_changed(conversation, tools),
            },
        )
        return Asked(number, conversation.number, {tool["name"]: tool for tool in tools if tool["name"] is not None})

    def recall(self, event: Mapping[str, Any]) -> None:
        """Take over a request that an earlier process has recorded."""
        number, kept = event["conversation"], event["kept"]
        found = next((each for each in self._conversations if each.number == number), None)
        if found is None:
            found = _Conversation(number, event["parent"])
            self._count = max(self._count, number + 1)
        found.digests = [*found.digests[:kept], *map(bytes.fromhex, event["digests"])]
        if "tools" in event:
            found.tools = _digest_of_tools(event["tools"])
        self._remember(found)

    def response(self, asked: Asked, answered: Answered) -> None:
        """Record an answer and the tool calls in it."""
        reply, timing = answered.reply, answered.timing
        first = answered.first_token_s
        self._trajectory.append(
            "model_response",
            "gateway",
            {
                "request": asked.event,
                "id": reply.id,
                "model": reply.model,
                "message": cast("JsonValue", reply.message),
                "finish_reason": reply.finish_reason,
                "usage": reply.usage,
                "tokens": answered.usage.model_dump(mode="json"),
                "estimated": answered.estimated,
                "seconds": round(timing.seconds, 4),
                "waited_s": round(timing.waited_s, 4),
                "first_token_s": None if first is None else round(first, 4),
                "broken": answered.broken,
                **({"put_together": True} if answered.put_together else {}),
            },
        )
        effort = Effort()
        for call in reply.calls:
            self._trajectory.append(
                "tool_call",
                "agent",
                {
                    "request": asked.event,
                    "conversation": asked.conversation,
                    "id": call["id"],
                    "name": call["name"],
                    "arguments": call["arguments"],
                    **_judged(call["arguments"], asked.tools.get(call["name"] or ""), effort, broken=answered.broken),
                },
            )

    def _without_results(self, index: int, message: Message, conversation: int) -> dict[str, Any] | None:
        """Record the tool results of a message and return the rest of it; None when there is none."""
        rest: list[Part] = []
        for part in message["parts"]:
            if part["type"] == "tool_result":
                self._trajectory.append("tool_result", "agent", _result(part, index, conversation))
            else:
                rest.append(part)
        if not rest and message["parts"]:
            return None
        return {"index": index, **message, "parts": rest}

    def _find(self, digests: list[bytes]) -> tuple[_Conversation, int]:
        """Return the conversation that goes on, a new one if none does, and how many of its messages are known."""
        best, kept = self._best(digests)
        if best is None:
            best = _Conversation(self._count, self._parent(digests))
            self._count += 1
        best.digests = digests
        self._remember(best)
        return best, kept

    def _best(self, digests: list[bytes]) -> tuple[_Conversation | None, int]:
        known = [each for each in self._conversations if each.digests and digests[: len(each.digests)] == each.digests]
        best = max(known, key=lambda each: len(each.digests), default=None)
        return best, 0 if best is None else len(best.digests)

    def _remember(self, last: _Conversation) -> None:
        others = [each for each in self._conversations if each is not last]
        self._conversations = [*others, last][-_REMEMBERED:]

    def _parent(self, digests: list[bytes]) -> int | None:
        """Return the conversation that shares the longest beginning; the latest of several."""
        shared = [(_common(digests, each.digests), each.number) for each in self._conversations]
        longest, number = max(shared, default=(0, 0))
        return number if longest else None


def _result(part: ToolResultPart, index: int, conversation: int) -> dict[str, Any]:
    found: dict[str, Any] = {"conversation": conversation, "index": index, "id": part["id"]}
    found |= {"content": part["content"], "is_error": part["is_error"]}
    return found | ({"media": part["media"]} if part.get("media") else {})


def _changed(conversation: _Conversation, tools: list[Tool]) -> dict[str, Any]:
    """Return the tools of a request where they are others than those of the request before."""
    digest = _digest_of_tools(tools)
    if digest == conversation.tools:
        return {}
    conversation.tools = digest
    return {"tools": tools}


def _digest_of_tools(tools: list[Tool]) -> str | None:
    return hashlib.sha256(orjson.dumps(tools, option=orjson.OPT_SORT_KEYS)).hexdigest() if tools else None


def _judged(arguments: str, tool: Tool | None, effort: Effort, *, broken: bool) -> dict[str, Any]:
    """Return whether a call is one of a tool of the request, and fits what that tool takes."""
    if tool is None:
        return {"known": False, "valid": None, "problem": "no tool of this request has this name"}
    if broken:  # what is missing is no mistake of the model
        return {"known": True, "valid": None, "problem": "the answer broke off"}
    found = fit(arguments, tool, effort)
    return {"known": True, "valid": found.valid, "problem": found.problem}


def _common(one: list[bytes], other: list[bytes]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _digest(item: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(orjson.dumps(item, option=orjson.OPT_SORT_KEYS)).digest()
