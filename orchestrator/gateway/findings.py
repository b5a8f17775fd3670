"""Findings of one launch: each kind once, counted, and never more than an agent's patience could fill a disk with."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.records.state import Finding

MOST = 50
"""Different findings kept per launch."""


class Findings:
    """Collects findings and counts repetitions."""

    def __init__(self, note: Callable[[str, str], None] = lambda _kind, _detail: None) -> None:
        """``note`` hears of each new finding, its kind and detail."""
        self._note = note
        self._counts: dict[tuple[str, str], int] = {}
        self._more = 0

    def add(self, kind: str, detail: str) -> bool:
        """Note a finding. Returns whether it is a new one."""
        key = (kind, printable(detail))
        if key in self._counts:
            self._counts[key] += 1
            return False
        if len(self._counts) >= MOST:
            self._more += 1
            return False
        self._counts[key] = 1
        self._note(*key)
        return True

    def recall(self, kind: str, detail: str) -> None:
        """Take over a finding that was noted before; how often it was found is not known any more."""
        self._counts[kind, detail] = 1

    def all(self) -> tuple[Finding, ...]:
        """Return them, sorted, with their counts."""
        found = [
            Finding(type=kind, detail=detail + (f" ({count} times)" if count > 1 else ""), source="gateway")
            for (kind, detail), count in sorted(self._counts.items())
        ]
        if self._more:
            found.append(Finding(type="more_findings", detail=f"{self._more} further ones", source="gateway"))
        return tuple(found)


def printable(text: str, most: int = 300) -> str:
    """Return text of a peer as one line of printable ASCII, cut to a length."""
    return ascii(text[:most])[1:-1]
