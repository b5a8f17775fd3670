"""Runs one program in a real sandbox and returns everything that was seen. Also a small gateway door and relay for the tests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import io
import json
import os
import shutil
import socket
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.interfaces import Door, Ending, FolderSink, Frozen, Input, RelaySink, SandboxLimits, SandboxSpec
from orchestrator.records.state import Entry
from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend

LIMITS = SandboxLimits(cpu=2, memory_bytes=128 << 20, disk_bytes=64 << 20, processes=64, wall_seconds=20)


@dataclass
class Seen:
    """One sandbox's life."""

    ending: Ending
    frozen: Frozen
    labels: dict[str, str]
    lines: bytes
    changes: bytes

    @functools.cached_property
    def entries(self) -> list[Entry]:
        return [Entry.from_bytes(line) for line in self.lines.splitlines()]

    @property
    def output(self) -> str:
        return self.frozen.output.decode("utf-8", "replace")

    @property
    def findings(self) -> set[str]:
        return {finding.type for finding in (*self.ending.findings, *self.frozen.findings)}

    def entry(self, path: str) -> Entry:
        return next(entry for entry in self.entries if entry.path == path)

    def tar(self) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(fileobj=io.BytesIO(self.changes), mode="r:") as archive:
            return {member.name: member for member in archive.getmembers()}

    def content(self, path: str) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(self.changes), mode="r:") as archive:
            file = archive.extractfile(path)
            assert file is not None
            return file.read()


KINDS = ["bubblewrap", pytest.param("container", marks=pytest.mark.container)]
"""Parameters for a fixture ``kind`` that calls ``use``."""
KIND = "bubblewrap"
"""The backend that ``backend`` makes; set by a fixture."""


def use(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let ``backend`` make that kind; skips where there is no container engine."""
    if name == "container":
        from container_world import image

        image()
    monkeypatch.setitem(globals(), "KIND", name)
    return name


def backend() -> Any:
    if KIND == "bubblewrap":
        return BubblewrapBackend()
    from container_world import WithImage

    return WithImage(Path(tempfile.gettempdir()) / "orchestrate-test-containers")


def spec_of(*command: str, **fields: Any) -> SandboxSpec:
    limits = replace(LIMITS, **{key: fields.pop(key) for key in list(fields) if key in LIMITS.__dataclass_fields__})
    return SandboxSpec(name=fields.pop("name", "test"), command=command, limits=limits, **fields)


async def life(spec: SandboxSpec, act: Callable[[Any], Awaitable[None]] | None = None) -> Seen:
    """Open, act, wait for the end, freeze into a folder, leave."""
    folder = Path(tempfile.mkdtemp(prefix="sbx"))
    try:
        async with backend().open(replace(spec, sink=FolderSink(folder=folder))) as sandbox:
            if act is not None:
                await act(sandbox)
            ending = await sandbox.ended()
            frozen = await sandbox.freeze()
            labels = dict(sandbox.labels)
        lines = (folder / "entries.jsonl").read_bytes()
        return Seen(ending, frozen, labels, lines, (folder / "changes.tar").read_bytes())
    finally:
        shutil.rmtree(folder)


async def ending_only(spec: SandboxSpec) -> Ending:
    """Open, wait for the end, leave without freezing."""
    async with backend().open(spec) as sandbox:
        return await sandbox.ended()


def run(*command: str, **fields: Any) -> Seen:
    return asyncio.run(life(spec_of(*command, **fields)))


def python(code: str, **fields: Any) -> Seen:
    return run("python3", "-c", code, requires=("python3",), **fields)


def shell(code: str, **fields: Any) -> Seen:
    return run("/bin/sh", "-c", code, **fields)


def workspace(folder: Path) -> Input:
    return Input(source=folder, target="/workspace", writable=True)


@dataclass
class FakeGateway:
    """A door that keeps the listening sockets it is given, and a relay that keeps blobs."""

    folder: Path
    listeners: list[tuple[str, socket.socket]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    refuse: str | None = None
    lose_replies: int = 0
    lie: bool = False
    failing: str = ""
    """What the relay says of its store, if it fails."""

    @property
    def door(self) -> Door:
        return Door(socket=str(self.folder / "door"), token="freezer-token", port=8080)

    @property
    def sink(self) -> RelaySink:
        return RelaySink(socket=str(self.folder / "relay"), token="freezer-token")

    def take(self, connection: socket.socket) -> None:
        """Take one listener (blocking; runs in a thread)."""
        with connection:
            data, descriptors, _, _ = socket.recv_fds(connection, 4096, 4)
            if self.refuse:
                connection.sendall(json.dumps({"error": self.refuse}).encode() + b"\n")
                for descriptor in descriptors:
                    os.close(descriptor)
                return
            (descriptor,) = descriptors
            self.listeners.append((json.loads(data)["token"], socket.socket(fileno=descriptor)))
            connection.sendall(b'{"ok": true}\n')

    async def put(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        name = head[0].split()[1]
        self.tokens += [line.split()[-1] for line in head if line.lower().startswith("authorization:")]
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        status = "409 Conflict" if name in self.blobs else "200 OK"
        kept = self.blobs.setdefault(name, body)
        digest = hashlib.sha256(kept + b"x" if self.lie else kept).hexdigest()
        if self.failing:
            reply = json.dumps({"error": {"type": self.failing, "message": "no"}}).encode()
            writer.write(f"HTTP/1.1 503 Busy\r\nContent-Length: {len(reply)}\r\n\r\n".encode() + reply)
        elif self.lose_replies:
            self.lose_replies -= 1
        else:
            reply = json.dumps({"key": f"blobs/r/{Path(name).name}", "sha256": digest, "size": len(kept)}).encode()
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(reply)}\r\n\r\n".encode() + reply)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[FakeGateway]:
        relay = await asyncio.start_unix_server(self.put, str(self.folder / "relay"))
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(self.folder / "door"))
            door.listen()
            loop = asyncio.get_running_loop()
            stopping = False

            def accept() -> None:
                while True:
                    connection, _ = door.accept()
                    if stopping:
                        connection.close()
                        return
                    self.take(connection)

            accepting = loop.run_in_executor(None, accept)
            try:
                yield self
            finally:
                stopping = True
                with socket.socket(socket.AF_UNIX) as wake:
                    wake.connect(str(self.folder / "door"))
                await accepting
                relay.close()
                await relay.wait_closed()
                for _, listener in self.listeners:
                    listener.close()
