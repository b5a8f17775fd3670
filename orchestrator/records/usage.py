"""What model calls used, in buckets that never overlap, and what they cost."""

from __future__ import annotations

from pydantic import Field

from orchestrator.records.base import Record


class Usage(Record):
    """Tokens in exclusive buckets; ``reasoning`` is the part of ``output`` that was reasoning."""

    uncached_input: int = Field(default=0, ge=0)
    """Input tokens that no cache served."""
    cache_read: int = Field(default=0, ge=0)
    """Input tokens read from a cache."""
    cache_write: int = Field(default=0, ge=0)
    """Input tokens written to a cache."""
    cache_write_1h: int = Field(default=0, ge=0)
    """The part of ``cache_write`` that is kept for an hour, where the provider has kinds that cost differently."""
    output: int = Field(default=0, ge=0)
    """Output tokens, reasoning included."""
    reasoning: int = Field(default=0, ge=0)
    """The reasoning part of ``output``."""
    cost_nano_usd: int | None = None
    """Cost in 10**-9 US dollars; None when a price is unknown, never 0 for that."""

    @property
    def total(self) -> int:
        """All tokens."""
        return self.total_input + self.output

    @property
    def total_input(self) -> int:
        """All input tokens, those of caches included."""
        return self.uncached_input + self.cache_read + self.cache_write

    def plus(self, other: Usage) -> Usage:
        """Return the sum. An unknown cost makes the sum unknown."""
        known = self.cost_nano_usd is not None and other.cost_nano_usd is not None
        return Usage(
            uncached_input=self.uncached_input + other.uncached_input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cost_nano_usd=(self.cost_nano_usd or 0) + (other.cost_nano_usd or 0) if known else None,
        )


class Spending(Record):
    """What the launches of a run have used at one gateway so far, those that ended and those that run."""

    running: int = Field(default=0, ge=0)
    """Launches that run."""
    steps: int = Field(default=0, ge=0)
    """Model responses."""
    cost_nano_usd: int = Field(default=0, ge=0)
    """Known costs, in 10**-9 US dollars."""


NOTHING_USED = Usage(cost_nano_usd=0)
"""No model call: it cost nothing, which is known."""
