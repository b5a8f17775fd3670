"""What a model costs, as a person writes it: in ``orchestrate.toml`` and in agent files."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, model_validator

from orchestrator.settings.part import Part

MOST_PRICE_USD = 100_000
"""For a million tokens, or for one request: above every real price, and low enough for sums in billionths of a dollar to fit in 64 bits."""

_Usd = Annotated[float, Field(ge=0, le=MOST_PRICE_USD)]


class Rates(Part):
    """US dollars for a million tokens."""

    input: _Usd
    """Uncached input tokens."""
    output: _Usd
    """Output tokens, reasoning included."""
    cache_read: _Usd | None = None
    """Input tokens read from a cache; as ``input`` when absent."""
    cache_write: _Usd | None = None
    """Input tokens written to a cache; as ``input`` when absent."""
    cache_write_1h: _Usd | None = None
    """Input tokens written to a cache that keeps them for an hour; as ``cache_write`` when absent."""

    def by_kind(self) -> tuple[Decimal, Decimal, Decimal, Decimal, Decimal]:
        """Return all of them exactly as written: input, cache read, cache write, cache write for an hour, output."""
        write = self.input if self.cache_write is None else self.cache_write
        kinds = (
            self.input,
            self.input if self.cache_read is None else self.cache_read,
            write,
            write if self.cache_write_1h is None else self.cache_write_1h,
            self.output,
        )
        first, read, written, hour, output = (Decimal(str(kind)) for kind in kinds)
        return first, read, written, hour, output


class PriceTier(Rates):
    """What all tokens of a call cost whose input is larger."""

    above: int = Field(gt=0)
    """Input tokens, those of caches included, above which the whole call costs this."""


class Price(Rates):
    """What a model costs: US dollars for a million tokens, and for each request where that costs, too."""

    request: _Usd = 0
    """US dollars for each request, beside its tokens."""
    tiers: tuple[PriceTier, ...] = ()
    """Dearer (or cheaper) rates of larger calls, by rising size."""

    @model_validator(mode="after")
    def _rising(self) -> Price:
        sizes = [tier.above for tier in self.tiers]
        if sizes != sorted(set(sizes)):
            msg = f"'above' of the tiers must rise, and is {', '.join(map(str, sizes))}"
            raise ValueError(msg)
        return self

    @property
    def spelled(self) -> str:
        """What a model costs, in one line for people."""
        base = f"${self.input:g} in, ${self.output:g} out, for a million tokens"
        request = f", and ${self.request:g} for each request" if self.request else ""
        tiers = (f"; ${tier.input:g} in, ${tier.output:g} out, above {tier.above:,} of input" for tier in self.tiers)
        return base + request + "".join(tiers)

    def rates(self, input_tokens: int) -> Rates:
        """Return the rates of a call with so many input tokens, those of caches included."""
        return next((tier for tier in reversed(self.tiers) if input_tokens > tier.above), self)
