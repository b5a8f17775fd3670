"""Follows a streamed answer of the Chat Completions API."""

from __future__ import annotations

from typing import Any

from orchestrator.gateway.dialects.base import ServerEvent, StreamError
from orchestrator.gateway.dialects.shape import dump, entries, load, obj, text, word

_HEAD = ("id", "created", "model", "service_tier", "system_fingerprint")
_LISTS = ("annotations", "reasoning_details")
"""Fields of a message that come as lists, piece by piece."""


class _Call:
    """One tool call that comes in pieces."""

    def __init__(self, call_id: str | None, kind: str) -> None:
        self.id = call_id
        self.kind = kind
        self.name: str | None = None
        self.arguments: list[str] = []

    def whole(self) -> dict[str, Any]:
        """Return the call as an answer holds it."""
        field = "input" if self.kind == "custom" else "arguments"
        return {
            "id": self.id,
            "type": self.kind,
            self.kind: {"name": self.name, field: "".join(self.arguments)},
        }


class ChatReader:
    """One answer. Only its first choice is read: requests for more are refused."""

    def __init__(self, *, shows_usage: bool, keeps_lists: bool = False) -> None:
        """``keeps_lists``: log probabilities and the like, which are large and nobody looks at here, stand in the answer."""
        self.calls = 0
        self.characters = 0
        self.done = False
        self._shows_usage = shows_usage
        self._keeps_lists = keeps_lists
        self._lists: dict[str, list[Any]] = {}
        self._logprobs: dict[str, list[Any]] = {}
        self._head: dict[str, Any] = {}
        self._role = "assistant"
        self._texts: dict[str, list[str]] = {}
        self._asked: list[_Call] = []
        self._places: dict[int, _Call] = {}
        self._finish: str | None = None
        self._usage: Any = None

    def take(self, event: ServerEvent) -> list[ServerEvent]:
        """Take the provider's next event and return what the agent gets for it."""
        if event.data.strip() == "[DONE]":
            self.done = True
            return [event]
        chunk = load(event)
        _raise_error(chunk)
        self._head |= {key: chunk[key] for key in _HEAD if chunk.get(key) is not None}
        choices = entries(chunk.get("choices"))
        for choice in choices:
            if choice.get("index", 0) == 0:
                self._add(choice)
        if "usage" not in chunk:
            return [event]
        if chunk["usage"] is not None:
            self._usage = chunk["usage"]
        if self._shows_usage:
            return [event]
        if not choices and chunk["usage"] is not None:
            return []
        del chunk["usage"]
        return [ServerEvent(dump(chunk), event.event)]

    def answer(self) -> dict[str, Any]:
        """Return the answer so far."""
        message: dict[str, Any] = {"role": self._role, "content": "".join(self._texts.get("content", ())) or None}
        message |= {name: "".join(found) for name, found in self._texts.items() if name != "content"}
        if self._asked:
            message["tool_calls"] = [call.whole() for call in self._asked]
        message |= self._lists
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        if self._logprobs:
            choice["logprobs"] = self._logprobs
        return {
            "id": None,
            "object": "chat.completion",
            "created": 0,
            "model": None,
            **self._head,
            "choices": [choice],
            "usage": self._usage,
        }

    def _add(self, choice: dict[str, Any]) -> None:
        delta = obj(choice.get("delta"))
        if self._keeps_lists:
            _extend(self._lists, {name: delta.get(name) for name in _LISTS})
            _extend(self._logprobs, obj(choice.get("logprobs")))
        for name in ("reasoning_content", "reasoning", "refusal"):
            self._say(name, text(delta.get(name)))
        self._content(delta.get("content"))
        for call in entries(delta.get("tool_calls")):
            self._call(call)
        finish = word(choice.get("finish_reason"))
        if finish is not None:
            # Not every provider sends ``[DONE]``. The usage may come after this.
            self._finish, self.done = finish, True

    def _content(self, content: Any) -> None:
        self._say("content", text(content))
        for part in entries(content):  # Mistral's reasoning models stream lists of parts
            self._say("content", text(part.get("text")))
            for thought in entries(part.get("thinking")):
                self._say("reasoning_content", text(thought.get("text")))

    def _say(self, name: str, piece: str) -> None:
        if piece:
            self._texts.setdefault(name, []).append(piece)
            self.characters += len(piece)

    def _call(self, delta: dict[str, Any]) -> None:
        call = self._place(delta)
        inner = obj(delta.get(call.kind))
        call.name = call.name or word(inner.get("name"))
        piece = text(inner.get("input" if call.kind == "custom" else "arguments"))
        call.arguments.append(piece)
        self.characters += len(piece)

    def _place(self, delta: dict[str, Any]) -> _Call:
        """Return the call that a piece belongs to. Some providers send no index, or the same one for each call."""
        call_id = word(delta.get("id")) or None
        index = delta.get("index")
        index = index if isinstance(index, int) else None
        known = self._places.get(index) if index is not None else None
        if index is None and call_id is None and self._asked:
            known = self._asked[-1]
        if known is None or (call_id is not None and known.id not in (None, call_id)):
            known = _Call(call_id, "custom" if isinstance(delta.get("custom"), dict) else "function")
            self._asked.append(known)
            self.calls = len(self._asked)
            if index is not None:
                self._places[index] = known
        known.id = known.id or call_id
        return known


def _extend(lists: dict[str, list[Any]], more: dict[str, Any]) -> None:
    for name, values in more.items():
        if isinstance(values, list):
            lists.setdefault(name, []).extend(values)


def _raise_error(chunk: dict[str, Any]) -> None:
    """Raise StreamError when a chunk reports a failure."""
    error = chunk.get("error")
    if error is None:
        return
    if isinstance(error, str):
        raise StreamError(None, error)
    found = obj(error)
    code = found.get("code") or found.get("type")
    raise StreamError(
        str(code) if code is not None else None, text(found.get("message")) or "the provider gave no reason"
    )
