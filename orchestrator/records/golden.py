"""``golden/NAME.json`` of a task: a trajectory that a person accepted, as the tool calls it made and how it ended."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from orchestrator.records.base import Record


class Move(Record):
    """One tool call, without what differs between trials that do the same."""

    tool: str
    arguments: str
    """Canonical JSON (RFC 8785) of the arguments, or the text itself where it is none; of long ones the digest."""
    outcome: str | None = None
    """``ok``, or how it failed: the word of its error where it has one; None: nobody said what came of it."""


class Golden(Record):
    """What was accepted, by whom, and what it depends on."""

    format: Literal["orchestrate-golden"] = "orchestrate-golden"
    version: Literal[1] = 1
    task: str
    fingerprint: dict[str, str] = Field(default_factory=dict)
    """What must be equal for a comparison to mean anything, by name: version of the task, world, instruction and files."""
    plain_sha256: str
    """Digest of the plain trajectory (``trace.plain``): trials with the same one did exactly the same."""
    ending: str
    """How the trial ended: its termination reason, and the ending that it gave."""
    moves: tuple[Move, ...]
    run: str
    trial: str
    agent: str
    by: str
    """Who accepted it."""
    at: AwareDatetime
    reason: str = ""
