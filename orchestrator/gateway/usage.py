"""What a provider's answer says of its cost beside the token counts, and estimates of these where it reports none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.records.usage import Usage

CHARACTERS_PER_TOKEN = 4
"""Estimate where a response reports no usage."""

_STANDARD = frozenset({"auto", "default", "on_demand", "standard"})
"""Words of providers for the service that their prices are about."""


def other_service(answer: Mapping[str, Any]) -> str | None:
    """Return the word for the service by which an answer was given, if it is another than the standard one: that costs more, or less."""
    usage = answer.get("usage")
    inner = usage if isinstance(usage, Mapping) else {}
    said = (answer.get("service_tier"), inner.get("service_tier"), inner.get("speed"))
    return next((word for word in said if isinstance(word, str) and word not in _STANDARD), None)


def estimate(request_characters: int, response_characters: int) -> Usage:
    """Return a usage by size, cost unknown: budgets must hold even for a provider that reports nothing."""
    return Usage(uncached_input=_tokens(request_characters), output=_tokens(response_characters))


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
