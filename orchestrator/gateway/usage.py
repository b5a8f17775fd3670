"""Tokens and costs of a response in the shape of ``/v1/chat/completions``."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from orchestrator.records.usage import Usage
from orchestrator.spec.agent import Price

_MOST_TOKENS = 10**8
"""In one response. More is nonsense, and at the dearest price the sum over a run would leave 64 bits."""
CHARACTERS_PER_TOKEN = 4
"""Estimate where a response reports no usage."""


def usage_of(reported: Any, price: Price | None) -> Usage | None:
    """Return exclusive buckets from an OpenAI ``usage`` object, or None when it is missing or nonsense.

    There ``prompt_tokens`` includes ``cached_tokens`` and ``completion_tokens`` includes ``reasoning_tokens`` (OpenAI API
    reference, "The usage object").
    """
    if not isinstance(reported, dict):
        return None
    prompt, output = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
    if prompt is None or output is None:
        return None
    cached = _detail(reported, "prompt_tokens_details", "cached_tokens")
    written = _detail(reported, "prompt_tokens_details", "cache_write_tokens")
    reasoning = min(_detail(reported, "completion_tokens_details", "reasoning_tokens"), output)
    cached = min(cached, prompt)
    written = min(written, prompt - cached)
    return priced(
        Usage(
            uncached_input=prompt - cached - written,
            cache_read=cached,
            cache_write=written,
            output=output,
            reasoning=reasoning,
        ),
        price,
    )


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


def _detail(reported: dict[str, Any], group: str, name: str) -> int:
    details = reported.get(group)
    return (_count(details.get(name)) if isinstance(details, dict) else None) or 0


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= _MOST_TOKENS else None
