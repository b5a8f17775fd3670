"""The processes behind worlds, as a gateway sees them: it starts one program, which forks a child for each launch that calls a tool.

A child holds nothing that is not in its launch's database, so idle ones are ended and only some live at one time. One that dies or takes
too long costs its call an error and nothing else: what was not committed has not happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import socket
import struct
import subprocess
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.spec.world import World

_SLACK_SECONDS = 3.0
"""Beyond the time of a call, before its child is killed; by then it has ended itself."""
_START_SECONDS = 90.0
"""For making a database."""
_MOST_BYTES = 8 << 20
_LAST_WORD = "the tool failed"
_SNAPSHOT = "snapshot.db"
"""What a child calls it, as agreed: it runs an author's code, so where files are is not asked of it."""


class WorldError(Exception):
    """A world that its author has to mend; ``problems`` say where: ``file``, ``line`` or ``path``, ``message``."""

    def __init__(self, problems: list[dict[str, Any]]) -> None:
        super().__init__("; ".join(str(each["message"]) for each in problems))
        self.problems = problems


class ChildGoneError(Exception):
    """A child has died or was killed."""


@dataclass(frozen=True)
class Place:
    """What a child needs to know."""

    folder: Path
    """Of the launch: its database is in it."""
    bundle: Path
    """``world.json`` and ``world/``."""
    now: str | None
    """The world's clock, RFC 3339."""
    seed: int
    prove: bool = False


class Child:
    """One process over one database."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self._reader = reader
        self._writer = writer

    @property
    def is_gone(self) -> bool:
        """Whether it has hung up."""
        return self._reader.at_eof()

    async def ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to one message. Raises ChildGoneError."""
        data = json.dumps(message, separators=(",", ":")).encode()
        try:
            self._writer.write(struct.pack("!I", len(data)) + data)
            async with asyncio.timeout(seconds):
                await self._writer.drain()
                return await self.heard()
        except (TimeoutError, OSError) as error:
            msg = f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else str(error)
            raise ChildGoneError(msg) from error

    async def heard(self) -> dict[str, Any]:
        """Return the next message of the child. Raises ChildGoneError and OSError."""
        try:
            (size,) = struct.unpack("!I", await self._reader.readexactly(4))
            data = await self._reader.readexactly(min(size, _MOST_BYTES))
            return dict(json.loads(data))
        except (asyncio.IncompleteReadError, ValueError, TypeError) as error:
            msg = "it has died"
            raise ChildGoneError(msg) from error

    def close(self) -> None:
        """Hang up: the child ends."""
        self._writer.close()


class WorldEngine:
    """Starts and ends the processes of worlds. One for each gateway."""

    def __init__(self, command: tuple[str, ...], folder: Path, *, live: int = 64) -> None:
        """``command``: the program. ``folder``: where databases are. ``live``: most children at one time, but for busy ones."""
        self._command = command
        self._folder = folder
        self._live = live
        self._numbers = itertools.count(1)
        self._idle: OrderedDict[str, Child] = OrderedDict()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    async def open(self, launch: str, bundle: Path, world: World, *, now: str | None, seed: int) -> LaunchWorld:
        """Return the world of a launch, whose database is made unless it is there. Raises WorldError and StoreError."""
        folder = self._folder / launch
        was_there = await asyncio.to_thread(folder.exists)
        await asyncio.to_thread(folder.mkdir, 0o700, True, True)
        found = LaunchWorld(self, launch, world, Place(folder, bundle, now, seed))
        try:
            await found.begin()
        except BaseException:
            if not was_there:  # else it holds what an earlier process has done, and the one after this may go on
                await asyncio.to_thread(shutil.rmtree, folder, True)
            raise
        return found

    async def prove(self, bundle: Path) -> list[dict[str, Any]]:
        """Return what is wrong with a world: seed, statements, functions. Raises StoreError."""
        folder = self._folder / f"proof-{next(self._numbers)}"
        await asyncio.to_thread(folder.mkdir, 0o700, True, True)
        try:
            child = await self._start(Place(folder, bundle, None, 0, prove=True))
            try:
                async with asyncio.timeout(_START_SECONDS):
                    return list((await child.heard())["problems"])
            except (ChildGoneError, TimeoutError) as error:
                return [{"file": "seed.sql", "message": f"the database cannot be made within its limits: {error}"}]
            finally:
                self.end(child)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    async def child(self, launch: str, place: Place) -> Child:
        """Return a child for a launch: the one that it had, or a new one. Raises WorldError, ChildGoneError and StoreError."""
        found = self._idle.pop(launch, None)
        if found is not None and not found.is_gone:
            return found
        if found is not None:
            self.end(found)
        child = await self._start(place)
        try:
            async with asyncio.timeout(_START_SECONDS):
                greeting = await child.heard()
        except (ChildGoneError, TimeoutError) as error:
            self.end(child)
            msg = f"the process of a world did not begin: {error}"
            raise ChildGoneError(msg) from error
        except BaseException:
            self.end(child)
            raise
        if "problems" in greeting:
            child.close()
            raise WorldError(greeting["problems"])
        return child

    def rest(self, launch: str, child: Child) -> None:
        """Keep a child for the launch's next call, as long as there are not too many."""
        self._idle[launch] = child
        while len(self._idle) > self._live:
            self._idle.popitem(last=False)[1].close()

    def end(self, child: Child) -> None:
        """Kill a child."""
        child.close()
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"end": child.number}).encode())

    async def keep_only(self, launches: set[str]) -> None:
        """Remove the databases of all other launches."""
        for folder in await asyncio.to_thread(lambda: [*self._folder.glob("*")]):
            if folder.name not in launches:
                self.forget(folder.name)
                await asyncio.to_thread(shutil.rmtree, folder, True)

    def forget(self, launch: str) -> None:
        """End the child that a launch may have."""
        child = self._idle.pop(launch, None)
        if child is not None:
            self.end(child)

    async def close(self) -> None:
        """End everything."""
        for child in self._idle.values():
            child.close()
        self._idle.clear()
        self._stop()

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def _start(self, place: Place) -> Child:
        ours, theirs = socket.socketpair()
        number = next(self._numbers)
        order = {
            "start": number,
            "folder": str(place.folder),
            "bundle": str(place.bundle),
            "now": place.now,
            "seed": place.seed,
            "prove": place.prove,
        }
        try:
            self._order(json.dumps(order).encode(), theirs)
        except OSError as error:
            ours.close()
            self._stop()
            msg = f"the program that holds worlds could not be started: {error.strerror or error}"
            raise StoreError(msg, cause="world_program") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        return Child(number, reader, writer)

    def _order(self, data: bytes, line: socket.socket) -> None:
        """Send an order to the program, which is started, or started again, when it is not there. Raises OSError."""
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._control is None:
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    self._process = subprocess.Popen(
                        self._command,
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        env={},
                    )
                except OSError:
                    control.close()
                    raise
            self._control = control
        socket.send_fds(self._control, [data], [line.fileno()])


