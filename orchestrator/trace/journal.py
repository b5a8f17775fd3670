"""Reads the file of a trajectory as the journal that a process left: all that another one needs to go on with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from orchestrator.errors import StoreError
from orchestrator.trace.sharing import FIELD, digests_of_long_texts, has_long_text

if TYPE_CHECKING:
    from hashlib import _Hash

SENT = frozenset({"model_request", "tool_result"})
"""Events that hold an agent's own words and can be as large and many as it likes."""


@dataclass
class Journal:
    """What was read of a file."""

    digest: _Hash = field(default_factory=hashlib.sha256)
    """Of all whole lines."""
    size: int = 0
    """Bytes of all whole lines."""
    torn: bool = False
    """Something follows that is no whole line: it was being written when its process died."""
    events: int = 0
    saved: int = 0
    """Bytes of texts that stand in an earlier event."""
    sent: int = 0
    """Bytes of what the agent sent, such texts counted in full."""
    texts: set[bytes] = field(default_factory=set)
    """Digests of the long texts that the file holds."""
    is_closed: bool = False
    """The last event is the seal."""


def read_lines(path: Path, take: Callable[[Mapping[str, Any]], None]) -> Journal:
    """Read a file, line by line, so that memory holds one line at a time. ``take`` gets each event as it stands there: texts that stand
    in an earlier event are empty.

    Raises StoreError when a whole line is no event of this version, events are missing, or something follows the seal.
    """
    journal = Journal()
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                journal.torn = True
                break
            event = _event(path, journal, line)
            journal.digest.update(line)
            journal.size += len(line)
            journal.events += 1
            _count(journal, event, line)
            take(event)
    return journal


def _event(path: Path, journal: Journal, line: bytes) -> dict[str, Any]:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    if not isinstance(event, dict) or event.get("v") != 1 or event.get("seq") != journal.events or journal.is_closed:
        msg = f"{path}: line {journal.events + 1} is not the next event of this version"
        raise StoreError(msg, cause="trajectory_unreadable")
    return event


def _count(journal: Journal, event: dict[str, Any], line: bytes) -> None:
    saved = sum(ref["bytes"] for ref in event.pop(FIELD, ()))
    if has_long_text(line):
        journal.texts.update(digests_of_long_texts(event))
    journal.saved += saved
    if event["type"] in SENT and "cut" not in event:
        journal.sent += len(line) + saved
    journal.is_closed = event["type"] == "seal"
