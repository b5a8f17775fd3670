"""Where a trial leaves a golden one: the first departure that lasts, its kind, and whether it came back."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.stats.departure import Compared, Step, compare


def steps(text: str) -> list[Step]:
    """``a1`` is a call of tool a with arguments 1 that went well; ``a1!`` failed."""
    return [Step(word[0], word[1:].rstrip("!"), "error" if word.endswith("!") else "ok") for word in text.split()]


def told(found: Compared) -> tuple[object, ...] | None:
    departure = found.departure
    return None if departure is None else (departure.golden, departure.trial, departure.kind, departure.recovered)


@pytest.mark.parametrize(
    ("trial", "departure", "slips"),
    [
        ("a1 b1 c1 d1 e1", None, 0),
        ("a1 b1 x1 c1 d1 e1", None, 1),  # one call more, and on as before
        ("a1 b1 c2 d1 e1", None, 1),
        ("a1 c1 d1 e1", None, 1),
        ("a1 b1 x1 y1 c1 d1 e1", (None, 2, "extra", True), 0),
        ("a1 x1 y1 d1 e1", (1, 1, "other_tool", True), 0),
        ("a1 b2 c2 d1 e1", (1, 1, "other_arguments", True), 0),
        ("a1 b1! c1! d1 e1", (1, 1, "other_outcome", True), 0),
        ("a1 d1 e1", (1, None, "missing", True), 0),
        ("a1 b1 c1", (3, None, "ended_early", False), 0),
        ("", (0, None, "ended_early", False), 0),
        ("a1 b1 c1 d1 e1 x1", (None, 5, "went_on", False), 0),
        ("a1 x1 y1 z1", (1, 1, "other_tool", False), 0),
        ("a1 b1 c1 d1 e2", (4, 4, "other_arguments", False), 0),  # the last one differs, so it lasts to the end
        ("a1 x1 c1 y1 z1", (3, 3, "other_tool", False), 1),
        ("a1 x1 y1 d1 z1", (1, 1, "other_tool", False), 0),  # came back for one call alone
    ],
)
def test_departures_are_named(trial: str, departure: tuple[object, ...] | None, slips: int) -> None:
    found = compare(steps("a1 b1 c1 d1 e1"), steps(trial))
    assert (told(found), found.slips) == (departure, slips), found.pairs


def test_another_order_is_told_as_such() -> None:
    found = compare(steps("a1 b1 b2 c1 c1"), steps("a1 b2 b1 c1 c1"))
    assert found.departure is None or found.departure.kind == "order"
    assert not found.is_equal


MOVES = st.lists(st.sampled_from([Step(t, a, o) for t in "ab" for a in "12" for o in ("ok", "error")]), max_size=12)


@given(MOVES)
def test_the_same_moves_are_equal(moves: list[Step]) -> None:
    assert compare(moves, moves).is_equal


@given(MOVES, MOVES)
def test_every_move_has_one_place_in_order(golden: list[Step], trial: list[Step]) -> None:
    found = compare(golden, trial)
    assert [one for one, _ in found.pairs if one is not None] == list(range(len(golden)))
    assert [other for _, other in found.pairs if other is not None] == list(range(len(trial)))
    assert found.is_equal is (golden == trial)


def common(golden: list[Step], trial: list[Step]) -> int:
    """Length of the longest common subsequence, by its plain recursion."""
    best = [[0] * (len(trial) + 1) for _ in range(len(golden) + 1)]
    for row, one in enumerate(golden):
        for column, other in enumerate(trial):
            best[row + 1][column + 1] = (
                best[row][column] + 1 if one == other else max(best[row][column + 1], best[row + 1][column])
            )
    return best[-1][-1]


@given(MOVES, MOVES)
def test_as_many_moves_as_can_be_are_equal(golden: list[Step], trial: list[Step]) -> None:
    pairs = compare(golden, trial).pairs
    equal = sum(one is not None and other is not None and golden[one] == trial[other] for one, other in pairs)
    assert equal >= common(golden, trial)


def test_long_trials_take_no_long_time() -> None:
    golden, trial = ([Step(word, n, "ok") for n in range(20_000)] for word in "ab")
    began = time.process_time()
    found = compare(golden, trial)
    assert time.process_time() - began < 20  # all pairs of them would take many minutes
    assert found.departure is not None
    assert found.departure.kind == "other_tool"
