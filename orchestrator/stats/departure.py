"""Where a trial leaves a golden one: an alignment of their moves, and the first departure in it that lasts. Pure.

Moves are compared as a whole: tool, arguments and outcome. The alignment is a shortest one (fewest moves left out on both sides, by
dynamic programming, as for the longest common subsequence). What is equal at both ends is taken off first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["other_tool", "other_arguments", "other_outcome", "order", "missing", "extra", "ended_early", "went_on"]
Pair = tuple[int | None, int | None]
"""Places in the golden and in the trial; None where one has nothing for the other's."""

LASTS = 2
"""Moves in a row that differ, from which on a departure lasts. One that goes on to an end lasts, too."""
MOST_CELLS = 4_000_000
"""Beyond so many pairs of moves the rest is put side by side by number."""


@dataclass(frozen=True)
class Step:
    """One move: each part comparable."""

    tool: str
    arguments: Hashable
    outcome: Hashable


@dataclass(frozen=True, kw_only=True)
class Departure:
    """The first departure that lasts."""

    golden: int | None
    """Place of the first golden move that is not followed, from 0; None: all golden moves came before."""
    trial: int | None
    """Place of the first move of the trial that is not golden, from 0; None: it ended before."""
    kind: Kind
    recovered: bool
    """Whether the trial came back: to golden moves until the end, or for as many as make a departure last."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two trials side by side."""

    pairs: tuple[Pair, ...]
    departure: Departure | None
    slips: int
    """Moves that differ and are not part of any departure that lasts."""

    @property
    def is_equal(self) -> bool:
        """Whether both made the same moves."""
        return self.departure is None and self.slips == 0


def compare(golden: Sequence[Step], trial: Sequence[Step]) -> Compared:
    """Align the moves of a trial with golden ones and find where it leaves them."""
    pairs = _align(golden, trial)
    equal = [one is not None and other is not None and golden[one] == trial[other] for one, other in pairs]
    slips, found = 0, None
    for begin, end in _runs(equal):
        lasts = end - begin >= LASTS or end == len(pairs)
        if not lasts:
            slips += end - begin
        elif found is None:
            found = _departure(golden, trial, pairs, equal, (begin, end))
    return Compared(pairs=tuple(pairs), departure=found, slips=slips)


def _runs(equal: Sequence[bool]) -> list[tuple[int, int]]:
    """Return where moves in a row differ, each as its beginning and its end."""
    found: list[tuple[int, int]] = []
    begin: int | None = None
    for place, same in enumerate([*equal, True]):
        if not same and begin is None:
            begin = place
        elif same and begin is not None:
            found.append((begin, place))
            begin = None
    return found


def _departure(
    golden: Sequence[Step], trial: Sequence[Step], pairs: Sequence[Pair], equal: Sequence[bool], run: tuple[int, int]
) -> Departure:
    begin, end = run
    ones = [one for one, _ in pairs[begin:end] if one is not None]
    others = [other for _, other in pairs[begin:end] if other is not None]
    back = 0
    for same in equal[end:]:
        if not same:
            break
        back += 1
    recovered = end < len(pairs) and (back >= LASTS or end + back == len(pairs))
    first = (golden[ones[0]] if ones else None, trial[others[0]] if others else None)
    kind = _kind(
        first,
        sorted(map(repr, (golden[n] for n in ones))) == sorted(map(repr, (trial[n] for n in others))),
        end == len(pairs),
    )
    return Departure(
        golden=ones[0] if ones else None, trial=others[0] if others else None, kind=kind, recovered=recovered
    )


def _kind(first: tuple[Step | None, Step | None], is_reordered: bool, at_end: bool) -> Kind:
    one, other = first
    if one is None:
        return "went_on" if at_end else "extra"
    if other is None:
        return "ended_early" if at_end else "missing"
    if is_reordered:
        return "order"
    if one.tool != other.tool:
        return "other_tool"
    return "other_arguments" if one.arguments != other.arguments else "other_outcome"


def _align(golden: Sequence[Step], trial: Sequence[Step]) -> list[Pair]:
    head = 0
    while head < min(len(golden), len(trial)) and golden[head] == trial[head]:
        head += 1
    tail = 0
    while tail < min(len(golden), len(trial)) - head and golden[-1 - tail] == trial[-1 - tail]:
        tail += 1
    middle = _middle(golden[head : len(golden) - tail], trial[head : len(trial) - tail])
    moved = [(None if one is None else one + head, None if other is None else other + head) for one, other in middle]
    ends = [(len(golden) - tail + n, len(trial) - tail + n) for n in range(tail)]
    return [*((n, n) for n in range(head)), *moved, *ends]


def _middle(golden: Sequence[Step], trial: Sequence[Step]) -> list[Pair]:
    if len(golden) * len(trial) > MOST_CELLS:
        common = min(len(golden), len(trial))
        return _side_by_side(range(common), range(common)) + _side_by_side(
            range(common, len(golden)), range(common, len(trial))
        )
    keys: dict[Step, int] = {}
    ones = [keys.setdefault(step, len(keys)) for step in golden]
    others = [keys.setdefault(step, len(keys)) for step in trial]
    best = [[0] * (len(others) + 1)]  # length of the longest common subsequence of what comes after
    for one in reversed(ones):
        below, line = best[-1], [0]
        for column in range(len(others) - 1, -1, -1):
            same = one == others[column]
            line.append(below[column + 1] + 1 if same else max(below[column], line[-1]))
        best.append(line[::-1])
    best.reverse()
    return _path(ones, others, best)


def _path(ones: Sequence[int], others: Sequence[int], best: Sequence[Sequence[int]]) -> list[Pair]:
    """Walk along a longest common subsequence; what lies between two equal moves stands side by side as far as it goes."""
    found: list[Pair] = []
    row = column = begun_row = begun_column = 0
    while row < len(ones) and column < len(others):
        if ones[row] == others[column]:
            found += [*_side_by_side(range(begun_row, row), range(begun_column, column)), (row, column)]
            row, column = row + 1, column + 1
            begun_row, begun_column = row, column
        elif best[row + 1][column] >= best[row][column + 1]:
            row += 1
        else:
            column += 1
    return found + _side_by_side(range(begun_row, len(ones)), range(begun_column, len(others)))


def _side_by_side(ones: range, others: range) -> list[Pair]:
    longest = max(len(ones), len(others))
    return [(ones[n] if n < len(ones) else None, others[n] if n < len(others) else None) for n in range(longest)]
