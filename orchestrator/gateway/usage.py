"""What a provider's answer says of its cost beside the token counts, and estimates of these where it reports none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.gateway.findings import printable
from orchestrator.records.usage import Usage

CHARACTERS_PER_TOKEN = 4
"""Estimate where a response reports no usage."""

_STANDARD = frozenset({"auto", "default", "on_demand", "standard"})
"""Words of providers for the service that their prices are about."""
_DETAILS = ("prompt_tokens_details", "completion_tokens_details", "input_tokens_details", "output_tokens_details")
_RAN_THERE = frozenset({"code_interpreter_call", "file_search_call", "image_generation_call", "web_search_call"})
"""Entries of an answer about tools that a provider ran, and charges for."""


def costs_otherwise(answer: Mapping[str, Any]) -> str | None:
    """Return why an answer costs more, or less, than its tokens at the usual price; None: it does not.

    A provider's priority, flex or fast service has prices of its own, and so have sound and the tools that it runs itself.
    """
    usage = _object(answer.get("usage"))
    services = (answer.get("service_tier"), usage.get("service_tier"), usage.get("speed"))
    other = next((word for word in services if isinstance(word, str) and word not in _STANDARD), None)
    if other is not None:
        return f"was given by the service {printable(other, 40)!r}"
    if any(_is_some(_object(usage.get(details)).get("audio_tokens")) for details in _DETAILS):
        return "has to do with sound"
    output = answer.get("output")
    entries = [_object(entry).get("type") for entry in output] if isinstance(output, list) else []
    searches = _object(usage.get("server_tool_use")).values()
    if any(map(_is_some, searches)) or any(isinstance(kind, str) and kind in _RAN_THERE for kind in entries):
        return "is the work of tools that ran at the provider, too"
    return None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_some(value: Any) -> bool:
    return isinstance(value, int) and value > 0


def estimate(request_characters: int, response_characters: int) -> Usage:
    """Return a usage by size, cost unknown: budgets must hold even for a provider that reports nothing."""
    return Usage(uncached_input=_tokens(request_characters), output=_tokens(response_characters))


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
