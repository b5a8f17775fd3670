"""Follows a streamed answer of the Messages API."""

from __future__ import annotations

from typing import Any

import orjson

from orchestrator.gateway.body import within_depth
from orchestrator.gateway.dialects.base import ServerEvent, StreamError
from orchestrator.gateway.dialects.shape import MOST_DEPTH, load, obj, text, word

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_SKELETON = {
    "id": None,
    "type": "message",
    "role": "assistant",
    "model": None,
    "stop_reason": None,
    "stop_sequence": None,
}


class _Block:
    """One block of the content."""

    def __init__(self, start: dict[str, Any]) -> None:
        self._start = start
        self._pieces: dict[str, list[str]] = {}
        self._citations: list[Any] = []

    def add(self, delta: dict[str, Any]) -> int:
        """Take a delta. Returns the number of its characters."""
        kind = text(delta.get("type"))
        if kind == "signature_delta":
            self._start["signature"] = delta.get("signature")
        elif kind == "citations_delta":
            self._citations.append(delta.get("citation"))
        piece = text(delta.get(_TEXTS.get(kind, "")))
        if piece:
            self._pieces.setdefault(_TEXTS[kind], []).append(piece)
        return len(piece)

    def whole(self) -> dict[str, Any]:
        """Return the block as an answer holds it. Arguments that are no JSON, such as cut ones, stay the text that they are."""
        found = dict(self._start)
        for field, pieces in self._pieces.items():
            if field == "partial_json":
                found["input"] = _parsed("".join(pieces))
            else:
                found[field] = text(found.get(field)) + "".join(pieces)
        if self._citations:
            found["citations"] = list(self._citations)
        return found


class MessagesReader:
    """One answer."""

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0
        self.done = False
        self._message: dict[str, Any] = dict(_SKELETON)
        self._usage: dict[str, Any] | None = None
        self._blocks: dict[int, _Block] = {}

    def take(self, event: ServerEvent) -> list[ServerEvent]:
        """Take the provider's next event and return what the agent gets for it: the same."""
        value = load(event)
        match value.get("type"):
            case "message_start":
                self._message |= obj(value.get("message"))
                self._add_usage(self._message.pop("usage", None))
            case "content_block_start":
                self._begin(value.get("index"), obj(value.get("content_block")))
            case "content_block_delta":
                block = self._blocks.get(_index(value.get("index")))
                self.characters += block.add(obj(value.get("delta"))) if block is not None else 0
            case "message_delta":
                self._message |= obj(value.get("delta"))
                self._add_usage(value.get("usage"))
            case "message_stop":
                self.done = True
            case "error":
                _raise(value)
        return [event]

    def answer(self) -> dict[str, Any]:
        """Return the answer so far."""
        content = [self._blocks[index].whole() for index in sorted(self._blocks)]
        return {**self._message, "content": content, "usage": self._usage}

    def _begin(self, index: Any, start: dict[str, Any]) -> None:
        self._blocks[_index(index)] = _Block(start)
        self.calls += start.get("type") == "tool_use"
        self.characters += len(text(start.get("text")))

    def _add_usage(self, usage: Any) -> None:
        """Take counts: they are totals so far, and a later report leaves out what an earlier one has told."""
        if isinstance(usage, dict):
            self._usage = self._usage or {}
            self._usage.update((key, value) for key, value in usage.items() if value is not None)


def _index(value: Any) -> int:
    if not isinstance(value, int):
        msg = "an event about a block of the content has no index"
        raise ValueError(msg)
    return value


def _parsed(arguments: str) -> Any:
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    return value if within_depth([value], MOST_DEPTH) else arguments


def _raise(value: dict[str, Any]) -> None:
    error = obj(value.get("error"))
    raise StreamError(word(error.get("type")), text(error.get("message")) or "the provider gave no reason")
