"""The events of a trajectory as model calls with their whole conversation, and uses of tools with what came of them.

What every export has in common. Agents wrote much of this, so any field may be missing or of another type: it is then left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from orchestrator.records.event import Event
from orchestrator.records.message import Message

_MOST_DEPTH = 64
"""Levels of arguments, as many as a request to the gateway may have."""


@dataclass(kw_only=True)
class ModelCall:
    """One request to a model and its answer."""

    seq: int
    """Number of the request's event."""
    started: float
    """Seconds since 1970."""
    ended: float | None = None
    model: str = ""
    """``provider/name`` as it was asked for."""
    endpoint: str = "chat"
    conversation: int = 0
    stream: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    """What was offered."""
    input: list[Message] = field(default_factory=list)
    """The whole conversation; entries that calls share are the same objects."""
    kept: int = 0
    """How many of them are known from earlier calls of the conversation."""
    response: dict[str, Any] | None = None
    """Data of the event ``model_response``."""
    error: dict[str, Any] | None = None
    """Data of the last ``model_error``; an answer may have come after it."""
    attempts: int = 0
    """Failed attempts."""

    @property
    def provider(self) -> str:
        """The part of the model's name before the slash."""
        return self.model.partition("/")[0]

    @property
    def answer(self) -> Message | None:
        """What the model said."""
        found = (self.response or {}).get("message")
        return _message(found) if isinstance(found, dict) else None

    @property
    def tokens(self) -> dict[str, int]:
        """Counts by bucket, those that are known."""
        found = (self.response or {}).get("tokens")
        return {k: v for k, v in found.items() if isinstance(v, int)} if isinstance(found, dict) else {}


@dataclass(kw_only=True)
class ToolUse:
    """One call of a tool and what came of it."""

    seq: int
    source: str
    """``agent``: the model asked for it and the agent told the result. ``gateway``: one of the gateway's own tools, with no such call."""
    name: str
    id: str | None
    arguments: str | dict[str, Any] | None
    started: float
    request: int | None = None
    """The model call that asked for it."""
    conversation: int = 0
    ended: float | None = None
    result: str | None = None
    is_error: bool | None = None
    valid: bool | None = None
    problem: str | None = None
    outcome: str | None = None
    """What the gateway saw come of it, when the tool was one of its own."""
    seconds: float | None = None
    """How long it took there."""

    @property
    def parsed(self) -> dict[str, Any] | None:
        """The arguments as an object; None when they are none."""
        return object_of(self.arguments or "{}")


@dataclass(kw_only=True)
class Story:
    """What one launch did, in order."""

    calls: list[ModelCall] = field(default_factory=list)
    tools: list[ToolUse] = field(default_factory=list)
    others: list[Event] = field(default_factory=list)
    """Everything else, as it was recorded."""
    started: float = 0.0
    ended: float = 0.0

    @property
    def main(self) -> int:
        """The conversation with most calls, the first of several: the others are sub-agents, titles, compaction."""
        counts: dict[int, int] = {}
        for call in self.calls:
            counts[call.conversation] = counts.get(call.conversation, 0) + 1
        return min(counts, key=lambda number: (-counts[number], number), default=0)


def tell(events: Iterable[Event]) -> Story:
    """Return the story of one launch."""
    teller = _Teller()
    for event in events:
        teller.take(event)
    return teller.done()


