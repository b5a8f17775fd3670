"""Rates that carry their denominator, their coverage and, when there is no number, the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from orchestrator.stats.intervals import LEVEL, Interval, bootstrap_bca, suite_wilson, wilson
from orchestrator.stats.passk import pass_at_k, pass_hat_k

COVERAGE_FLOOR = 0.98
"""Below this share of graded trials there is no rate: what is missing could turn it around."""
FEW_TASKS = 20
"""Below this number of tasks a bootstrap interval says little, and the rate says so."""
NAMED = 5
"""How many tasks a reason names before it counts the rest."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """One task of one agent, counted in trials. Raises ValueError when the counts contradict each other."""

    task: str
    planned: int
    """All trials."""
    eligible: int
    """Planned without quarantined and not applicable ones."""
    graded: int
    """passed + failed + abstained."""
    passed: int

    def __post_init__(self) -> None:
        if not 0 <= self.passed <= self.graded <= self.eligible <= self.planned:
            counts = f"{self.passed} passed, {self.graded} graded, {self.eligible} eligible of {self.planned}"
            msg = f"task {self.task}: {counts} is impossible"
            raise ValueError(msg)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A number between 0 and 1 with everything needed to judge it."""

    value: float | None
    """None when it is not defined or too little was graded; then ``reason`` says why."""
    estimand: Literal["macro", "micro"]
    """``macro``: mean over tasks, each counting the same. ``micro``: over trials."""
    numerator: int
    """Passed trials."""
    denominator: int
    """Graded trials: passed + failed + abstained."""
    planned: int
    """All trials."""
    coverage: float | None
    """denominator / (planned - quarantined - not applicable); None when that is nothing."""
    tasks: int
    """Tasks in the mean."""
    ci_low: float | None
    ci_high: float | None
    level: float
    """Confidence level of the interval."""
    method: str | None
    """How the interval was made."""
    reason: str | None
    """Why there is no value or no interval, or what must be known to read them."""
    left_out: tuple[str, ...] = ()
    """Tasks that could not be part of the mean."""


def _names(tasks: Sequence[str]) -> str:
    shown = ", ".join(tasks[:NAMED])
    return shown if len(tasks) <= NAMED else f"{shown} and {len(tasks) - NAMED} more"


def _no_value(tallies: Sequence[Tally], floor: float) -> str | None:
    eligible = sum(tally.eligible for tally in tallies)
    graded = sum(tally.graded for tally in tallies)
    if not sum(tally.planned for tally in tallies):
        return "no trial was planned"
    if not eligible:
        return "every trial is quarantined or not applicable"
    if not graded:
        return f"none of {eligible} trials was graded" if eligible > 1 else "the one trial was not graded"
    if graded / eligible < floor:
        verb = "was" if graded == 1 else "were"
        share = 1000 * graded // eligible / 10  # rounded down, so that it never reads as the floor
        return f"only {graded} of {eligible} trials {verb} graded: coverage {share:.1f}% is below {100 * floor:g}%"
    return None


@dataclass(frozen=True)
class _Estimate:
    """What is known beside the counts."""

    value: float | None = None
    tasks: int = 0
    interval: Interval | None = None
    reason: str | None = None
    left_out: tuple[str, ...] = ()


def _rate(tallies: Sequence[Tally], estimand: Literal["macro", "micro"], estimate: _Estimate) -> Rate:
    eligible = sum(tally.eligible for tally in tallies)
    graded = sum(tally.graded for tally in tallies)
    interval = estimate.interval
    return Rate(
        value=estimate.value,
        estimand=estimand,
        numerator=sum(tally.passed for tally in tallies),
        denominator=graded,
        planned=sum(tally.planned for tally in tallies),
        coverage=graded / eligible if eligible else None,
        tasks=estimate.tasks,
        ci_low=interval.low if interval else None,
        ci_high=interval.high if interval else None,
        level=LEVEL,
        method=interval.method if interval else None,
        reason=estimate.reason,
        left_out=estimate.left_out,
    )


def task_rate(tally: Tally, floor: float = COVERAGE_FLOOR) -> Rate:
    """Return the pass rate of one task over its trials, with Wilson's interval."""
    reason = _no_value([tally], floor)
    if reason:
        return _rate([tally], "micro", _Estimate(reason=reason))
    interval = wilson(tally.passed, tally.graded)
    return _rate([tally], "micro", _Estimate(tally.passed / tally.graded, 1, interval))


def suite_rate(tallies: Iterable[Tally], floor: float = COVERAGE_FLOOR) -> Rate:
    """Return the pass rate of a suite: the mean over tasks of each task's own rate.

    So no task counts more for having more trials.
    """
    every = list(tallies)
    reason = _no_value(every, floor)
    if reason:
        return _rate(every, "macro", _Estimate(reason=reason))
    used = [tally for tally in every if tally.graded]
    left_out = tuple(tally.task for tally in every if tally.eligible and not tally.graded)
    values = [tally.passed / tally.graded for tally in used]
    notes = [f"incomplete: no graded trial of {_names(left_out)}"] if left_out else []
    if len(used) == 1:
        notes.append("one task: the interval is about its trials, not about other tasks")
        interval = wilson(used[0].passed, used[0].graded)
    else:
        interval = suite_wilson(values, sum(tally.graded for tally in used))
    return _rate(every, "macro", _Estimate(fmean(values), len(used), interval, "; ".join(notes) or None, left_out))


def suite_pass_k(tallies: Iterable[Tally], k: int, kind: Literal["at", "hat"], floor: float = COVERAGE_FLOOR) -> Rate:
    """Return the mean over tasks of pass@k (``at``) or pass^k (``hat``), each task with its own number of trials.

    Tasks with fewer than k graded trials are left out and named; they are neither 0 nor 1. For k = 1 both are the
    pass rate.
    """
    every = list(tallies)
    if k == 1:
        return suite_rate(every, floor)
    reason = _no_value(every, floor)
    if reason:
        return _rate(every, "macro", _Estimate(reason=reason))
    function = pass_at_k if kind == "at" else pass_hat_k
    found = {tally.task: function(tally.graded, tally.passed, k) for tally in every if tally.eligible}
    values = [value for value in found.values() if value is not None]
    left_out = tuple(task for task, value in found.items() if value is None)
    if not values:
        return _rate(every, "macro", _Estimate(reason=f"no task has {k} graded trials", left_out=left_out))
    notes = [f"incomplete: fewer than {k} graded trials of {_names(left_out)}"] if left_out else []
    interval, note = _over_tasks(values)
    return _rate(
        every, "macro", _Estimate(fmean(values), len(values), interval, "; ".join([*notes, *note]) or None, left_out)
    )


def _over_tasks(values: Sequence[float]) -> tuple[Interval | None, list[str]]:
    """Return an interval of a mean over tasks and what to know about it."""
    if len(values) == 1:
        return None, ["no interval: one task"]
    few = [f"fewer than {FEW_TASKS} tasks: the interval is rough"] if len(values) < FEW_TASKS else []
    # Equal tasks leave nothing to resample; then each task is one observation, as the effective size says too.
    return bootstrap_bca(values) or suite_wilson(values, len(values)), few
