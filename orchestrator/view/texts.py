"""Long texts in pieces: the page shows the beginning, and asks for more."""

from __future__ import annotations

from typing import Any

import orjson

from orchestrator.errors import NotFoundError

SHOWN_CHARS = 4_000
"""Of one text in a page of events."""
PIECE_CHARS = 200_000
"""Of one text that is asked for alone."""


def block(label: str, value: Any, pointer: str, kind: str = "text") -> dict[str, Any]:
    """Return a text for the page, cut; ``pointer`` finds the whole of it again, ``kind`` says how it looks."""
    text = as_text(value)
    shown = text[:SHOWN_CHARS]
    return {"label": label, "kind": kind, "text": shown, "chars": len(text), "pointer": pointer}


def as_text(value: Any) -> str:
    """Return text as it is and anything else as JSON for people."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        return "(nested too deeply to be shown)"


def piece(text: str, begin: int) -> dict[str, Any]:
    """Return a piece of a text from a character on."""
    return {"text": text[begin : begin + PIECE_CHARS], "from": begin, "chars": len(text)}


def step_in(name: str) -> str:
    """Return a name as one step of a pointer."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def find(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) means. It also goes into a text that is itself JSON, as arguments of tools are.

    Raises NotFoundError.
    """
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            if isinstance(value, str):
                value = orjson.loads(value)
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (LookupError, ValueError, TypeError):
            msg = "this part of the event"
            raise NotFoundError(msg) from None
    return value