class _Teller:
    def __init__(self) -> None:
        self.story = Story()
        self._first = True
        self._calls: dict[int, ModelCall] = {}
        self._entries: dict[int, list[Message]] = {}
        """The conversations, as the last request of each had them."""
        self._tools: dict[int, list[dict[str, Any]]] = {}
        self._results: dict[int, dict[int, Message]] = {}
        """Tool results that have come for the next request of a conversation, by index."""
        self._uses: dict[int, ToolUse] = {}

    def take(self, event: Event) -> None:
        if self._first:
            self.story.started, self._first = event.t, False
        self.story.ended = max(self.story.ended, event.t)
        told = event.source == "agent"
        handler = {
            "model_request": self._request,
            "model_response": self._response,
            "model_error": self._error,
            "tool_call": self._call,
            "tool_result": self._told if told else self._seen,
        }.get(event.type, self._other)
        handler(event)

    def done(self) -> Story:
        self.story.tools = _paired(list(self._uses.values()))
        return self.story

    def _request(self, event: Event) -> None:
        data = event.data
        number = _int(data.get("conversation")) or 0
        kept = max(0, _int(data.get("kept")) or 0)
        before = self._entries.get(number)
        if before is None and (parent := _int(data.get("parent"))) is not None:
            before = self._entries.get(parent)
        places = {**dict(enumerate((before or [])[:kept])), **self._results.pop(number, {})}
        for raw in _list(data.get("messages")):
            index = _int(raw.get("index")) if isinstance(raw, dict) else None
            if index is not None:
                places[index] = _message(raw)
        entries = [places[index] for index in sorted(places)]
        self._entries[number] = entries
        if "tools" in data:
            self._tools[number] = [tool for tool in _list(data["tools"]) if isinstance(tool, dict)]
        params = data.get("params")
        call = ModelCall(
            seq=event.seq,
            started=event.t,
            model=_text(data.get("model")),
            endpoint=_text(data.get("endpoint")) or "chat",
            conversation=number,
            stream=data.get("stream") is True,
            params=params if isinstance(params, dict) else {},
            tools=self._tools.get(number, []),
            input=entries,
            kept=min(kept, len(entries)),
        )
        self._calls[event.seq] = call
        self.story.calls.append(call)

    def _response(self, event: Event) -> None:
        if (call := self._calls.get(_int(event.data.get("request")) or 0)) is not None:
            call.response, call.ended = event.data, event.t

    def _error(self, event: Event) -> None:
        if (call := self._calls.get(_int(event.data.get("request")) or 0)) is not None:
            call.error, call.ended = event.data, event.t
            call.attempts += 1

    def _call(self, event: Event) -> None:
        data = event.data
        arguments = data.get("arguments")
        self._uses[event.seq] = ToolUse(
            seq=event.seq,
            source=event.source,
            name=_text(data.get("name")),
            id=_text(data.get("id")) or None,
            arguments=arguments if isinstance(arguments, str | dict) else None,
            started=event.t,
            request=_int(data.get("request")),
            conversation=_int(data.get("conversation")) or 0,
            valid=valid if isinstance(valid := data.get("valid"), bool) else None,
            problem=_text(data.get("problem")) or None,
        )

    def _told(self, event: Event) -> None:
        data = event.data
        number, index = _int(data.get("conversation")) or 0, _int(data.get("index"))
        identity, content, failed = (
            _text(data.get("id")) or None,
            _text(data.get("content")),
            data.get("is_error") is True,
        )
        if index is not None:
            part = {"type": "tool_result", "id": identity, "content": content, "is_error": failed}
            self._results.setdefault(number, {})[index] = cast("Message", {"role": "tool", "parts": [part]})
        for use in reversed(self._uses.values()):
            if use.source == "agent" and use.id == identity and use.ended is None and identity is not None:
                use.ended, use.result, use.is_error = event.t, content, failed
                return

    def _seen(self, event: Event) -> None:
        data = event.data
        number = _int(data.get("call"))
        use = None if number is None else self._uses.get(number)
        if use is None:
            return
        content = data.get("content")
        use.ended = event.t
        use.result = content if isinstance(content, str) else None if content is None else json.dumps(content)
        use.outcome = _text(data.get("outcome")) or None
        use.is_error = use.outcome not in {None, "ok"}
        seconds = data.get("seconds")
        use.seconds = float(seconds) if isinstance(seconds, int | float) else None

    def _other(self, event: Event) -> None:
        self.story.others.append(event)


def _paired(uses: Sequence[ToolUse]) -> list[ToolUse]:
    """Return the uses with those of the gateway's own tools that a model asked for as one: what was asked, with what was seen."""
    asked = [use for use in uses if use.source == "agent"]
    found: list[ToolUse] = []
    taken: set[int] = set()
    for use in uses:
        twin = None
        if use.source == "gateway":
            twin = next(
                (one for one in reversed(asked) if one.seq < use.seq and one.seq not in taken and _same(one, use)), None
            )
        if twin is None:
            found.append(use)
            continue
        taken.add(twin.seq)
        twin.outcome, twin.seconds = use.outcome, use.seconds
        twin.result = use.result if twin.result is None else twin.result
        twin.ended = twin.ended or use.ended
    return found


def _same(asked: ToolUse, seen: ToolUse) -> bool:
    """Return whether a call of the gateway's is what the model asked for; clients put the server's name before the tool's."""
    return (asked.name == seen.name or asked.name.endswith(f"__{seen.name}")) and asked.parsed == seen.parsed


def _message(raw: dict[str, Any]) -> Message:
    parts = [part for part in _list(raw.get("parts")) if isinstance(part, dict) and isinstance(part.get("type"), str)]
    whole = [part for part in parts if part["type"] not in {"text", "reasoning"} or isinstance(part.get("text"), str)]
    return cast("Message", {"role": _text(raw.get("role")) or "user", "parts": whole})


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def object_of(arguments: Any) -> dict[str, Any] | None:
    """Return what was given, or its JSON text, as an object; None for anything else.

    Neither for what only some programs read: NaN, numbers beyond all, half a surrogate pair, hundreds of levels. What models write is up
    to agents, and one call must not spoil a file with the trials of a whole run.
    """
    try:
        if isinstance(arguments, str):
            orjson.loads(arguments)  # takes none of these but levels
            arguments = json.loads(arguments)  # and this keeps the digits of long numbers
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) and _nests_at_most(arguments, _MOST_DEPTH) else None


def _nests_at_most(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth >= 0 and all(_nests_at_most(each, depth - 1) for each in inner)


def thoughts_of(message: Message) -> str:
    """Return the reasoning of a message."""
    return "\n".join(part["text"] for part in message["parts"] if part["type"] == "reasoning" and part["text"])
