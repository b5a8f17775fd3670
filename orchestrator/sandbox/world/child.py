"""The child of one launch: gives up everything but its folder and the world's files, then answers one message after another."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
from pathlib import Path
from typing import Any

from orchestrator.sandbox import jail
from orchestrator.sandbox.keeper import linux
from orchestrator.sandbox.world import wire
from orchestrator.sandbox.world.calls import Calls
from orchestrator.sandbox.world.database import Database
from orchestrator.sandbox.world.functions import BrokenError, load
from orchestrator.sandbox.world.proving import SeedError, problems, sow

DATABASE = "world.db"
"""In the folder of the launch."""
_SNAPSHOT = "snapshot.db"
_CPU_SECONDS = 3600
_SPARE_BYTES = 32 << 20
_GRACE_SECONDS = 1.0


def serve(line: socket.socket, order: dict[str, Any]) -> None:
    """Answer until the line ends. ``order``: ``folder`` (the launch's), ``bundle`` (the world's), ``now``, ``seed``."""
    bundle = Path(order["bundle"])
    world = json.loads((bundle / "world.json").read_bytes())
    source = (bundle / "world/tools.py").read_text() if any(tool.get("function") for tool in world["tools"]) else None
    seed = (bundle / "world/seed.sql").read_text()
    _confine(order, world["limits"])
    _Launch(line, order, world).run(seed, source)


def _confine(order: dict[str, Any], limits: dict[str, Any]) -> None:
    os.chdir(order["folder"])
    os.umask(0o077)
    if os.geteuid() == 0:
        linux.drop_capabilities()
    jail.confine(
        [f"{order['bundle']}/world"],
        order["folder"],
        cpu_seconds=_CPU_SECONDS,
        memory_bytes=limits["memory"],
        file_bytes=2 * limits["database"] + _SPARE_BYTES,
        alone=True,
    )


class _Launch:
    def __init__(self, line: socket.socket, order: dict[str, Any], world: dict[str, Any]) -> None:
        self._line = line
        self._order = order
        self._world = world
        self._seconds = world["limits"]["seconds"]

    def run(self, seed: str, source: str | None) -> None:
        """Make the database unless it is there, then take messages."""
        try:
            if not os.path.exists(DATABASE):  # noqa: PTH110
                self._make(seed)
            if self._order.get("prove"):
                with_problems = problems(self._open(DATABASE), self._world, source)
                wire.send(self._line, {"problems": with_problems})
                return
            functions = {} if source is None else load(source, "tools.py")
        except SeedError as error:
            wire.send(self._line, {"problems": [{"file": "seed.sql", "line": error.line, "message": str(error)}]})
            return
        except BrokenError as error:
            wire.send(self._line, {"problems": [{"file": "tools.py", "message": str(error)}]})
            return
        wire.send(self._line, {"ready": True, "landlock": jail.landlock_version()})
        database = self._open(DATABASE)
        calls = Calls(database, self._world, self._order["seed"], functions)
        while (message := wire.receive(self._line)) is not None:
            wire.send(self._line, self._answer(message, calls, database))

    def _answer(self, message: dict[str, Any], calls: Calls, database: Database) -> dict[str, Any]:
        if "recall" in message:
            return {"answer": calls.recall(message["recall"])}
        if "last" in message:
            return {"last": calls.last}
        if "snapshot" in message:
            if os.path.exists(_SNAPSHOT):  # noqa: PTH110
                os.unlink(_SNAPSHOT)  # noqa: PTH108
            database.own(f"vacuum into '{_SNAPSHOT}'")
            return {"snapshot": _SNAPSHOT}
        # Whatever a function does, and however it is written, the call ends: the alarm's default is death.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self._seconds + _GRACE_SECONDS)
        try:
            return {"answer": calls.take(message["call"])}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _make(self, seed: str) -> None:
        fresh = f"{DATABASE}.new"
        for each in (fresh, f"{fresh}-journal"):
            if os.path.exists(each):  # noqa: PTH110
                os.unlink(each)  # noqa: PTH108
        database = self._open(fresh, 0)  # the grader makes the same one
        try:
            sow(database, seed)
        finally:
            database.close()
        os.rename(fresh, DATABASE)  # noqa: PTH104

    def _open(self, name: str, seed: int | None = None) -> Database:
        limits = self._world["limits"]
        try:
            return Database(
                name,
                most_bytes=limits["database"],
                rows=limits["rows"],
                now=self._order["now"],
                seed=self._order["seed"] if seed is None else seed,
            )
        except sqlite3.Error as error:
            raise OSError(str(error)) from error
