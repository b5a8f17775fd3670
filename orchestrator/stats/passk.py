"""pass@k and pass^k of one task, exact, each from the task's own number of trials."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

EXACT_UP_TO = 1000
"""Trials up to which integers are used; above, sums of logarithms, which are good to about 1e-12."""


def _checked(n: int, c: int, k: int) -> tuple[int, int, int]:
    n, c, k = operator.index(n), operator.index(c), operator.index(k)
    if not 0 <= c <= n:
        msg = f"{c} passes of {n} trials is impossible"
        raise ValueError(msg)
    if k < 1:
        msg = f"k is {k} and must be at least 1"
        raise ValueError(msg)
    return n, c, k


def _all_drawn(n: int, marked: int, k: int) -> float:
    """Probability that k draws of n without replacement are all among the marked: C(marked, k) / C(n, k)."""
    if marked < k:
        return 0.0
    if n <= EXACT_UP_TO:
        return float(Fraction(math.comb(marked, k), math.comb(n, k)))
    return math.exp(math.fsum(math.log((marked - i) / (n - i)) for i in range(k)))


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Return the chance that at least one of k attempts passes, from c passes in n trials; None when n < k.

    ``1 - C(n - c, k) / C(n, k)``, unbiased: Chen et al. 2021, arXiv:2107.03374, equation 1. Raises ValueError when the
    counts are impossible and TypeError when they are not whole numbers: half a pass is no pass.
    """
    n, c, k = _checked(n, c, k)
    return None if n < k else 1.0 - _all_drawn(n, n - c, k)


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Return the chance that all of k attempts pass, from c passes in n trials; None when n < k.

    ``C(c, k) / C(n, k)``, unbiased: Yao et al. 2024, arXiv:2406.12045. Raises as ``pass_at_k`` does.
    """
    n, c, k = _checked(n, c, k)
    return None if n < k else _all_drawn(n, c, k)
