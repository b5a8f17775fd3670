"""Estimates of token counts where a provider reports none."""

from __future__ import annotations

from orchestrator.records.usage import Usage

CHARACTERS_PER_TOKEN = 4
"""Estimate where a response reports no usage."""


def estimate(request_characters: int, response_characters: int) -> Usage:
    """Return a usage by size, cost unknown: budgets must hold even for a provider that reports nothing."""
    return Usage(uncached_input=_tokens(request_characters), output=_tokens(response_characters))


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
