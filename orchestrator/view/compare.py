"""Two trials side by side: numbers, checks, and steps that belong together."""

from __future__ import annotations

from typing import Any

from orchestrator.dataset.rows import TrialRow
from orchestrator.records.verdict import CheckResult
from orchestrator.view.align import Pair, align, is_same
from orchestrator.view.display import show
from orchestrator.view.transcript import Transcript

MOST_PAIRS = 50
"""Pairs of steps of one answer."""
MOST_EVENTS = 60
"""Events of one step; it has more only where an agent calls very many tools at once."""


def checks_json(left: TrialRow, right: TrialRow) -> list[dict[str, Any]]:
    """Return the checks of both by their id, in the order of the left one."""
    both = [_checks(left), _checks(right)]
    ids = dict.fromkeys([*both[0], *both[1]])
    return [{"id": name, "sides": [_check(one.get(name)) for one in both]} for name in ids]


def _checks(row: TrialRow) -> dict[str, CheckResult]:
    every = (*row.verdict.checks, *row.verdict.invariants) if row.verdict else ()
    return {check.id: check for check in every}


def _check(check: CheckResult | None) -> dict[str, Any] | None:
    return (
        None
        if check is None
        else check.model_dump(mode="json", include={"type", "gate", "passed", "expected", "actual"})
    )


def pairs_of(left: Transcript, right: Transcript) -> list[Pair]:
    """Return which step belongs to which."""
    return align(left.steps, right.steps)


def steps_json(left: Transcript, right: Transcript, pairs: list[Pair], begin: int, count: int) -> dict[str, Any]:
    """Return a piece of the steps, each with its events, and where the two part for the first time. Raises StoreError."""
    same = [_is_same(left, right, pair) for pair in pairs]
    rows = []
    for place in range(begin, min(len(pairs), begin + min(count, MOST_PAIRS))):
        one, other = pairs[place]
        rows.append({"same": same[place], "sides": [_step(left, one), _step(right, other)]})
    first = next((place for place, equal in enumerate(same) if not equal), None)
    return {"total": len(pairs), "from": begin, "rows": rows, "first_difference": first, "equal": sum(same)}


def _is_same(left: Transcript, right: Transcript, pair: Pair) -> bool:
    one, other = pair
    return one is not None and other is not None and is_same(left.steps[one], right.steps[other])


def _step(transcript: Transcript, place: int | None) -> dict[str, Any] | None:
    if place is None:
        return None
    step = transcript.steps[place]
    shown = range(step.begin, min(step.end, step.begin + MOST_EVENTS))
    return {"step": place + 1, "events": [show(transcript, number) for number in shown], "more": step.end - shown.stop}
