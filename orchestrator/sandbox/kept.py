"""A sandbox and its keeper, seen from asyncio: what the backends on one machine share.

Each keeper is a small program of the standard library, without credentials, that dies with its standard input. It is told everything in one
line of JSON; ``keeper.life`` says how it answers.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from orchestrator.errors import SandboxError, StoreError
from orchestrator.interfaces import (
    Door,
    Ending,
    FolderSink,
    Frozen,
    Gateway,
    PodDoor,
    PodSink,
    RelaySink,
    SandboxSpec,
)
from orchestrator.records.base import BlobRef
from orchestrator.records.outcome import Exit
from orchestrator.records.state import Finding, FrozenState
from orchestrator.sandbox.inside import HOME

OUTPUT_BYTES = 16 << 20
"""Size of ``/output``."""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LINE_BYTES = 64 << 20
_ROOT = Path(__file__).resolve().parents[2]
_LEAVE_SECONDS = 60.0


@asynccontextmanager
async def kept(
    spec: SandboxSpec, keeper: str, python: Path, specification: Mapping[str, Any]
) -> AsyncIterator[KeptSandbox]:
    """Start a keeper and give its sandbox, started; leaving kills and removes everything. Raises SandboxError.

    ``keeper`` is the module with the keeper's ``main``, ``python`` the interpreter for it, ``specification`` what it is told.
    """
    line = json.dumps(specification).encode() + b"\n"
    starting = asyncio.create_task(_start_keeper(line, spec.channel, python, keeper))
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(SandboxError):
            await KeptSandbox(spec.name, await starting).leave()
        raise
    sandbox = KeptSandbox(spec.name, process)
    try:
        await sandbox.started()
        yield sandbox
    finally:
        await sandbox.leave()


def common_specification(spec: SandboxSpec) -> dict[str, Any]:
    """Return what every keeper is told. Raises SandboxError for what cannot work."""
    _check(spec)
    limits = spec.limits
    return {
        "name": spec.name,
        "command": list(spec.command),
        "stdin": base64.b64encode(spec.stdin).decode(),
        "workdir": os.path.normpath(spec.workdir),
        "home": HOME,
        "packages": [str(package.absolute()) for package in spec.packages],
        "inputs": [
            {
                "source": str(item.source.absolute()),
                "target": os.path.normpath(item.target),
                "writable": item.writable,
            }
            for item in spec.inputs
        ],
        "door": _door(spec.door),
        "channel": spec.channel,
        "sink": _sink(spec.sink),
        "pristine": None if spec.pristine is None else str(spec.pristine.absolute()),
        "listing": None if spec.listing is None else str(spec.listing.absolute()),
        "exclude": list(spec.exclude),
        "limits": {
            "cpu": limits.cpu,
            "memory": limits.memory_bytes,
            "memory_total": limits.memory_bytes + limits.disk_bytes + OUTPUT_BYTES,
            "disk": limits.disk_bytes,
            "output_area": OUTPUT_BYTES,
            "processes": limits.processes,
            "wall": limits.wall_seconds,
            "output": limits.output_bytes,
        },
    }


class KeptSandbox:
    """One sandbox and its keeper."""

    def __init__(self, name: str, keeper: asyncio.subprocess.Process) -> None:
        self.labels: Mapping[str, str] = {}
        self._name = name
        self._keeper = keeper
        self._started_at = 0.0
        self._frozen = False
        self._ending: asyncio.Task[Ending] | None = None
        self._errors: asyncio.Task[bytes] = asyncio.create_task(_tail(keeper))

    async def started(self) -> None:
        """Wait until the program runs. Raises SandboxError."""
        event = await self._event("started")
        self._started_at = event["at"]
        self.labels = event["labels"]
        self._ending = asyncio.create_task(self._read_ending())

    async def running(self) -> None:
        """It runs since it was opened."""

    async def ended(self) -> Ending:
        """Wait until the whole tree is dead and say how it ended. Raises SandboxError."""
        assert self._ending is not None  # noqa: S101 - ``open`` hands out started sandboxes only
        return await asyncio.shield(self._ending)

    async def stop(self) -> None:
        """Kill the tree. Harmless when repeated or late."""
        await self._command("stop")

    async def freeze(self) -> Frozen:
        """Stream the state to the sink, once. Raises SandboxError, and StoreError when the relay's store fails."""
        await self.ended()
        if self._frozen:
            msg = f"sandbox {self._name}: its state is frozen once and was frozen before"
            raise SandboxError(msg, cause="sandbox_spec")
        self._frozen = True
        await self._command("freeze")
        event = await self._event("frozen")
        state = None
        if "entries" in event:
            state = FrozenState(entries=BlobRef(**event["entries"]), changes=BlobRef(**event["changes"]))
        return Frozen(
            state=state,
            output=base64.b64decode(event["output"]),
            output_blob=BlobRef(**event["output_blob"]) if "output_blob" in event else None,
            final=None if event["final"] is None else base64.b64decode(event["final"]),
            findings=tuple(Finding(type=kind, detail=detail, source="freezer") for kind, detail in event["findings"]),
        )

    async def leave(self) -> None:
        """Let the keeper kill what is left and clean up; wait for it, also when this task is cancelled meanwhile."""
        leaving = asyncio.ensure_future(self._leave())
        while not leaving.done():
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                if leaving.done():
                    break
                await asyncio.wait({leaving})
                raise
        if not leaving.cancelled():
            leaving.exception()

    async def _leave(self) -> None:
        stdin = self._keeper.stdin
        assert stdin is not None  # noqa: S101 - it was asked for
        stdin.close()
        if self._ending is not None:
            self._ending.cancel()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._drain()
                await self._keeper.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._keeper.kill()
            await self._keeper.wait()
        await asyncio.gather(self._errors, return_exceptions=True)
        transport = getattr(self._keeper, "_transport", None)
        if transport is not None:
            transport.close()

    async def _drain(self) -> None:
        stdout = self._keeper.stdout
        assert stdout is not None  # noqa: S101 - it was asked for
        if self._ending is not None:
            await asyncio.gather(self._ending, return_exceptions=True)
        while await stdout.read(1 << 16):
            pass

    async def _read_ending(self) -> Ending:
        event = await self._event("ended")
        return Ending(
            exit=Exit(code=event["code"], signal=event["signal"]),
            cause=event["cause"],
            started=self._started_at,
            ended=event["at"],
            findings=tuple(Finding(type=kind, detail=detail) for kind, detail in event["findings"]),
        )

    async def _command(self, word: str) -> None:
        stdin = self._keeper.stdin
        assert stdin is not None  # noqa: S101 - it was asked for
        with contextlib.suppress(ConnectionError):
            stdin.write(word.encode() + b"\n")
            await stdin.drain()

    async def _event(self, wanted: str) -> dict[str, Any]:
        """Return the next event of that name. Raises SandboxError when the keeper fails or goes first, StoreError for the relay's."""
        stdout = self._keeper.stdout
        assert stdout is not None  # noqa: S101 - it was asked for
        while line := await stdout.readline():
            event: dict[str, Any] = json.loads(line)
            if event["event"] == wanted:
                return event
            if event["event"] == "error":
                msg = f"sandbox {self._name}: {event['message']}"
                raise (StoreError if event.get("store") else SandboxError)(msg, cause=event["cause"])
        code = await self._keeper.wait()
        said = (await self._errors).decode("utf-8", "replace").strip()
        msg = f"sandbox {self._name}: its keeper ended with {code} before '{wanted}': {said or 'it said nothing'}"
        raise SandboxError(msg, cause="sandbox_keeper")


