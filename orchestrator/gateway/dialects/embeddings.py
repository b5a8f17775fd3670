"""``/v1/embeddings``, the Embeddings API of OpenAI and of everybody who is compatible with it. It has no streams and no tools."""

from __future__ import annotations

import base64
import hashlib
from array import array
from collections.abc import Mapping
from typing import Any, NoReturn

from orchestrator.gateway.dialects import rules
from orchestrator.gateway.dialects.base import Dialect, Reply, Said, ServerEvent
from orchestrator.gateway.dialects.shape import entries, other_part, text_part, word
from orchestrator.gateway.dialects.tokens import embeddings_tokens
from orchestrator.gateway.refusal import Refusal
from orchestrator.records.message import Endpoint, Message, Tool

_MOST_NUMBERS = 2_000_000
"""That one answer may hold when the request says how long the vectors shall be."""
_SCRIPTED_NUMBERS = 16
"""Of a scripted vector, when it does not."""


class EmbeddingsDialect:
    """Embeddings."""

    name: Endpoint = "embeddings"
    path = "/v1/embeddings"
    upstream = "/embeddings"

    def check(self, body: Mapping[str, Any], most_messages: int, hosted: frozenset[str]) -> None:
        """Refuse what may not be asked. Raises Refusal."""
        rules.refuse_fields(body)
        if body.get("stream"):
            raise rules.unsupported("stream", "embeddings are not streamed", finding=False)
        inputs = _inputs(body)
        if not inputs:
            msg = "`input` must be a text, a list of texts, a list of token numbers or a list of such lists, and not empty"
            raise Refusal(400, "invalid_request", msg)
        if len(inputs) > most_messages:
            msg = f"`input` has {len(inputs)} entries, at most {most_messages} are taken; ask for less at a time"
            raise Refusal(413, "request_too_large", msg, finding=True)
        size = body.get("dimensions")
        if size is not None and (not isinstance(size, int) or not 0 < size * len(inputs) <= _MOST_NUMBERS):
            msg = f"`dimensions` must be a positive number, and all vectors of an answer have at most {_MOST_NUMBERS} numbers"
            raise Refusal(400, "invalid_request", msg)

    def items(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return each input."""
        return [{"role": "user", "content": each} for each in _inputs(body)]

    def message(self, item: Mapping[str, Any]) -> Message:
        """Return an input in the one form. Of token numbers it says how many there are."""
        content = item.get("content")
        known = isinstance(content, list)
        part = other_part("tokens", len(content)) if known and content else text_part(word(content) or "")
        return {"role": "user", "parts": [part]}

    def tools(self, body: Mapping[str, Any]) -> list[Tool]:
        """Return none."""
        return []

    def params(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of a request."""
        return {key: value for key, value in body.items() if key not in {"input", "model"}}

    def outgoing(self, body: Mapping[str, Any], model: str) -> dict[str, Any]:
        """Return what is sent."""
        return {**body, "model": model}

    def is_answer(self, value: Mapping[str, Any]) -> bool:
        """Return whether there are vectors."""
        return bool(entries(value.get("data")))

    def reply(self, answer: Mapping[str, Any]) -> Reply:
        """Return who answered and what it used; vectors say nothing to a reader."""
        return Reply(
            id=word(answer.get("id")),
            model=word(answer.get("model")),
            message={"role": "assistant", "parts": []},
            finish_reason=None,
            usage=answer.get("usage"),
            tokens=embeddings_tokens(answer.get("usage")),
        )

    def reader(self, body: Mapping[str, Any], *, is_shown: bool = True) -> NoReturn:
        """Raise TypeError: ``check`` refuses streams."""
        raise _no_stream()

    def answer(self, body: Mapping[str, Any], said: Said) -> dict[str, Any]:
        """Return vectors that depend on nothing but the inputs: the same for the same one."""
        size = body.get("dimensions") or _SCRIPTED_NUMBERS
        packed = body.get("encoding_format") == "base64"
        vectors = [_vector(each, size) for each in _inputs(body)]
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector.tobytes()).decode() if packed else list(vector),
            }
            for index, vector in enumerate(vectors)
        ]
        sent = said.tokens.uncached_input
        usage = {"prompt_tokens": sent, "total_tokens": sent}
        return {"object": "list", "data": data, "model": said.model, "usage": usage}

    def events(self, answer: Mapping[str, Any]) -> NoReturn:
        """Raise TypeError: there are no streams."""
        raise _no_stream()

    def error(self, kind: str, code: str | None, message: str) -> dict[str, Any]:
        """Return an error body."""
        return {"error": {"type": kind, "code": code, "message": message, "param": None}}

    def error_events(self, kind: str, code: str | None, message: str) -> list[ServerEvent]:
        """Raise TypeError: there are no streams."""
        raise _no_stream()


def _inputs(body: Mapping[str, Any]) -> list[Any]:
    """Return the inputs, one by one; none when one is of another shape."""
    given = body.get("input")
    if isinstance(given, str):
        return [given] if given else []
    if not isinstance(given, list) or not given:
        return []
    if _are_tokens(given):
        return [given]
    return given if all(isinstance(each, str) or _are_tokens(each) for each in given) else []


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


def _vector(value: Any, size: int) -> array[float]:
    digest = hashlib.shake_256(repr(value).encode("utf-8", "replace")).digest(size)
    return array("f", ((byte - 127.5) / 127.5 for byte in digest))


def _no_stream() -> TypeError:
    return TypeError("embeddings are not streamed")


EMBEDDINGS: Dialect = EmbeddingsDialect()
