"""What a check of the limited child gives back, small whatever the agent left."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from grader_service.child.assemble import shown

_LINES = 20
_LINE = 300
_VALUE = 600
_DEPTH = 50


@dataclass
class Result:
    """``passed`` None: the check is broken, and ``problem`` says how."""

    passed: bool | None
    expected: Any = None
    actual: Any = None
    evidence: tuple[str, ...] = ()
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON, cut to a size that a verdict can carry."""
        more = len(self.evidence) - _LINES
        lines = [line(text) for text in self.evidence[:_LINES]]
        return {
            "passed": self.passed,
            "expected": small(self.expected),
            "actual": small(self.actual),
            "evidence": [*lines, f"… and {more} more"] if more > 0 else lines,
            "problem": None if self.problem is None else line(self.problem),
        }


def line(text: str) -> str:
    """Return one printable line of at most 300 characters."""
    return shown(text if len(text) <= _LINE else text[: _LINE - 1] + "…")


def small(value: Any) -> Any:
    """Return a JSON value, or its shortened text when it is large or no JSON that every reader takes.

    Readers differ about surrogates that stand alone and about deep nesting; neither may keep a verdict from being read.
    """
    if isinstance(value, str):
        return shown(value if len(value) <= _VALUE else f"{value[: _VALUE - 1]}… ({len(value)} characters)")
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(type(value))
    else:
        if len(text) <= _VALUE and _plain(value, _DEPTH):
            return value
    return shown(text if len(text) <= _VALUE else text[: _VALUE - 1] + "…")


def _plain(value: Any, levels: int) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return not isinstance(value, list) or (levels > 0 and all(_plain(item, levels - 1) for item in value))