def _check(spec: SandboxSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        msg = f"sandbox name {spec.name!r}: use 1 to 100 letters, digits, dots, dashes or underscores"
        raise SandboxError(msg, cause="sandbox_spec")
    if not spec.command:
        msg = f"sandbox {spec.name}: there is no command to run"
        raise SandboxError(msg, cause="sandbox_spec")
    bad = [name for name in spec.env if not _ENV_NAME.fullmatch(name)]
    if bad:
        msg = f"sandbox {spec.name}: environment variables need names of letters, digits and underscores, not {', '.join(map(repr, bad))}"
        raise SandboxError(msg, cause="sandbox_spec")
    words = [*spec.command, *spec.env.values(), spec.workdir, *(item.target for item in spec.inputs)]
    if any("\0" in word for word in words):
        msg = f"sandbox {spec.name}: a zero byte in command, environment or paths"
        raise SandboxError(msg, cause="sandbox_spec")
    if "=" in spec.command[0]:
        msg = f"sandbox {spec.name}: a program's name cannot have '=': {spec.command[0]!r}"
        raise SandboxError(msg, cause="sandbox_spec")
    for item in spec.inputs:
        if not item.target.startswith("/") or os.path.normpath(item.target) == "/":
            msg = f"sandbox {spec.name}: input target {item.target!r} must be an absolute path below /"
            raise SandboxError(msg, cause="sandbox_spec")


def _door(door: Door | PodDoor | None) -> dict[str, Any] | None:
    if isinstance(door, PodDoor):
        msg = "a sandbox of this machine cannot use the door of a pod"
        raise SandboxError(msg, cause="sandbox_setup")
    return None if door is None else vars(door)


def _sink(sink: RelaySink | PodSink | FolderSink | None) -> dict[str, str] | None:
    if isinstance(sink, RelaySink):
        return {"type": "relay", "socket": sink.socket, "token": sink.token}
    if isinstance(sink, PodSink):
        msg = "a sandbox of this machine cannot deliver its state as a pod does"
        raise SandboxError(msg, cause="sandbox_setup")
    return None if sink is None else {"type": "folder", "folder": str(sink.folder.absolute())}


class OnThisMachine:
    """What backends have in common whose sandboxes are made from this machine's folders and end with their process."""

    fetches = False
    mounts_images = False

    @contextlib.asynccontextmanager
    async def claiming(self, run: str, epoch: int) -> AsyncIterator[None]:
        """Nobody else cleans up here: keepers end with their parent."""
        yield

    async def tidy(self, run: str, over: AbstractSet[str]) -> AbstractSet[str]:
        """Nothing outlives its process."""
        return frozenset()

    @contextlib.asynccontextmanager
    async def driving(self, run: str, epoch: int, gateway: Gateway) -> AsyncIterator[Self]:
        """Give this backend itself: nothing of it belongs to one run."""
        yield self


async def _start_keeper(line: bytes, channel: int | None, python: Path, module: str) -> asyncio.subprocess.Process:
    code = f"import sys; sys.path.append(sys.argv[1]); from {module} import main; sys.exit(main())"
    try:
        keeper = await asyncio.create_subprocess_exec(
            str(python),
            *("-I", "-S", "-X", "utf8", "-c", code, str(_ROOT)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            env={},
            pass_fds=() if channel is None else (channel,),
            start_new_session=True,
        )
    except OSError as error:
        msg = f"cannot start the keeper with {python}: {error.strerror}"
        raise SandboxError(msg, cause="sandbox_keeper") from error
    assert keeper.stdin is not None  # noqa: S101 - it was asked for
    with contextlib.suppress(ConnectionError):
        keeper.stdin.write(line)
        await keeper.stdin.drain()
    return keeper


async def _tail(keeper: asyncio.subprocess.Process) -> bytes:
    stderr = keeper.stderr
    assert stderr is not None  # noqa: S101 - it was asked for
    kept = b""
    while chunk := await stderr.read(1 << 16):
        kept = (kept + chunk)[-4000:]
    return kept
