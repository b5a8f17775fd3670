"""A trajectory as a file with an index: any page of tens of megabytes is read alone, and a file that grows is read on.

What models and agents said in it is data: numbers and words of the index are checked, the rest is only passed on.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, get_args

import orjson

from orchestrator.errors import StoreError
from orchestrator.records.event import EventSource, EventType
from orchestrator.trace.sharing import FIELD, has_long_text, long_texts

LINE_BYTES = 64 << 20
"""A longer line is listed, but not read."""
SHARED_CHARS = 64 << 20
"""Of the texts that an event shares with earlier ones, so many characters are put back in all."""
BLOCK = 1 << 20
NAME_CHARS = 200
TYPES: tuple[EventType, ...] = get_args(EventType)
_SOURCES: tuple[EventSource, ...] = get_args(EventSource)


@dataclass(frozen=True, slots=True)
class Line:
    """What the index knows of one event."""

    offset: int
    size: int
    """Bytes, without the newline."""
    type: str
    source: str
    t: float
    step: int
    """The model call that it belongs to: 1 and on; 0 before the first."""
    name: str | None = None
    """Of a tool."""
    other: int | None = None
    """Of a result: the number of its call."""
    repeats: tuple[int, ...] = ()
    """Of a request: which of its messages are the model's own earlier answers."""


@dataclass
class Step:
    """One model call and what followed it."""

    begin: int
    """Number of its first event."""
    end: int
    """Number after its last one."""
    text: str = ""
    """Digest of the answer's text."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Names of the tools that were called, and digests of their arguments."""


