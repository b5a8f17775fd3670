"""One imported trace as a trajectory: everything in it is of ``source: agent``, since nobody here saw it happen."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import orjson
from pydantic import JsonValue

from orchestrator.gateway.dialects.base import Reply
from orchestrator.gateway.schemas import fit
from orchestrator.records.event import EventType
from orchestrator.records.message import Endpoint, Message, Tool, ToolCallPart, ToolResultPart, calls_of
from orchestrator.records.outcome import Unrecorded
from orchestrator.records.prices import KnownPrice, priced
from orchestrator.records.state import EndedAs, FinalAnswer
from orchestrator.records.termination import REASONS, TerminationReason
from orchestrator.records.usage import Usage
from orchestrator.trace.write import shorten

MOST_NAME = 60
"""Characters of the name of a task or agent."""
MOST_MODEL = 200
"""Characters of the name of a model."""
_ADDED = frozenset({"tools", "known", "valid", "problem"})
"""Fields of events that depend on what was given beside a trace."""
_ODD = re.compile(r"[^a-z0-9._]+")


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One trace, its trajectory in a file of ours, and what it says of itself. None: it does not say."""

    identity: str
    """Digest of what the trace says, in hex: equal traces have equal ones, wherever and with whatever options they were read."""
    path: Path
    sha256: str
    """Digest of the file, in hex."""
    file: str
    """Where it was read, and from which line on."""
    line: int
    task: str | None
    agent: str | None
    reason: TerminationReason
    ended_as: EndedAs | None
    final: FinalAnswer | None = None
    """The whole ending that the agent gave, where it is known."""
    usage: Usage | None
    """Tokens, if all responses tell theirs; its cost is None unless all tell that, too."""
    steps: int
    tool_calls: int
    models: tuple[str, ...]
    prices: Mapping[str, KnownPrice]
    """What its models cost, where the trace itself did not say, by ``provider/name``."""
    started: float | None
    """Seconds since 1970."""
    ended: float | None
    waiting_s: float | None

    @property
    def unrecorded(self) -> tuple[Unrecorded, ...]:
        """What nobody knows of it."""
        facts: Mapping[Unrecorded, object] = {
            "tokens": self.usage,
            "times": self.started,
            "waiting": self.waiting_s,
        }
        return tuple(word for word, value in facts.items() if value is None)


def slug(value: object, otherwise: str) -> str:
    """Return foreign text as the name of a task or agent."""
    text = _ODD.sub("-", str(value).lower())[:MOST_NAME].strip("-._") if isinstance(value, str | int) else ""
    return text or otherwise


def reason_of(value: object) -> TerminationReason | None:
    """Return a termination reason that a trace states in our words; None for anything else: nothing is guessed."""
    return value if isinstance(value, str) and value in REASONS else None


def ending_of(value: object) -> EndedAs | None:
    """Return the ending that an agent gave, in our words; None for anything else."""
    return value if value in get_args(EndedAs) else None  # type: ignore[return-value]


Price = Callable[[str], KnownPrice | None]
"""Says what ``provider/name`` costs, if that is known."""


@dataclass(frozen=True)
class Given:
    """What is known beside a trace."""

    price: Price
    tools: list[Tool] | None = None
    """Tools that were offered where a trace does not say."""


