"""A service of ours as a child process: secrets in by standard input, one ready line out, its end with ours, started again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.errors import InfrastructureError

_READY_SECONDS = 30
_RESTARTS = 20
_PAUSES = (0.0, 0.2, 1.0, 3.0)
_TAIL_BYTES = 2000
"""Seconds before each attempt to start a service again."""


class Child:
    """One service process. Use as an async context manager."""

    def __init__(self, name: str, module_arguments: Sequence[str], config: Mapping[str, Any], log: Path) -> None:
        self._name = name
        self._command = (sys.executable, "-P", *module_arguments)  # -P: no code from the current folder
        self._config = config
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._failed: InfrastructureError | None = None
        self.greeting: dict[str, Any] = {}
        """What the service said of itself when it was ready."""

    async def __aenter__(self) -> Child:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        await self.end()

    async def start(self) -> None:
        """Start it and wait until it listens. Raises InfrastructureError with the end of its log."""
        await self._start()
        self._watch = asyncio.create_task(self._restart_when_dead())

    async def end(self) -> None:
        """Close its standard input, which ends it; kill it when that takes too long."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._process is not None:
            await _end(self._process)

    async def ready(self) -> None:
        """Wait until it listens, also while it is being started again. Raises InfrastructureError when it keeps dying."""
        await self._ready.wait()
        if self._failed is not None:
            raise self._failed

    async def _start(self) -> None:
        with self._open_log() as log:
            before = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the driver, which then ends its services in order
            )
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        assert self._process.stdout is not None  # noqa: S101
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps(self._config).encode() + b"\n")
            await self._process.stdin.drain()
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), _READY_SECONDS)
            self.greeting = json.loads(line)
        except (TimeoutError, ValueError) as error:
            await _end(self._process)
            msg = (
                f"the {self._name} did not start: {_tail(self._log, before) or 'it printed nothing'} (log: {self._log})"
            )
            raise InfrastructureError(msg, cause=f"{self._name}_not_started") from error
        self._ready.set()

    def _open_log(self) -> BinaryIO:
        try:
            return self._log.open("ab")
        except OSError as error:
            msg = f"the log {self._log} of the {self._name} cannot be written: {error.strerror}; set ORCHESTRATE_LOGS to another place"
            raise InfrastructureError(msg, cause="logs") from error

    async def _restart_when_dead(self) -> None:
        for _ in range(_RESTARTS):
            assert self._process is not None  # noqa: S101 - started in __aenter__
            await self._process.wait()
            self._ready.clear()
            self._failed = await self._start_again()
            if self._failed is not None:
                break
        else:
            msg = f"the {self._name} died {_RESTARTS} times (log: {self._log})"
            self._failed = InfrastructureError(msg, cause=f"{self._name}_died")
        self._ready.set()

    async def _start_again(self) -> InfrastructureError | None:
        """Start it once more, with some patience: what killed it may be killing still."""
        failure: InfrastructureError | None = None
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                await self._start()
            except InfrastructureError as error:
                failure = error
            else:
                return None
        return failure


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), 5)
    except TimeoutError:
        process.kill()
        await process.wait()


def _tail(log: Path, start: int) -> str:
    """Return the end of what was logged since ``start``: the log goes on from earlier runs."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            return file.read()[-_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        return ""
