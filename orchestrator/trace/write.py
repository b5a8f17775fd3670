"""Writes trajectories: one JSON Lines file a launch, on disk within 50 ms of each event, closed with a digest.

A commit gathers what came in during ``GATHER_SECONDS`` and then writes it and syncs it on a worker thread, so that a busy launch costs
a few syncs a second and the event loop never waits for a disk. What is written is with the kernel: it outlives this process, and once it
is synced the machine too. So a file is also the journal of its launch, from which another process goes on (``resume``).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import JsonValue

from orchestrator.errors import StoreError
from orchestrator.interfaces import ClosedTrajectory, WrittenTrajectory
from orchestrator.records.event import EventSource, EventType
from orchestrator.trace.journal import SENT, read_lines
from orchestrator.trace.sharing import FIELD, Sharer

GATHER_SECONDS = 0.02
"""How long events are gathered before a commit; with a sync of 30 ms an event is on disk within 50 ms."""

MAX_TEXT = 1 << 20
"""Longest text, in characters, that is kept whole in an event; the middle of a longer one is replaced by a marker."""

MAX_FILE = 256 << 20
"""Size in bytes from which on what an agent sends keeps only its head: a launch cannot fill the disk with its own record. Texts that stand
for earlier ones count in full, since whoever reads them gets them in full.

