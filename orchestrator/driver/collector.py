"""Python's collector of garbage, in a process that lives long and has much in flight."""

from __future__ import annotations

import gc

YOUNG, MIDDLE, OLD = 50_000, 10, 1_000
"""Objects made until the youngest are looked at; such looks until the middle generation's; of these until all is looked at."""


def spare_the_old() -> None:
    """Look seldom at what lives long.

    Each look at everything stops the process: with 3,000 trials in flight for a third of a second, with 10,000 for more than one, and
    by its usual rule Python looks ten times while they grow so many. What is loaded so far is never looked at again. The youngest are
    many, since nothing here leaves rings behind: with 2,000 a gateway of 1,000 calls looked at the middle generation twice a second, and
    all calls waited 30 to 60 ms for each look.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
