"""A started program as its keeper sees it. Standard library only; part of the keeper."""

# pathlib would double the start-up time of the keeper.
# ruff: noqa: PTH123

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` builds enumerations that nobody needs here
import os
import select

KILL_SECONDS = 30.0
"""Longest time until a killed tree is gone; a process in an uninterruptible wait can need a while."""
_SIGKILL = 9
_EXITING = 0x4  # PF_EXITING


class KeeperError(Exception):
    """A sandbox could not be prepared, started or ended. ``cause`` is the short word under which equal failures are counted."""

    def __init__(self, message: str, cause: str = "sandbox_setup") -> None:
        super().__init__(message)
        self.cause = cause


class Tail:
    """The last bytes of the program's output; the rest is read and forgotten, so that the program never waits for us."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self._limit = limit
        self._data = bytearray()

    def read(self) -> bool:
        """Take what is there, at most 1 MiB at a time. False: nothing more for now."""
        try:
            chunk = os.read(self.descriptor, 1 << 20)
        except BlockingIOError:
            return False
        self._data += chunk
        if len(self._data) > 2 * self._limit + (1 << 16):
            del self._data[: len(self._data) - self._limit]
        return bool(chunk)

    def tail(self) -> bytes:
        """Return the end of the output."""
        return bytes(self._data[max(0, len(self._data) - self._limit) :])


class Program:
    """A program that waits at its gate, or runs, or has ended. Each backend has its own."""

    own_processes = 0
    """Processes below ``first_pid``, itself included, that are ours and not the agent's."""

    def __init__(self, output: Tail) -> None:
        self.output = output
        self.first = -1
        """pidfd of the PID namespace's first process: readable once everything inside is dead."""
        self.command = -1
        """pidfd of the program."""
        self.first_pid = 0
        """Process id of the namespace's first process, as this machine counts."""
        self.labels: dict[str, str] = {}
        """What is seen of it beside its limits."""

    def release(self) -> None:
        """Open the gate: the program starts. Raises OSError."""
        raise NotImplementedError

    def settle(self) -> None:
        """The program has ended by itself: wait for what its exit status is learned from."""

    def close(self) -> None:
        """Kill everything and wait until it is dead. Harmless when repeated. Raises KeeperError."""
        raise NotImplementedError

    def findings(self) -> list[tuple[str, str]]:
        """Return what was seen of it beside its limits, once it is closed. Raises KeeperError."""
        return []

    def exit(self) -> tuple[int | None, int | None]:
        """Return exit code and signal of the program, one of them None, once it is closed."""
        raise NotImplementedError


def kill(pidfd: int) -> None:
    """Kill the process behind a descriptor, if it still is there."""
    try:
        _signal.pidfd_send_signal(pidfd, _SIGKILL)
    except ProcessLookupError:
        return


def kill_namespace(first: int) -> None:
    """Kill the first process of a PID namespace, and with it everything inside. Raises KeeperError when it does not go."""
    kill(first)
    if not readable(first, KILL_SECONDS):
        msg = f"processes of a killed sandbox were still there after {KILL_SECONDS:g} s"
        raise KeeperError(msg, "sandbox_unkillable")


def readable(descriptor: int, seconds: float) -> bool:
    """Wait until a descriptor is readable; False when it was not in time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def parent(pid: int) -> int:
    """Return the parent of a process. Raises OSError when it is gone."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("PPid:"))


def is_exiting(pid: int) -> bool:
    """Return whether a process is gone, or on its way: the first process of a namespace waits for all others before it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            flags = int(file.read().rsplit(")", 1)[1].split()[6])
    except OSError:
        return True
    return bool(flags & _EXITING)