@dataclass
class Recorder:
    """Writes one trace down. Times are seconds since 1970; None where the trace has none, which the event shows as 0."""

    path: Path
    facts: Mapping[str, JsonValue]
    """What the first event says: the format, and the trace's own names."""
    price: Price
    started: float | None = None
    """When it began, if that is known beforehand."""
    endpoint: Endpoint = "chat"
    """The shape of its conversation."""
    models: set[str] = field(default_factory=set)
    prices: dict[str, KnownPrice] = field(default_factory=dict)
    steps: int = 0
    tool_calls: int = 0
    usage: Usage | None = field(default_factory=lambda: Usage(cost_nano_usd=0))
    _seq: int = 0
    _first: float | None = None
    _last: float | None = None
    _timed: bool = True
    _kept: dict[int, int] = field(default_factory=dict)
    _tools: dict[int, Sequence[Tool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._digest, self._identity = hashlib.sha256(), hashlib.sha256()
        self._file = self.path.open("xb")
        self.event("launch", self.started, {"imported": dict(self.facts)})

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def event(self, kind: EventType, at: float | None, data: Mapping[str, Any]) -> int:
        """Add an event and return its number."""
        if at is not None:
            self._first = at if self._first is None else min(self._first, at)
            self._last = at if self._last is None else max(self._last, at)
        head = {"v": 1, "seq": self._seq, "t": at or 0.0, "source": "agent", "type": kind}
        line = _line({**head, **{key: shorten(value) for key, value in data.items()}})
        self._file.write(line)
        self._digest.update(line)
        if kind != "seal":
            said = {key: value for key, value in data.items() if key not in _ADDED}
            self._identity.update(_line({"t": at, "type": kind, **said}))
        self._seq += 1
        return self._seq - 1

    def request(
        self,
        messages: Sequence[Message],
        at: float | None,
        *,
        model: str | None = None,
        tools: Sequence[Tool] | None = None,
        conversation: int = 0,
    ) -> int:
        """Add what a model was told since the last request of the conversation, results of tools first."""
        kept = self._kept.get(conversation, 0)
        self._kept[conversation] = kept + len(messages)
        new: list[JsonValue] = []
        for index, message in enumerate(messages, kept):
            for part in message["parts"]:
                if part["type"] == "tool_result":
                    self.result(part, at, conversation=conversation, index=index)
            rest = [part for part in message["parts"] if part["type"] != "tool_result"]
            if rest:
                new.append({"index": index, **message, "parts": rest})  # type: ignore[dict-item]  # a message is JSON
        told = {} if not tools or self._tools.get(conversation) == tools else {"tools": list(tools)}
        if tools:
            self._tools[conversation] = tools
        facts = {
            "model": model,
            "endpoint": self.endpoint,
            "stream": False,
            "conversation": conversation,
            "parent": None,
        }
        counts = {"kept": kept, "total": kept + len(messages), "messages": new, "params": {}}
        return self.event("model_request", at, {**facts, **counts, **told})

    def result(
        self, part: ToolResultPart, at: float | None, *, conversation: int = 0, index: int | None = None
    ) -> None:
        """Add what came of a call."""
        facts = {"id": part["id"], "content": part["content"], "is_error": part["is_error"]}
        self.event("tool_result", at, {"conversation": conversation, "index": index, **facts})

    def response(
        self,
        request: int,
        reply: Reply,
        at: float | None,
        *,
        seconds: float | None = None,
        conversation: int = 0,
        provider: str | None = None,
    ) -> None:
        """Add what a model answered, and the calls in it. Its cost is what the trace says, else by the price of ``provider/name``.

        A cost by price is in the totals alone: a trace is the same trace when prices have changed.
        """
        self.steps += 1
        self._kept[conversation] = self._kept.get(conversation, 0) + 1
        if reply.model:
            self.models.add(reply.model[:MOST_MODEL])
        self.usage = (
            None if self.usage is None or not (cost := self._priced(reply, provider)) else self.usage.plus(cost)
        )
        tokens = None if reply.tokens is None else reply.tokens.model_dump()
        facts = {"id": reply.id, "model": reply.model, "message": reply.message, "finish_reason": reply.finish_reason}
        spent = {"usage": reply.usage, "tokens": tokens, "estimated": False, "seconds": seconds}
        self.event("model_response", at, {"request": request, **facts, **spent})
        for call in calls_of(reply.message):
            self.call(call, at, request=request, conversation=conversation)

    def _priced(self, reply: Reply, provider: str | None) -> Usage | None:
        if reply.tokens is None or reply.tokens.cost_nano_usd is not None or not reply.model:
            return reply.tokens
        model = f"{provider}/{reply.model}" if provider else reply.model
        known = self.price(model)
        if known is not None:
            self.prices[model] = known
        return priced(reply.tokens, None if known is None else known.price)

    def call(self, part: ToolCallPart, at: float | None, *, request: int | None = None, conversation: int = 0) -> None:
        """Add a call, held against the schema of its tool if one is known."""
        self.tool_calls += 1
        facts = {"request": request, "conversation": conversation, "id": part["id"], "name": part["name"]}
        checked = _checked(part, self._tools.get(conversation))
        self.event("tool_call", at, {**facts, "arguments": part["arguments"], **checked})

    def close(  # noqa: PLR0913 - what a trace says of itself
        self,
        file: str,
        line: int,
        *,
        task: str | None = None,
        agent: str | None = None,
        reason: TerminationReason | None = None,
        ended_as: EndedAs | None = None,
        usage: Usage | None = None,
        span: tuple[float, float] | None = None,
    ) -> Trace:
        """Write the last event and return the trace. ``usage``, ``span``: totals that it states; else they are made of its events."""
        tokens = usage or (self.usage if self.steps else None)
        known = None if self._first is None or self._last is None else (self._first, self._last)
        started, ended = span or known or (None, None)
        totals = {"steps": self.steps, "tool_calls": self.tool_calls, "termination_reason": reason or "not_recorded"}
        self.event("seal", ended, {**totals, "sha256_before": self._digest.hexdigest()})
        self._file.flush()
        return Trace(
            identity=self._identity.hexdigest(),
            path=self.path,
            sha256=self._digest.hexdigest(),
            file=file,
            line=line,
            task=task,
            agent=agent,
            reason=reason or "not_recorded",
            ended_as=ended_as,
            usage=tokens,
            steps=self.steps,
            tool_calls=self.tool_calls,
            models=tuple(sorted(self.models)),
            prices=self.prices,
            started=started,
            ended=ended,
            waiting_s=None,
        )


def _checked(part: ToolCallPart, tools: Sequence[Tool] | None) -> dict[str, JsonValue]:
    """Return whether a call is of an offered tool and fits its schema; null where the trace does not say what was offered."""
    if not tools:
        return {"known": None, "valid": None, "problem": None}
    offered = {tool["name"]: tool for tool in tools}
    tool = offered.get(part["name"])
    if tool is None:
        return {"known": False, "valid": None, "problem": "no such tool was offered"}
    valid, problem = fit(part["arguments"], tool)
    return {"known": True, "valid": valid, "problem": problem}


def _line(event: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # half a surrogate pair, or a number beyond 64 bits
        return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
