"""Reads trajectories back. What agents and models said in them stays data: it is returned, never interpreted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from pydantic import ValidationError

from orchestrator.errors import StoreError
from orchestrator.records.base import BlobRef
from orchestrator.records.event import Event

_HEAD = ("v", "seq", "t", "source", "type")


def read_events(data: bytes, where: str = "trajectory") -> list[Event]:
    """Return the events in order. Raises as ``each_event``."""
    return list(each_event(data, where))


def each_event(data: bytes, where: str = "trajectory") -> Iterator[Event]:
    """Yield the events in order, each when it is asked for: what an agent sent takes many times its size once it is read. A torn last line,
    as a crash leaves it, is left out.

    Raises StoreError when another line is not an event of this version, or when numbers are missing or out of order.
    """
    begin = number = 0
    # Every line ends with a newline: what follows the last one was being written when the writer died.
    while (end := data.find(b"\n", begin)) >= 0:
        yield _event(data[begin:end], number, where)
        begin, number = end + 1, number + 1


def is_whole(data: bytes, blob: BlobRef) -> bool:
    """Return whether the bytes are the closed trajectory that a seal names."""
    return len(data) == blob.size and hashlib.sha256(data).hexdigest() == blob.sha256


def _event(line: bytes, number: int, where: str) -> Event:
    import orjson

    try:
        raw = orjson.loads(line)
        head = {key: raw.pop(key) for key in _HEAD}
        event = Event.model_validate({**head, "data": raw})
    except (orjson.JSONDecodeError, ValidationError, KeyError, AttributeError, TypeError) as error:
        msg = f"{where}: line {number + 1} is not an event that this version reads"
        raise StoreError(msg, cause="trajectory_unreadable") from error
    if event.seq != number:
        msg = f"{where}: line {number + 1} holds event {event.seq}, so events are missing or out of order"
        raise StoreError(msg, cause="trajectory_unreadable")
    return event
