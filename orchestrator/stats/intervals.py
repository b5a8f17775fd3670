"""Confidence intervals. None of them leaves [0, 1], and none is given where it is not defined."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Any

LEVEL = 0.95
"""Confidence level of every published interval."""
RESAMPLES = 10_000
"""Bootstrap resamples."""


@dataclass(frozen=True)
class Interval:
    """Lower and upper bound, and the name of the method."""

    low: float
    high: float
    method: str


def _z(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _t(level: float, df: int) -> float:
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy ships no types

    return float(stdtrit(df, (1 + level) / 2))


def wilson(successes: float, n: float, level: float = LEVEL) -> Interval | None:
    """Return the Wilson score interval of ``successes`` in ``n`` trials; None of no trials.

    Wilson 1927. Both may be fractions: effective sample sizes are. Raises ValueError when more passed than there were.
    """
    if not 0 <= successes <= n:
        msg = f"{successes:g} successes of {n:g} trials is impossible"
        raise ValueError(msg)
    if n == 0:
        return None
    z = _z(level)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At the ends the formula gives exactly 0 and 1, floating point almost.
    return Interval(
        0.0 if successes == 0 else max(0.0, centre - half), 1.0 if successes == n else min(1.0, centre + half), "wilson"
    )


def standard_error(task_values: Sequence[float]) -> float | None:
    """Return the standard error of a mean over tasks, ``sd(ddof=1) / sqrt(T)``; None of fewer than two tasks.

    Covers the choice of tasks and the luck of trials at once, since trials of a task enter only through its mean
    (Miller 2024, arXiv:2411.00640).
    """
    if len(task_values) < 2:
        return None
    return 0.0 if min(task_values) == max(task_values) else stdev(task_values) / math.sqrt(len(task_values))


def effective_n(task_values: Sequence[float], trials: int, level: float = LEVEL) -> float | None:
    """Return the number of independent trials that would carry as much information; None of fewer than two tasks.

    ``min(N, max(1, m(1-m) / SE^2)) * (z / t_{T-1})^2``, and T when all tasks are equal:
    Korn and Graubard 1998; Franco et al. 2019.
    """
    error = standard_error(task_values)
    if error is None:
        return None
    tasks = len(task_values)
    if error == 0:
        return float(tasks)
    mean = fmean(task_values)
    return min(trials, max(1.0, mean * (1 - mean) / error**2)) * (_z(level) / _t(level, tasks - 1)) ** 2


def suite_wilson(task_values: Sequence[float], trials: int, level: float = LEVEL) -> Interval | None:
    """Return the interval of a macro pass rate, Wilson's over the effective number of trials; None of under two tasks.

    Trials of one task resemble each other, so an interval over all trials as if they were independent would be far
    too narrow.
    """
    size = effective_n(task_values, trials, level)
    if size is None:
        return None
    found = wilson(min(size, fmean(task_values) * size), size, level)
    return None if found is None else Interval(found.low, found.high, "effective_n_wilson")


def _bootstrap_means(values: Any, seed: int, resamples: int) -> Any:
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(seed))
    # In portions, so that a thousand tasks do not need a hundred megabytes at once.
    portion = max(1, 2_000_000 // len(values))
    sizes = [min(portion, resamples - start) for start in range(0, resamples, portion)]
    return np.concatenate(
        [values[generator.integers(0, len(values), (size, len(values)))].mean(axis=1) for size in sizes]
    )


def bootstrap_bca(task_values: Sequence[float], level: float = LEVEL, resamples: int = RESAMPLES) -> Interval | None:
    """Return the bias-corrected and accelerated bootstrap interval of a mean over tasks; None when it is not defined.

    Efron 1987. Tasks are drawn, never trials. The seed is the content: equal values in any order give equal
    bounds. It is not defined for fewer than two tasks and for tasks that are all equal.
    """
    if standard_error(task_values) in {None, 0.0}:
        return None
    import numpy as np

    ordered = sorted(task_values)
    text = "orchestrate/bootstrap/v1\0" + ",".join(value.hex() for value in map(float, ordered))
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    values = np.array(ordered, dtype=float)
    means = _bootstrap_means(values, seed, resamples)
    centre = values.mean()
    equal = np.isclose(means, centre, rtol=0, atol=1e-12)
    share = float((np.count_nonzero((means < centre) & ~equal) + 0.5 * np.count_nonzero(equal)) / resamples)
    if not 0 < share < 1:
        return None
    normal = NormalDist()
    bias = normal.inv_cdf(share)
    # Leaving one task out moves the mean by this much; the skew of the moves is the acceleration.
    moves = (values - centre) / (len(values) - 1)
    acceleration = float((moves**3).sum() / (6 * (moves**2).sum() ** 1.5))

    def bound(tail: float) -> float:
        shifted = bias + normal.inv_cdf(tail)
        return float(np.quantile(means, normal.cdf(bias + shifted / (1 - acceleration * shifted))))

    low, high = bound((1 - level) / 2), bound((1 + level) / 2)
    return Interval(max(0.0, low), min(1.0, high), "bca_bootstrap")
