"""Reads trajectories back. What agents and models said in them stays data: it is returned, never interpreted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from pydantic import ValidationError

from orchestrator.errors import StoreError
from orchestrator.records.base import BlobRef
from orchestrator.records.event import Event
from orchestrator.trace.sharing import FIELD, Restorer, has_long_text

_HEAD = ("v", "seq", "t", "source", "type")


def read_events(data: bytes, where: str = "trajectory") -> list[Event]:
    """Return the events in order. Raises as ``each_event``."""
    return list(each_event(data, where))


def each_event(data: bytes, where: str = "trajectory") -> Iterator[Event]:
    """Yield the events in order, each when it is asked for: what an agent sent takes many times its size once it is read. A torn last line,
    as a crash leaves it, is left out. Long texts that stand in an earlier event are back in their places.

    Raises StoreError when another line is not an event of this version, or when numbers are missing or out of order.
    """
    reader = EventReader(where)
    begin = 0
    # Every line ends with a newline: what follows the last one was being written when the writer died.
    while (end := data.find(b"\n", begin)) >= 0:
        yield reader.event(data[begin:end])
        begin = end + 1


class EventReader:
    """Reads the lines of one trajectory one after the other, from its first."""

    def __init__(self, where: str = "trajectory") -> None:
        """``where``: what messages call the trajectory."""
        self._where = where
        self._number = 0
        self._torn = b""
        self._texts = Restorer()

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that end in these bytes, which follow those of the call before. Raises as ``each_event``."""
        *lines, self._torn = (self._torn + data).split(b"\n")
        return [self.event(line) for line in lines]

    def event(self, line: bytes) -> Event:
        """Return the event of the next line, which has no newline. Raises as ``each_event``."""
        import orjson

        number = self._number
        try:
            raw = orjson.loads(line)
            head = {key: raw.pop(key) for key in _HEAD}
            if FIELD in raw or has_long_text(line):
                self._texts.restore(raw)
            event = Event.model_validate({**head, "data": raw})
        except (orjson.JSONDecodeError, ValidationError, LookupError, AttributeError, TypeError, ValueError) as error:
            msg = f"{self._where}: line {number + 1} is not an event that this version reads"
            raise StoreError(msg, cause="trajectory_unreadable") from error
        if event.seq != number:
            msg = f"{self._where}: line {number + 1} holds event {event.seq}, so events are missing or out of order"
            raise StoreError(msg, cause="trajectory_unreadable")
        self._number += 1
        return event


def is_whole(data: bytes, blob: BlobRef) -> bool:
    """Return whether the bytes are the closed trajectory that a seal names."""
    return len(data) == blob.size and hashlib.sha256(data).hexdigest() == blob.sha256
