"""One line of a trajectory: what the gateway saw, in order. The fields of each type are listed in ``orchestrator/trace/FORMAT.md``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from orchestrator.records.base import Record

EventType = Literal[
    "launch",
    "model_request",
    "model_response",
    "model_error",
    "tool_call",
    "tool_result",
    "egress",
    "budget",
    "finish",
    "refusal",
    "finding",
    "seal",
]
"""Every kind of event."""

EventSource = Literal["gateway", "agent"]
"""``gateway``: it happened here. ``agent``: it was only reported in a model request or answer."""


class Event(Record):
    """One event. In the file, the keys of ``data`` stand beside the others: one flat JSON object a line."""

    v: Literal[1] = 1
    """Version of the format."""
    seq: int = Field(ge=0)
    """Number of the event in its trajectory, from 0, without gaps."""
    t: float
    """When it was written down, seconds since 1970 (UTC)."""
    source: EventSource
    """Who vouches for it."""
    type: EventType
    """What happened."""
    data: dict[str, JsonValue] = Field(default_factory=dict)
    """What belongs to the type."""
