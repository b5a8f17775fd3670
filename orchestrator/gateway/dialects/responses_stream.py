"""Follows a streamed answer of the Responses API."""

from __future__ import annotations

from typing import Any

from orchestrator.gateway.dialects.base import ServerEvent, StreamError
from orchestrator.gateway.dialects.responses_items import CALLS, kind_of
from orchestrator.gateway.dialects.shape import entries, load, obj, text, word

_SKELETON: dict[str, Any] = {"id": None, "object": "response", "status": "in_progress", "model": None, "usage": None}
_DELTAS = {
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
    "response.function_call_arguments.delta": ("arguments", "", "", ""),
    "response.custom_tool_call_input.delta": ("input", "", "", ""),
}
"""Where in its item a piece belongs: a field of texts with an index, their type and their own field; or a field that is a text itself."""
_END = {"response.completed", "response.incomplete"}


class _Item:
    """One item of the output: as it began, with the pieces since; or as it ended."""

    def __init__(self, item: dict[str, Any]) -> None:
        self._item = item
        self._pieces: dict[tuple[str, int, str, str], list[str]] = {}
        self.counted = False

    def add(self, place: tuple[str, int, str, str], piece: str) -> None:
        """Take a piece."""
        self._pieces.setdefault(place, []).append(piece)

    def end(self, item: dict[str, Any]) -> None:
        """Take the item as it ended."""
        self._item = item
        self._pieces.clear()

    def whole(self) -> dict[str, Any]:
        """Return the item."""
        found = dict(self._item)
        lists: dict[str, list[dict[str, Any]]] = {}
        for (field, index, kind, inner), pieces in sorted(self._pieces.items()):
            if not inner:
                found[field] = text(found.get(field)) + "".join(pieces)
                continue
            if field not in lists:
                found[field] = lists[field] = [dict(part) for part in entries(found.get(field))]
            listed = lists[field]
            while len(listed) <= index:
                listed.append({"type": kind, inner: ""})
            listed[index][inner] = text(listed[index].get(inner)) + "".join(pieces)
        return found


class ResponsesReader:
    """One answer."""

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0
        self.done = False
        self._response: dict[str, Any] = dict(_SKELETON)
        self._items: dict[int, _Item] = {}

    def take(self, event: ServerEvent) -> list[ServerEvent]:
        """Take the provider's next event and return what the agent gets for it: the same."""
        if event.data.strip() == "[DONE]":
            return [event]
        value = load(event)
        kind = text(value.get("type"))
        if kind in _DELTAS:
            self._piece(value, *_DELTAS[kind])
        elif kind == "response.output_item.added":
            self._begin(_index(value, "output_index"), obj(value.get("item")))
        elif kind == "response.output_item.done":
            self._end(_index(value, "output_index"), obj(value.get("item")))
        elif kind in ("error", "response.failed"):
            _raise(value)
        elif isinstance(value.get("response"), dict):
            self._response |= value["response"]
            self.done = kind in _END
        return [event]

    def answer(self) -> dict[str, Any]:
        """Return the answer so far. The end of a stream tells it whole, at most providers."""
        output = [self._items[index].whole() for index in sorted(self._items)]
        told = entries(self._response.get("output"))
        return {**self._response, "output": told if self.done and told else output}

    def _begin(self, index: int, item: dict[str, Any]) -> _Item:
        self._items[index] = _Item(item)
        self.calls += kind_of(item) in CALLS
        return self._items[index]

    def _end(self, index: int, item: dict[str, Any]) -> None:
        known = self._items.get(index) or self._begin(index, item)
        if not known.counted:
            self.characters += _characters(item)
        known.end(item)

    def _piece(self, value: dict[str, Any], field: str, counter: str, kind: str, inner: str) -> None:
        item = self._items.get(_index(value, "output_index"))
        piece = text(value.get("delta"))
        if item is None or not piece:
            return
        at = _index(value, counter) if counter else 0
        item.add((field, at, kind, inner), piece)
        item.counted = True
        self.characters += len(piece)


def _index(value: dict[str, Any], name: str) -> int:
    found = value.get(name)
    if not isinstance(found, int) or not 0 <= found < 10_000:
        msg = f"an event about a part of the answer has no usable {name}"
        raise ValueError(msg)
    return found


def _characters(item: dict[str, Any]) -> int:
    """Return the characters of an item that came whole."""
    texts = [part.get("text") for field in ("content", "summary") for part in entries(item.get(field))]
    return sum(len(text(each)) for each in (*texts, item.get("arguments"), item.get("input")))


def _raise(value: dict[str, Any]) -> None:
    error = obj(obj(value.get("response")).get("error")) or obj(value.get("error")) or value
    code = word(error.get("code")) or (word(error.get("type")) if error is not value else None)
    raise StreamError(code, text(error.get("message")) or "the provider gave no reason")
