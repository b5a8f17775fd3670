"""From the events of a trajectory to the moves of a trial: what it called, with which arguments, and what came of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import rfc8785

from orchestrator.dataset.calls import arguments_of, outcome_of
from orchestrator.records.event import Event
from orchestrator.records.golden import Move
from orchestrator.stats.trajectory import plain_name

LONGEST_ARGUMENTS = 2000
"""Characters of arguments that are kept as they are; of longer ones the digest is."""


def moves_of(events: Iterable[Event]) -> tuple[Move, ...]:
    """Return the moves in the order in which they were made.

    Calls of the gateway's tools are those that it saw. What agents run by themselves (a shell) is only reported in model requests, and
    counts as far as its tool is none of the gateway's.
    """
    events = list(events)
    ours = {str(event.data.get("name")) for event in events if event.type == "tool_call" and event.source == "gateway"}
    found: dict[object, Move] = {}
    for event in events:
        data = event.data
        if event.type == "tool_call" and event.source == "gateway":
            found[event.seq] = Move(tool=str(data.get("name")), arguments=_canonical(data.get("arguments")))
        elif event.type == "tool_call" and plain_name(str(data.get("name"))) not in ours:
            found["id", data.get("id"), data.get("conversation")] = Move(
                tool=plain_name(str(data.get("name")))[:200], arguments=_canonical(data.get("arguments"))
            )
        elif event.type == "tool_result":
            key = data.get("call") if event.source == "gateway" else ("id", data.get("id"), data.get("conversation"))
            if (move := found.get(key)) is not None:
                found[key] = move.model_copy(update={"outcome": _outcome(event.source, data)})
    return tuple(found.values())


def _outcome(source: str, data: Mapping[str, Any]) -> str | None:
    if source == "agent":
        content = data.get("content")
        return outcome_of(content if isinstance(content, str) else None, data.get("is_error"))
    error = data.get("error")
    kind = error.get("kind") if isinstance(error, dict) else None
    return str(kind or data.get("outcome"))


def _canonical(value: object) -> str:
    parsed, _ = arguments_of(value)
    try:
        text = rfc8785.dumps(dict(parsed)).decode() if parsed is not None else str(value)
    except (rfc8785.CanonicalizationError, RecursionError):
        text = json.dumps(parsed, sort_keys=True, default=str)
    if len(text) <= LONGEST_ARGUMENTS:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"sha256:{digest} ({len(text):,} characters)"
