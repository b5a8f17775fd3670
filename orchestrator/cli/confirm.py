"""Money is spent only when somebody has said so: what a run may cost, and the question above ``confirm_over_usd``."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from orchestrator.cli.streams import can_ask

if TYPE_CHECKING:
    from orchestrator.driver.estimate import Estimate
    from orchestrator.settings import Settings


def announce_estimate(estimate: Estimate) -> None:
    """Say what a run will cost and how long it will take, as far as that is known, and what it can cost at most."""
    for line in estimate_lines(estimate):
        print(line, file=sys.stderr)
    sys.stderr.flush()


def estimate_lines(estimate: Estimate) -> list[str]:
    """Return what there is to say of an estimate; nothing where nothing costs anything and no time is known."""
    from orchestrator.plan.cost import dollars
    from orchestrator.report.text import clean, named

    costs_nothing = estimate.cost == 0 and not estimate.without_cost and estimate.most == 0
    lines = [clean(estimate.note)] if estimate.note else []
    if not costs_nothing or estimate.seconds is not None:
        lines.append(f"estimate: {_cost(estimate)}, {_time(estimate)}{_basis(estimate)}")
    lines += [f"{model}: {known.price.spelled}, by {known}" for model, known in estimate.prices]
    if estimate.unpriced:
        has = "has" if len(estimate.unpriced) == 1 else "have"
        lines.append(f"at most: unknown, {named(estimate.unpriced)} {has} no price")
    elif not costs_nothing:
        most = f"at most: {dollars(estimate.most or 0)} by the budgets of the tasks, each trial launched once"
        limit = estimate.limit
        held = "" if limit is None else f"; the run is held to {dollars(limit)} ({estimate.in_force.cost_from})"
        free = "" if any(pair.charged for pair in estimate.pairs) else "; nobody charges for scripted models"
        lines.append(most + held + free)
    return lines


def _cost(estimate: Estimate) -> str:
    from orchestrator.plan.cost import dollars

    if estimate.cost is None or estimate.without_cost == estimate.trials:
        return "cost unknown"
    unknown = f", unknown for {estimate.without_cost:,} of {estimate.trials:,} trials" if estimate.without_cost else ""
    return f"{dollars(estimate.cost)}{unknown}"


def _time(estimate: Estimate) -> str:
    from orchestrator.report.text import duration

    if estimate.seconds is None:
        return "time unknown"
    unknown = f", unknown for {estimate.without_time:,} of {estimate.trials:,} trials" if estimate.without_time else ""
    return f"{duration(estimate.seconds)} of work at {estimate.concurrency} at one time{unknown}"


def _basis(estimate: Estimate) -> str:
    if estimate.by_name:
        return f" (from earlier trials; {estimate.by_name:,} by name only, their task or agent has changed)"
    known = any(pair.basis != "none" for pair in estimate.pairs)
    return " (from earlier trials)" if known else " (this store has no earlier trials of these tasks by these agents)"


async def confirm(estimate: Estimate, settings: Settings, *, yes: bool) -> None:
    """Return when the run may begin. Raises RefusedError where nobody can be asked about a dear one, StoppedError for a no."""
    from orchestrator.errors import RefusedError, StoppedError
    from orchestrator.plan.cost import dollars, nano

    over = nano(settings.confirm_over_usd)
    if yes or estimate.at_stake <= over:
        return
    cost = f"this run may cost {dollars(estimate.at_stake)}, which is above confirm_over_usd ({dollars(over)})"
    if not can_ask():
        msg = f"{cost}; nothing was started. Agree with --yes, or hold it to less with --max-cost"
        raise RefusedError(msg)
    print(f"{cost}. Start it? [y/N] ", end="", file=sys.stderr, flush=True)
    if (await _line()).strip().lower() not in {"y", "yes"}:
        msg = "nothing was started"
        raise StoppedError(msg)


async def _line() -> str:
    """Return a line of standard input. Waiting for it can be cancelled, which reading cannot."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
