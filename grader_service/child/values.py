"""JSON values as the grader compares them: ``1``, ``true`` and ``"1"`` are three different things."""

from __future__ import annotations

import math
import re
from typing import Any

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|\[(-?\d+)\]|([^.\[\]"]+)')
_MISSING = object()


class PathError(ValueError):
    """A dotted path that cannot be read: the author's mistake."""


def same(left: Any, right: Any, tolerance: float = 0) -> bool:
    """Return whether two JSON values are equal, types included; numbers within ``tolerance`` of each other are."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        if left == right:
            return True
        if not tolerance or not math.isfinite(left) or not math.isfinite(right):
            return False
        return abs(left - right) <= tolerance
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b, tolerance) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key], tolerance) for key in left)
    return type(left) is type(right) and bool(left == right)


def parse_path(text: str) -> list[str | int]:
    """Read ``servers[0].port`` or ``hosts."a.b".port`` into keys and indices. Raises PathError."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        if text[position] == "." and parts:
            position += 1
        match = _TOKEN.match(text, position)
        if match is None:
            msg = f"{text!r} is no path: something is wrong at character {position + 1}"
            raise PathError(msg)
        quoted, index, plain = match.groups()
        parts.append(
            int(index) if index is not None else re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
        )
        position = match.end()
    return parts


def at(document: Any, path: list[str | int]) -> tuple[bool, Any]:
    """Return whether something stands at the path, and what."""
    value = document
    for part in path:
        if isinstance(part, str) and isinstance(value, dict):
            value = value.get(part, _MISSING)
        elif isinstance(part, int) and isinstance(value, list) and -len(value) <= part < len(value):
            value = value[part]
        else:
            return False, None
        if value is _MISSING:
            return False, None
    return True, value
