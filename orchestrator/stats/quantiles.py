"""Exact percentiles and the small table of a distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def quantile(values: Sequence[float], q: float) -> float | None:
    """Return the q-quantile (0 to 1) by linear interpolation, type 7 of Hyndman and Fan 1996; None of nothing.

    Exact over all values, never from a sketch. Raises ValueError for NaN or infinity: an unknown
    value is None and counted, not mixed in.
    """
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        msg = "a quantile of NaN or infinity is not defined"
        raise ValueError(msg)
    ordered = sorted(values)
    position = (len(ordered) - 1) * q
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, kw_only=True)
class Dist:
    """A distribution over trials. Everything is None when nothing is known."""

    n: int
    """Trials whose value is known."""
    missing: int
    """Trials of the same population whose value is not known."""
    p50: float | None
    p95: float | None
    p99: float | None
    mean: float | None
    total: float | None
    """Sum over the population; None when a value is missing, since the sum of a part is no total."""


def distribution(values: Iterable[float | None], *, unit: float = 1) -> Dist:
    """Return the distribution of values divided by ``unit``; None among them counts as missing.

    Whole numbers (nano-dollars, ``unit=1e9``) are added as such, so the total does not depend on the order
    of the trials.
    """
    everything = list(values)
    known = [value for value in everything if value is not None]
    missing = len(everything) - len(known)
    total = (math.fsum(known) / unit) if known else None

    def at(q: float) -> float | None:
        found = quantile(known, q)
        return None if found is None else found / unit

    return Dist(
        n=len(known),
        missing=missing,
        p50=at(0.50),
        p95=at(0.95),
        p99=at(0.99),
        mean=None if total is None else total / len(known),
        total=None if missing else total,
    )