What was seen here has as much room again, so an agent cannot fill the record first and act unrecorded then.
"""

MAX_SENT = 4 << 30
"""Bytes that what agents send may have in all files of a folder that are being written. A launch may have as much as is left for the
others, so that many that send without end cannot fill the disk on which all are recorded.
"""

_WHOLE = frozenset({("tool_call", "gateway"), ("finish", "gateway")})
"""Events that whoever goes on with a file does again: they hold their texts themselves."""


class _Room:
    """What is left for what agents send, in bytes."""

    def __init__(self, left: int) -> None:
        self.left = left


class TrajectoryFile:
    """``interfaces.Trajectory`` on a local file. Made by ``TrajectoryFolder.open`` and ``resume``."""

    def __init__(self, path: Path, descriptor: int, room: _Room) -> None:
        self.path = path
        self._descriptor = descriptor
        self._room = room
        self._sent = 0
        self._buffer: list[bytes] = []
        self._digest = hashlib.sha256()
        self._texts = Sharer()
        self._size = 0
        self._handed = 0
        """Bytes that are with the kernel."""
        self._on_disk = 0
        self._unshared = 0
        """Bytes that the file would have without sharing."""
        self._next = 0
        self._lock = asyncio.Lock()
        self._commit: asyncio.Task[None] | None = None
        self._error: OSError | None = None
        self._closing = False
        self._closed: ClosedTrajectory | None = None

    def append(self, kind: EventType, source: EventSource, data: Mapping[str, JsonValue]) -> int:
        """Add an event and return its number; -1 when the trajectory is closed."""
        if self._closing:
            return -1
        number = self._add(kind, source, data)
        if self._commit is None or self._commit.done():
            self._commit = asyncio.create_task(self._commit_soon())
        return number

    def hand_over(self) -> None:
        """Give all events so far to the kernel: they outlive this process from now on, though not yet the machine."""
        lines, self._buffer = self._buffer, []
        if not lines or self._error is not None:
            return
        try:
            data = b"".join(lines)
            _write(self._descriptor, data)
            self._handed += len(data)
        except OSError as error:
            self._error = error

    async def flush(self) -> None:
        """Return once all events so far are on the disk; a failing disk shows in ``close``."""
        await self._write_out()

    async def recall(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Read what the file of an earlier process holds, once, before anything is appended; see ``interfaces.ResumedTrajectory``."""
        read = await asyncio.to_thread(read_lines, self.path, take)
        if read.torn:
            os.truncate(self._descriptor, read.size)
        self._digest, self._next = read.digest, read.events
        self._size = self._handed = self._on_disk = read.size
        self._texts, self._unshared, self._sent = Sharer(read.texts), read.size + read.saved, read.sent
        self._room.left -= read.sent
        if read.is_closed:
            self._closing = True

    def written(self) -> WrittenTrajectory | None:
        """Return the file and how many bytes of it are on the disk."""
        return None if self._closed is not None else WrittenTrajectory(path=self.path, size=self._on_disk)

    async def close(self, data: Mapping[str, JsonValue]) -> ClosedTrajectory:
        """Write the last event, with the digest of all before it, and wait for the disk. Raises StoreError."""
        if not self._closing:
            self._closing = True
            self._add("seal", "gateway", {**data, "sha256_before": self._digest.hexdigest()})
        await self._write_out()
        if self._error is not None:
            reason = self._error.strerror
            msg = f"the trajectory {self.path} could not be written: {reason}; free disk space and run again"
            raise StoreError(msg, cause="trajectory_unwritable") from self._error
        if self._closed is None:
            os.close(self._descriptor)
            self._room.left += self._sent
            self._closed = ClosedTrajectory(path=self.path, sha256=self._digest.hexdigest(), size=self._size)
        return self._closed

    def _add(self, kind: EventType, source: EventSource, data: Mapping[str, JsonValue]) -> int:
        number = self._next
        self._next += 1
        head: dict[str, JsonValue] = {"v": 1, "seq": number, "t": round(time.time(), 6), "source": source, "type": kind}
        cut = self._cut(kind)
        body: dict[str, JsonValue] = {"cut": cut}
        saved = 0
        if cut is None:
            body = {key: shorten(value) for key, value in data.items() if key not in head and key != FIELD}
            saved = 0 if (kind, source) in _WHOLE else self._texts.share(body)
        line = _line({**head, **body})
        self._buffer.append(line)
        self._digest.update(line)
        self._size += len(line)
        self._unshared += len(line) + saved
        if kind in SENT and cut is None:
            self._sent += len(line) + saved
            self._room.left -= len(line) + saved
        return number

    def _cut(self, kind: EventType) -> str | None:
        """Return why an event keeps only its head, if so."""
        most = MAX_FILE if kind in SENT else 2 * MAX_FILE
        if self._unshared > most and kind != "seal":
            return f"the trajectory is larger than {most} bytes"
        if kind in SENT and self._sent > self._room.left:
            return "what agents send fills the trajectories of this gateway, and this one has its part of them"
        return None

    async def _commit_soon(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        await self._write_out()

    async def _write_out(self) -> None:
        async with self._lock:
            self.hand_over()
            handed = self._handed
            if handed > self._on_disk and self._error is None:
                try:
                    await asyncio.to_thread(os.fsync, self._descriptor)
                    self._on_disk = handed
                except OSError as error:
                    self._error = error
        if (self._buffer or self._handed > self._on_disk) and self._error is None and not self._closing:
            self._commit = asyncio.create_task(self._commit_soon())


class TrajectoryFolder:
    """``interfaces.TrajectoryFactory``: a folder with one file a launch."""

    def __init__(self, folder: Path, most_sent: int = MAX_SENT) -> None:
        """``most_sent``: see ``MAX_SENT``."""
        self._folder = folder
        self._room = _Room(most_sent)

    def remove_old(self, age_s: float) -> None:
        """Remove trajectories that nobody has written to for so long, in seconds: their process died, and nobody else can close them."""
        for path in self._folder.glob("*.jsonl"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > age_s:
                    path.unlink()

    def keep_only(self, names: Container[str]) -> None:
        """Remove what earlier processes have left of launches that have none of these names."""
        for path in self._folder.glob("*.jsonl"):
            if path.stem not in names:
                with contextlib.suppress(OSError):
                    path.unlink()

    async def open(self, name: str) -> TrajectoryFile:
        """Begin a trajectory. Raises StoreError when there is one of that name, or when the file cannot be made."""
        path = self._folder / f"{name}.jsonl"
        try:
            if not self._folder.is_dir():
                self._folder.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise _unmakeable(path, error) from error
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileExistsError as error:
            msg = f"there is a trajectory {path} already: an earlier gateway began this launch; start another launch"
            raise StoreError(msg, cause="trajectory_exists") from error
        except OSError as error:
            raise _unmakeable(path, error) from error
        return TrajectoryFile(path, descriptor, self._room)

    async def resume(self, name: str) -> TrajectoryFile | None:
        """Return the trajectory that an earlier process began, to be recalled first; None when there is none. Raises StoreError."""
        path = self._folder / f"{name}.jsonl"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unmakeable(path, error) from error
        return TrajectoryFile(path, descriptor, self._room)


def _unmakeable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"the trajectory {path} cannot be made: {error.strerror}", cause="trajectory_unwritable")


def shorten(value: JsonValue) -> JsonValue:
    """Return the value; in every text longer than ``MAX_TEXT`` a marker with length and digest replaces the middle.

    JSON from a peer has at most the depth that the gateway admits, so recursion is bounded.
    """
    if isinstance(value, str):
        return _shorten_text(value)
    if isinstance(value, list):
        return [shorten(item) for item in value]
    if isinstance(value, dict):
        return {_shorten_text(key): shorten(item) for key, item in value.items()}
    return value


def _shorten_text(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    half = MAX_TEXT // 2
    return (
        f"{text[:half]}[… {len(text) - 2 * half} of {len(text)} characters left out, sha256 {digest} …]{text[-half:]}"
    )


def _line(event: dict[str, JsonValue]) -> bytes:
    try:
        return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        # Half a surrogate pair, which has no UTF-8 and no JSON that every reader takes: it becomes a question mark.
        return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
