"""What a check of the limited child gives back, small whatever the agent left."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from grader_service.child.assemble import shown

_LINES = 20
_LINE = 300
_VALUE = 600


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
    """Return a JSON value, or its shortened text when it is large or no JSON."""
    if isinstance(value, str):
        return shown(value if len(value) <= _VALUE else f"{value[: _VALUE - 1]}… ({len(value)} characters)")
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(type(value))
    else:
        if len(text) <= _VALUE:
            return value
    return shown(text[: _VALUE - 1] + "…")
