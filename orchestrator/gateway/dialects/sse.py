"""Reads a stream of server-sent events as it comes (WHATWG HTML, 9.2.6 "Interpreting an event stream")."""

from __future__ import annotations

import re

from orchestrator.gateway.dialects.base import ServerEvent

MOST_EVENT_BYTES = 8 << 20
"""Of one event. More is nothing that a model API sends."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventParser:
    """Turns bytes, split anywhere, into events. Comments, ids and retry times are left out: they say nothing to who is on the wire."""

    def __init__(self, most: int = MOST_EVENT_BYTES) -> None:
        self._most = most
        self._line: list[bytes] = []
        """Pieces of the line that has not ended."""
        self._data: list[str] = []
        self._event: str | None = None
        self._size = 0
        """Bytes of the event so far."""
        self._after_return = False
        self._begun = False

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Return the events that end in these bytes. Raises ValueError for an event that is too large."""
        if self._after_return and data:
            data, self._after_return = data.removeprefix(b"\n"), False
        if not data:
            return []
        self._after_return = data.endswith(b"\r")
        *ended, rest = _LINE_END.split(data)
        found = [event for line in ended if (event := self._end_line(line)) is not None]
        self._grow(rest)
        return found

    def end(self) -> ServerEvent | None:
        """Return an event that the end of the stream ends: some providers send no blank line after the last."""
        return self._end_line(b"") or self._dispatch()

    def _end_line(self, piece: bytes) -> ServerEvent | None:
        self._grow(piece)
        self._size += 1
        line = b"".join(self._line)
        self._line.clear()
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._event = text
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent("\n".join(self._data), self._event or None) if self._data else None
        self._data, self._event, self._size = [], None, 0
        return event

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._most:
            msg = f"an event of the stream has more than {self._most} bytes"
            raise ValueError(msg)
        if piece:
            self._line.append(piece)
