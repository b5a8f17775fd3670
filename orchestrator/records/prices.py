"""What the models of a run cost, kept with the run: so that it costs the same when it is resumed, repeated or counted again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

from orchestrator.records.base import Record
from orchestrator.records.usage import Usage
from orchestrator.settings import Price
from orchestrator.spec.base import digest


class KnownPrice(Record):
    """The price of a model, and who says so."""

    price: Price
    """What it costs."""
    source: str
    """``agent file``, ``orchestrate.toml``, or a table with its version, such as ``genai-prices 0.2.3``."""
    entry: str | None = None
    """The model as the table calls it, ``provider/name``; None: it was given for this very name."""

    def __str__(self) -> str:
        """Return who says so, for people."""
        return self.source if self.entry is None else f"{self.source} ({self.entry})"


def priced(usage: Usage, price: Price | None) -> Usage:
    """Return the usage of one call with its cost; unknown without a price.

    A US dollar for a million tokens is 1000 nano-USD a token. The sum is exact and rounded once, half to even. A price with tiers is that
    of one call, so the usages of several calls must be priced before they are added.
    """
    return usage.model_copy(update={"cost_nano_usd": None if price is None else cost_nano_usd(usage, price)})


def cost_nano_usd(usage: Usage, price: Price) -> int:
    """Return what one call costs, in 10**-9 US dollars."""
    first, read, write, hour, output = price.rates(usage.total_input).by_kind()
    total = Fraction(0)
    for tokens, rate in (
        (usage.uncached_input, first),
        (usage.cache_read, read),
        (usage.cache_write - usage.cache_write_1h, write),
        (usage.cache_write_1h, hour),
        (usage.output, output),
    ):
        total += tokens * 1000 * Fraction(rate)
    total += 10**9 * Fraction(Decimal(str(price.request)))
    return round(total)  # half to even


def price_digest(tables: Iterable[Mapping[str, KnownPrice]]) -> str | None:
    """Return the digest of everything that these tables say models cost, whoever says so; None when they say nothing."""
    found = {(model, digest(known.price)) for table in tables for model, known in table.items()}
    return digest(sorted(map(list, found))) if found else None
