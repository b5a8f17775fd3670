"""What the dialects share: reading JSON of unknown shape without trust, and the parts of the one form of messages."""

from __future__ import annotations

import base64
import binascii
import gc
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import orjson

from orchestrator.gateway.body import within_depth
from orchestrator.gateway.dialects.base import ServerEvent
from orchestrator.records.message import (
    MediaPart,
    OtherPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

MOST_DEPTH = 100
"""Levels that JSON of a provider may nest."""
_MOST_PIECES = 64
"""Pieces that a scripted text is streamed in, at most."""
_LEAST_PIECE = 16
"""Characters of a piece, at least."""
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in JSON text; its group is half of a surrogate pair."""
_DECODED_CHARACTERS = 1 << 20
"""Of a base64 text that are decoded at one time: a multiple of 4."""
_LARGE = 1 << 20
_SAFE_DIGITS = 19
"""A whole number with fewer, its sign included, fits into 64 bits."""
_MARKS = ("cache_control", "cache_reference")
"""Keys by which agents say what a provider should cache: they wander from entry to entry while a conversation grows."""


def obj(value: Any) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def entries(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; none for anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def word(value: Any) -> str | None:
    """Return a string, or None."""
    return value if isinstance(value, str) else None


def text(value: Any) -> str:
    """Return a string, or an empty one."""
    return value if isinstance(value, str) else ""


def canonical(value: Any) -> str:
    """Return a value as JSON text with sorted keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def arguments_text(value: Any) -> str:
    """Return arguments as text: as the model wrote them, or canonical JSON of what is no text."""
    return value if isinstance(value, str) else "" if value is None else canonical(value)


def free_text(arguments: str) -> str:
    """Return what a scripted call gives to a tool that takes free text: the text ``input`` of its JSON arguments, else all of them."""
    given = obj(orjson.loads(arguments)).get("input")
    return given if isinstance(given, str) else arguments


class TooDeepError(ValueError):
    """JSON that nests deeper than can be read at all."""


def parsed(data: bytes) -> Any:
    """Return JSON of a provider. Raises ValueError, and TooDeepError of that kind.

    Models can be made to write, and requests to bring about, what is not quite JSON, and the agent gets it as JSON all the same. Half of a
    surrogate pair, and bytes that are no UTF-8, become the sign for what cannot be shown. NaN and infinity, which some providers write for
    log probabilities, and numbers too large for anything, become null. Control characters in texts are what they are.
    """
    with suppress(orjson.JSONDecodeError), _uncollected(len(data)):
        return orjson.loads(data)
    text = _ESCAPE.sub(_whole, data).decode("utf-8", "replace")
    try:
        return json.loads(text, strict=False, parse_constant=_nothing, parse_float=_number, parse_int=_number)
    except RecursionError:
        msg = "the JSON nests too deep"
        raise TooDeepError(msg) from None


@contextmanager
def _uncollected(size: int) -> Iterator[None]:
    """Have no garbage looked for while much is read: there is none, and looking takes longer than reading."""
    pauses = size >= _LARGE and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()


def _nothing(_name: str) -> None:
    return None


def _number(digits: str) -> int | float | None:
    """Return a number that fits into 64 bits, whole if it is."""
    if len(digits) < _SAFE_DIGITS and digits.lstrip("-").isdecimal():
        return int(digits)
    value = float(digits)
    return value if math.isfinite(value) else None


def _whole(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape[1] else escape[0]


def load(event: ServerEvent) -> dict[str, Any]:
    """Return the JSON object that an event holds. Raises ValueError for anything else, and for one that nests too deep."""
    value = parsed(event.data.encode())
    is_flat = event.data.count("{") + event.data.count("[") <= MOST_DEPTH  # most are, and this is quick
    if not isinstance(value, dict) or not (is_flat or within_depth(value, MOST_DEPTH)):
        msg = f"the event is not a JSON object of at most {MOST_DEPTH} levels"
        raise ValueError(msg)
    return value


def dump(value: Any) -> str:
    """Return JSON text."""
    return orjson.dumps(value).decode()


def steady(item: Mapping[str, Any], text_type: str = "text") -> dict[str, Any]:
    """Return an entry of a conversation in the form that stays the same from request to request.

    Some clients write the same text now as a string, now as a list of one part, and move marks of caching.
    """
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": text_type, "text": content}]
    elif isinstance(content, list):
        content = [_unmarked(part) for part in content]
    kept = {key: value for key, value in item.items() if key not in _MARKS}
    return {**kept, "content": content} if "content" in item else kept


def _unmarked(part: Any) -> Any:
    return {k: v for k, v in part.items() if k not in _MARKS} if isinstance(part, dict) else part


def text_part(value: str) -> TextPart:
    """Return plain text."""
    return {"type": "text", "text": value}


def reasoning_part(value: str) -> ReasoningPart:
    """Return what a model thought."""
    return {"type": "reasoning", "text": value}


def call_part(call_id: Any, name: Any, arguments: Any) -> ToolCallPart:
    """Return a tool call."""
    return {"type": "tool_call", "id": word(call_id), "name": word(name), "arguments": arguments_text(arguments)}


def other_part(kind: str, data: Any) -> OtherPart:
    """Return anything else."""
    return {"type": "other", "kind": kind, "data": data}


def media_part(media_type: str, *, url: Any = None, data: Any = None) -> MediaPart:
    """Return an image, sound or file, given by an address, an address of type ``data:``, or base64 text."""
    address = word(url)
    if address is not None and address.startswith("data:"):
        head, _, data = address.partition(",")
        media_type, address = head[5:].partition(";")[0] or media_type, None
    if not isinstance(data, str):
        return {"type": "media", "media_type": media_type, "url": address, "sha256": None, "bytes": None}
    digest, size = _measured(data)
    return {"type": "media", "media_type": media_type, "url": None, "sha256": digest, "bytes": size}


def _measured(data: str) -> tuple[str, int]:
    """Return digest and size of what a base64 text holds; piece by piece where all of it is well formed, so that others have a turn."""
    digest, size = hashlib.sha256(), 0
    ends = data.find("=", 0, max(len(data) - 2, 0)) >= 0  # padding in the middle: what follows it depends on the reader
    try:
        for begin in range(0, 0 if ends else len(data), _DECODED_CHARACTERS):
            piece = binascii.a2b_base64(data[begin : begin + _DECODED_CHARACTERS], strict_mode=True)
            digest.update(piece)
            size += len(piece)
    except (binascii.Error, ValueError):
        ends = True
    if ends:
        raw = _decoded(data)
        return hashlib.sha256(raw).hexdigest(), len(raw)
    return digest.hexdigest(), size


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        return data.encode("utf-8", "replace")


def result_part(call_id: Any, parts: list[Part], *, is_error: bool = False) -> ToolResultPart:
    """Return a tool's result: its text, with other parts named in brackets, and the media in it."""
    lines: list[str] = []
    media: list[MediaPart] = []
    for part in parts:
        if part["type"] == "text":
            lines.append(part["text"])
        elif part["type"] == "media":
            lines.append(f"[{part['media_type']}]")
            media.append(part)
        else:
            lines.append(f"[{part['kind'] if part['type'] == 'other' else part['type']}]")
    found: ToolResultPart = {
        "type": "tool_result",
        "id": word(call_id),
        "content": "\n".join(lines),
        "is_error": is_error,
    }
    return {**found, "media": media} if media else found


def pieces(value: str) -> Iterator[str]:
    """Return a text in the pieces that a scripted model streams it in."""
    size = max(_LEAST_PIECE, -(-len(value) // _MOST_PIECES))
    for start in range(0, len(value), size):
        yield value[start : start + size]
