"""Token counts as providers report them, turned into exclusive buckets and held against their own totals.

Every shape that is known is in the data of the tests. What does not add up is None, never a guess: then the caller estimates and says so.
"""

from __future__ import annotations

from typing import Any

from orchestrator.gateway.dialects.shape import entries, obj
from orchestrator.records.usage import Usage

MOST_TOKENS = 10**8
"""In one response. More is nonsense, and at the dearest price the sum over a run would leave 64 bits."""


def chat_tokens(reported: Any) -> Usage | None:
    """Return the buckets of a ``usage`` of ``/v1/chat/completions``, or None.

    ``prompt_tokens`` includes what a cache served and took. ``completion_tokens`` includes reasoning at OpenAI and most others, but not at
    xAI, nor at Gemini's compatible address, which does not even name it: there ``total_tokens`` tells.
    """
    usage = obj(reported)
    prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens", 0))
    details, out_details = obj(usage.get("prompt_tokens_details")), obj(usage.get("completion_tokens_details"))
    read = _first(details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))
    written = _first(details.get("cache_write_tokens"), details.get("cache_creation_tokens"))
    reasoning = _first(out_details.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    if prompt is None or output is None or read is None or written is None or reasoning is None:
        return None
    beside = _beside(usage.get("total_tokens"), prompt + output, reasoning)
    missed = usage.get("prompt_cache_miss_tokens")
    if beside is None or (missed is not None and missed != prompt - read):
        return None
    return _buckets(prompt - read - written, read, written, output + beside, reasoning or beside)


def responses_tokens(reported: Any) -> Usage | None:
    """Return the buckets of a ``usage`` of ``/v1/responses``, or None: the details are parts of input and output."""
    usage = obj(reported)
    sent, output = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    details, out_details = obj(usage.get("input_tokens_details")), obj(usage.get("output_tokens_details"))
    read = _first(details.get("cached_tokens"))
    written = _first(details.get("cache_write_tokens"))
    reasoning = _first(out_details.get("reasoning_tokens"))
    if sent is None or output is None or read is None or written is None or reasoning is None:
        return None
    beside = _beside(usage.get("total_tokens"), sent + output, reasoning)
    if beside is None:
        return None
    return _buckets(sent - read - written, read, written, output + beside, reasoning or beside)


def messages_tokens(reported: Any) -> Usage | None:
    """Return the buckets of a ``usage`` of ``/v1/messages``, or None.

    There ``input_tokens`` is what no cache had a part in, and ``output_tokens`` includes thinking. What the provider used to shorten the
    conversation is in ``iterations`` only. Iterations of other models, which have other prices, have no buckets here.
    """
    usage = obj(reported)
    total = _message(usage)
    for iteration in entries(usage.get("iterations")):
        kind = iteration.get("type")
        more = Usage() if kind == "message" else _message(iteration) if kind == "compaction" else None
        if total is None or more is None:
            return None
        total = total.plus(more)
    return total


def _message(usage: dict[str, Any]) -> Usage | None:
    uncached, output = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    read, written = _first(usage.get("cache_read_input_tokens")), _first(usage.get("cache_creation_input_tokens"))
    thought = _first(obj(usage.get("output_tokens_details")).get("thinking_tokens"))
    split = obj(usage.get("cache_creation"))
    short, long = _first(split.get("ephemeral_5m_input_tokens")), _first(split.get("ephemeral_1h_input_tokens"))
    if uncached is None or output is None or read is None or written is None or thought is None:
        return None
    if short is None or long is None or (split and short + long != written):
        return None
    return _buckets(uncached, read, written, output, thought, long)


def embeddings_tokens(reported: Any) -> Usage | None:
    """Return the buckets of a ``usage`` of ``/v1/embeddings``, or None: nothing is generated there."""
    usage = obj(reported)
    prompt, total = _count(usage.get("prompt_tokens")), _count(usage.get("total_tokens", usage.get("prompt_tokens")))
    return None if prompt is None or total != prompt else Usage(uncached_input=prompt)


def _buckets(uncached: int, read: int, written: int, output: int, reasoning: int, hour: int = 0) -> Usage | None:
    if uncached < 0 or reasoning > output or hour > written:
        return None
    return Usage(
        uncached_input=uncached,
        cache_read=read,
        cache_write=written,
        cache_write_1h=hour,
        output=output,
        reasoning=reasoning,
    )


def _beside(total: Any, named: int, reasoning: int) -> int | None:
    """Return the reasoning that the output does not include, or None when the total cannot be explained."""
    if total is None or total == named:
        return 0
    beside = total - named if _count(total) is not None else -1
    return beside if beside > 0 and reasoning in (0, beside) else None


def _first(*found: Any) -> int | None:
    """Return the first count that is there; 0 when none is, None when it is nonsense."""
    return next((_count(value) for value in found if value is not None), 0)


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_TOKENS else None
