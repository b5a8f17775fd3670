"""Two trials step by step: which steps of one belong to which of the other. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.view.transcript import Step

MOST_PAIRS = 1_000_000
"""Pairs of steps that are compared with each other; of longer trials the steps are put side by side by number."""
_EQUAL, _SIMILAR, _OTHER, _GAP = 4, 2, 0, -1

Pair = tuple[int | None, int | None]


def align(left: Sequence[Step], right: Sequence[Step]) -> list[Pair]:
    """Return pairs of places in both, each place once and in order; None where one has no step for the other's.

    The best sum wins (Needleman and Wunsch): equal steps, then those that call the same tools, then any two, then gaps.
    """
    if len(left) * len(right) > MOST_PAIRS:
        return by_number(len(left), len(right))
    best = [[_GAP * column for column in range(len(right) + 1)]]
    for row, one in enumerate(left, 1):
        above, line = best[-1], [_GAP * row]
        for column, other in enumerate(right, 1):
            line.append(max(above[column - 1] + _likeness(one, other), above[column] + _GAP, line[-1] + _GAP))
        best.append(line)
    return _path(left, right, best)


def is_same(one: Step, other: Step) -> bool:
    """Return whether both answers say the same and call the same tools with the same arguments."""
    return one.text == other.text and one.calls == other.calls


def by_number(left: int, right: int) -> list[Pair]:
    """Return the first beside the first, and so on."""
    return [(place if place < left else None, place if place < right else None) for place in range(max(left, right))]


def _likeness(one: Step, other: Step) -> int:
    if is_same(one, other):
        return _EQUAL
    return _SIMILAR if [name for name, _ in one.calls] == [name for name, _ in other.calls] else _OTHER


def _path(left: Sequence[Step], right: Sequence[Step], best: Sequence[Sequence[int]]) -> list[Pair]:
    row, column = len(left), len(right)
    found: list[Pair] = []
    while row or column:
        here = best[row][column]
        if row and column and here == best[row - 1][column - 1] + _likeness(left[row - 1], right[column - 1]):
            row, column = row - 1, column - 1
            found.append((row, column))
        elif row and here == best[row - 1][column] + _GAP:
            row -= 1
            found.append((row, None))
        else:
            column -= 1
            found.append((None, column))
    return found[::-1]