class Transcript:
    """An index over an open file, in which every line is an event. Safe to use from several threads."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        """``where`` is how errors call it."""
        self._file = file
        weakref.finalize(self, file.close)  # with the last request that reads it
        self._where = where
        self._lock = threading.Lock()
        self._end = 0
        self._held: tuple[str, str] | None = None
        """Digest and text of what was last fetched from an earlier event."""
        self._said: set[bytes] = set()
        self._calls: dict[str, int] = {}
        self._texts: dict[str, tuple[int, list[str | int]]] = {}
        """Where a long text stands, by its digest."""
        self._notes: Mapping[str, Callable[[int, dict[str, Any]], dict[str, Any]]] = {
            "model_request": self._request,
            "model_response": self._response,
            "tool_call": self._call,
            "tool_result": self._result,
        }
        self.lines: list[Line] = []
        self.results: dict[int, int] = {}
        """Number of the result of each call that has one."""
        self.steps: list[Step] = []
        self.closed = False
        """Whether the last line is the seal: nothing follows it."""

    def read_on(self) -> None:
        """Take in what was added to the file. A torn last line, as a writer leaves it, waits for its end. Raises StoreError."""
        with self._lock:
            size = os.fstat(self._file.fileno()).st_size
            if size < self._end:
                msg = f"{self._where} has become shorter: it is not the file that was opened"
                raise StoreError(msg, cause="trajectory_unreadable")
            pieces: list[bytes] = []
            held = 0
            while self._end + held < size and (block := os.pread(self._file.fileno(), BLOCK, self._end + held)):
                cut = block.rfind(b"\n") + 1
                if cut:
                    self._take(b"".join([*pieces, block[:cut]]))
                    pieces, held = [], 0
                pieces.append(block[cut:])
                held += len(block) - cut
                if held > LINE_BYTES:
                    msg = f"{self._where}: line {len(self.lines) + 1} has more than {LINE_BYTES} bytes"
                    raise StoreError(msg, cause="trajectory_unreadable")

    def read(self, number: int) -> dict[str, Any]:
        """Return one event, with the texts that it shares with earlier ones. Raises StoreError."""
        event = self._parse(self._bytes(number), number)
        room = SHARED_CHARS
        for at, digest in self._refs(event, number):
            text = self._text(digest, number)
            room -= len(text)
            _put(event, at, text if room >= 0 else f"({len(text):,} characters, which stand in an earlier event)")
        return event

    def _text(self, digest: str, number: int) -> str:
        """Return a text of an earlier event."""
        held = self._held
        if held is None or held[0] != digest:
            place, path = self._texts.get(digest, (number, []))
            if place >= number:
                raise self._unreadable(number)
            self._held = held = digest, str(_at(self._parse(self._bytes(place), place), path))
        return held[1]

    def _refs(self, event: dict[str, Any], number: int) -> list[tuple[list[str | int], str]]:
        """Take out of an event which of its texts stand earlier."""
        try:
            found = [(list(ref["at"]), str(ref["sha256"])) for ref in event.pop(FIELD, [])]
            if all(_at(event, at) == "" for at, _ in found):
                return found
        except (LookupError, TypeError):
            pass
        raise self._unreadable(number)

    def _unreadable(self, number: int) -> StoreError:
        msg = f"{self._where}: line {number + 1} is not event {number} of a trajectory of version 1"
        return StoreError(msg, cause="trajectory_unreadable")

    def counts(self) -> Mapping[str, int]:
        """Return the number of events of each type that there is."""
        found = Counter(line.type for line in self.lines)
        return {kind: found[kind] for kind in TYPES if found[kind]}

    def choose(self, types: Iterable[str], text: str) -> list[int]:
        """Return the numbers of the events of these types (none: all) in which the text stands, in any case of ASCII letters."""
        wanted = frozenset(types)
        found = [number for number, line in enumerate(self.lines) if not wanted or line.type in wanted]
        if not text:
            return found
        needle = orjson.dumps(text.encode("utf-8", "replace").decode())[1:-1].lower()
        return [number for number in found if needle in self._bytes(number).lower()]

    def _bytes(self, number: int) -> bytes:
        line = self.lines[number]
        return os.pread(self._file.fileno(), line.size, line.offset)

    def _take(self, data: bytes) -> None:
        """Index whole lines."""
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            self._add(data[begin:end])
            self._end += end + 1 - begin
            begin = end + 1

    def _parse(self, raw: bytes, number: int) -> dict[str, Any]:
        try:
            event = orjson.loads(raw)
            if event["v"] == 1 and event["seq"] == number and event["type"] in TYPES and event["source"] in _SOURCES:
                event["t"] = float(event["t"])
                return dict(event)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            pass
        raise self._unreadable(number)

    def _add(self, raw: bytes) -> None:
        number = len(self.lines)
        event = self._parse(raw, number)
        # From here on a digest stands for every long text, wherever it is kept.
        for at, digest in self._refs(event, number):
            _put(event, at, digest)
        for holder, path, text in list(long_texts(event)) if has_long_text(raw) else ():
            digest = hashlib.sha256(text.encode()).hexdigest()
            self._texts.setdefault(digest, (number, path))
            holder[path[-1]] = digest
        note = self._notes.get(event["type"])
        if event["type"] == "model_request":
            self.steps.append(Step(number, number + 1))
        elif self.steps:
            self.steps[-1].end = number + 1
        more = note(number, event) if note else {}
        step = len(self.steps)
        self.lines.append(Line(self._end, len(raw), event["type"], event["source"], event["t"], step, **more))
        self.closed = event["type"] == "seal"

    def _request(self, _number: int, event: dict[str, Any]) -> dict[str, Any]:
        messages = event.get("messages")
        every = enumerate(messages) if isinstance(messages, list) else ()
        return {"repeats": tuple(place for place, message in every if _said(message) in self._said)}

    def _response(self, _number: int, event: dict[str, Any]) -> dict[str, Any]:
        if (key := _said(event.get("message"))) is not None:
            self._said.add(key)
            if self.steps:
                self.steps[-1].text = key.hex()
        return {}

    def _call(self, number: int, event: dict[str, Any]) -> dict[str, Any]:
        name = _name(event.get("name"))
        if event["source"] == "agent":
            if isinstance(event.get("id"), str):
                self._calls[event["id"]] = number
            if self.steps:
                self.steps[-1].calls.append((name or "", _digest(event.get("arguments")).hex()))
        return {"name": name}

    def _result(self, number: int, event: dict[str, Any]) -> dict[str, Any]:
        own = event.get("call") if event["source"] == "gateway" else self._calls.get(str(event.get("id")))
        call = own if isinstance(own, int) and 0 <= own < number and self.lines[own].type == "tool_call" else None
        if call is not None:
            self.results.setdefault(call, number)
        name = _name(event.get("name")) or (self.lines[call].name if call is not None else None)
        return {"name": name, "other": call}


def _at(value: Any, path: list[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _put(value: Any, path: list[str | int], text: str) -> None:
    _at(value, path[:-1])[path[-1]] = text


def _name(value: Any) -> str | None:
    return value[:NAME_CHARS] if isinstance(value, str) else None


def _digest(value: Any) -> bytes:
    try:
        raw = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # nested too deeply
        raw = b""
    return hashlib.sha256(raw).digest()[:12]


def _said(message: Any) -> bytes | None:
    """Return what a model's message says and calls, as a digest; None for anything else."""
    if (
        not isinstance(message, dict)
        or message.get("role") != "assistant"
        or not isinstance(message.get("parts"), list)
    ):
        return None
    parts = [
        (part.get("text"), part.get("name"), part.get("arguments"))
        for part in message["parts"]
        if isinstance(part, dict) and part.get("type") in {"text", "tool_call"}
    ]
    return _digest(parts)