@dataclass(frozen=True, kw_only=True)
class WorldAnswer:
    """What a call of a world's tool gives back."""

    outcome: str
    """``ok``, ``error`` or ``timeout``."""
    data: dict[str, Any]
    kind: str | None = None
    message: str = ""
    status: int = 200
    retry_after: float | None = None
    detail: str | None = None
    """What is wrong with the world itself, for people; an agent is not told."""


class LaunchWorld:
    """The world of one launch. Calls are taken one after another."""

    def __init__(self, engine: WorldEngine, launch: str, spec: World, place: Place) -> None:
        self.spec = spec
        self._engine = engine
        self._launch = launch
        self._place = place
        self._lock = asyncio.Lock()
        self._is_over = False
        self._requests = itertools.count(1)

    async def begin(self) -> None:
        """Make the database unless it is there. Raises WorldError and StoreError."""
        async with self._lock:
            try:
                child = await self._engine.child(self._launch, self._place)
                said = await child.ask({"last": True}, _SLACK_SECONDS)
                self._requests = itertools.count(said["last"] + 1)
                self._engine.rest(self._launch, child)
            except ChildGoneError as error:
                raise WorldError([{"file": "seed.sql", "message": str(error)}]) from error

    async def call(
        self, tool: str, arguments: dict[str, Any], *, request: str | None = None, caller: str = "agent"
    ) -> WorldAnswer:
        """Do one call, once for each ``request``; without one it is a request of its own.

        Raises StoreError when no process can be had for it.
        """
        request = f"call-{next(self._requests)}" if request is None else request
        order = {"tool": tool, "arguments": arguments, "request": request, "caller": caller}
        async with self._lock:
            if self._is_over:
                return WorldAnswer(outcome="error", data={}, kind="world_closed", message="it is over", status=409)
            began = time.monotonic()
            said = await self._asked({"call": order}, self.spec.limits.seconds + _SLACK_SECONDS)
            if said is None and time.monotonic() - began < self.spec.limits.seconds:
                # Its child died early, maybe for a reason that was not the call's. What was committed is not done again.
                said = await self._asked({"call": order}, self.spec.limits.seconds + _SLACK_SECONDS)
            if said is None:  # the answer is lost; what was committed tells
                said = await self._asked({"recall": request}, _SLACK_SECONDS)
        answer = (said or {}).get("answer") or {
            "outcome": "timeout",
            "kind": "tool_failed",
            "message": _LAST_WORD,
            "status": 500,
            "detail": f"{tool}: its process died or was killed after {self.spec.limits.seconds:g} s",
        }
        return WorldAnswer(**{"data": {}, **answer})

    async def snapshot(self) -> Path:
        """Return a file with the whole database, which takes no call from now on. Raises StoreError."""
        async with self._lock:
            self._is_over = True
            said = await self._asked({"snapshot": True}, _START_SECONDS)
            said = said or await self._asked({"snapshot": True}, _START_SECONDS)
            self._engine.forget(self._launch)
        if said is None:
            msg = f"the database of launch {self._launch} could not be read"
            raise StoreError(msg, cause="world_snapshot")
        return self._place.folder / _SNAPSHOT

    def leave(self) -> None:
        """End its child; the database stays."""
        self._engine.forget(self._launch)

    async def remove(self) -> None:
        """Remove the database: what is to be kept is in the store."""
        self.leave()
        await asyncio.to_thread(shutil.rmtree, self._place.folder, True)

    async def _asked(self, message: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Return the answer of a child; None: it is gone."""
        try:
            child = await self._engine.child(self._launch, self._place)
        except (ChildGoneError, WorldError):
            return None
        try:
            said = await child.ask(message, seconds)
        except ChildGoneError:
            self._engine.end(child)
            return None
        except BaseException:
            self._engine.end(child)
            raise
        self._engine.rest(self._launch, child)
        return said
