"""Costs of token counts, and estimates where there are none."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from orchestrator.records.usage import Usage
from orchestrator.spec.agent import Price

CHARACTERS_PER_TOKEN = 4
"""Estimate where a response reports no usage."""


def estimate(request_characters: int, response_characters: int) -> Usage:
    """Return a usage by size, cost unknown: budgets must hold even for a provider that reports nothing."""
    return Usage(uncached_input=_tokens(request_characters), output=_tokens(response_characters))


def priced(usage: Usage, price: Price | None) -> Usage:
    """Return the usage with its cost; unknown without a price. A price is US dollars for a million tokens: 1000 nano-USD a token."""
    if price is None:
        return usage.model_copy(update={"cost_nano_usd": None})
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    parts = (
        (usage.uncached_input, price.input),
        (usage.cache_read, read),
        (usage.cache_write, write),
        (usage.output, price.output),
    )
    total = sum((Decimal(tokens) * Decimal(str(rate)) * 1000 for tokens, rate in parts), Decimal(0))
    return usage.model_copy(update={"cost_nano_usd": int(total.to_integral_value(ROUND_HALF_EVEN))})


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
