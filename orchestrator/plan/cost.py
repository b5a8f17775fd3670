"""What a launch may cost at most, from its budgets and the prices of its models. Pure; amounts are billionths of a US dollar (nano USD)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal

from orchestrator.settings import Price
from orchestrator.spec.task import Budgets

NANO = 10**9
_TOKENS_OF_A_PRICE = 10**6


def nano(usd: float) -> int:
    """Return US dollars, as a person wrote them, in nano USD."""
    return int((Decimal(str(usd)) * NANO).to_integral_value(ROUND_CEILING))


def dollars(amount: int) -> str:
    """Return nano USD as text: ``$1.50``, with four digits below a dollar that cents do not show."""
    if amount % (NANO // 100) == 0 or amount >= 100 * NANO:
        return f"${amount / NANO:,.2f}"
    return f"${amount / NANO:,.4f}" if amount >= NANO // 10**4 else f"${amount / NANO:.9f}".rstrip("0")


def most_nano_usd(budgets: Budgets, models: Iterable[str], prices: Mapping[str, Price]) -> int | None:
    """Return the most that one launch can cost; None when a model has no price.

    The smaller of ``max_cost_usd`` and ``max_tokens`` times the dearest price of any kind of token of any of its models, at any size, with
    ``max_steps`` requests where those cost; 0 without models.
    The gateway sends no call once one of these budgets is reached, but it cannot know what an answer will cost before it is there: calls
    that were open at that moment (one, unless the agent calls in parallel) may end above the budget.
    """
    wanted = sorted(set(models))
    if any(model not in prices for model in wanted):
        return None
    dearest = max((_dearest(prices[model]) for model in wanted), default=Decimal(0))
    request = max((Decimal(str(prices[model].request)) for model in wanted), default=Decimal(0))
    most = budgets.max_tokens * dearest * NANO / _TOKENS_OF_A_PRICE + budgets.max_steps * request * NANO
    by_use = int(most.to_integral_value(ROUND_CEILING))
    return by_use if budgets.max_cost_usd is None else min(by_use, nano(budgets.max_cost_usd))


def _dearest(price: Price) -> Decimal:
    """Return US dollars for a million tokens of the dearest kind."""
    return max(kind for rates in (price, *price.tiers) for kind in rates.by_kind())
