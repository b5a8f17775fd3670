"""Watching a sandbox from outside until it ends. Standard library only; part of the keeper.

Some endings cannot be seen from an exit code: a program that fills its disk may end with 0, and the kernel may kill a child for memory
while the parent lives on. So the keeper samples, and when it sees such a thing it kills the tree and says which it was.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from orchestrator.sandbox.keeper.cgroup import Group
    from orchestrator.sandbox.keeper.program import Program

SAMPLE_SECONDS = 0.05
"""Time between samples; a disk is full when it was in two of them."""
FORK_SECONDS = 1.0
"""How long refused forks must go on to end the sandbox: a program may well be refused one and cope."""
_FORK_GAP = 0.3  # a pause of this length ends a row of refused forks
_ALL = frozenset({"memory", "pids", "cpu"})
_COUNTED = frozenset({"memory", "pids"})


class Commands:
    """Lines on standard input."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.closed = False
        self._data = b""
        self._lines: list[str] = []

    def first_line(self) -> str | None:
        """Wait for one line. None: the input ended."""
        while not self._lines and not self.closed:
            self.read()
        return self._lines.pop(0) if self._lines else None

    def read(self) -> None:
        """Take what is there; waits if nothing is."""
        chunk = os.read(self.descriptor, 1 << 16)
        self.closed = not chunk
        *lines, self._data = (self._data + chunk).split(b"\n")
        self._lines += [line.decode() for line in lines]

    def take(self, word: str) -> bool:
        """Return whether a command was given, and forget it."""
        if word in self._lines:
            self._lines.remove(word)
            return True
        return False

    def wait_for(self, word: str) -> bool:
        """Wait for a command, ignoring others. False: the input ended first."""
        while not self.take(word):
            self._lines.clear()
            if self.closed:
                return False
            self.read()
        return True


class Watch:
    """Waits for the end of a program."""

    def __init__(
        self, spec: dict[str, Any], program: Program, group: Group, places: Sequence[str | int], commands: Commands
    ) -> None:
        self._limits = spec["limits"]
        self._program = program
        self._group = group
        self._places = places
        self._commands = commands
        self._full = False
        self._refused = 0
        self._threads = 0
        self._refusing_since: float | None = None
        self._refused_last = 0.0
        self._sampled: dict[str, str] = {}
        self.labels = {**limits_labels(group.controllers), **program.labels}
        """What the limits do not promise in full."""

    def until_end(self) -> dict[str, Any] | None:
        """Wait until the tree has ended or must end, kill it, prove it dead and return the ``ended`` event. None: our input ended."""
        started = time.monotonic()
        cause = self._wait(started + self._limits["wall"])
        program = self._program
        if cause == "exited":
            program.settle()
        program.close()
        ended = time.time()
        if cause == "":
            return None
        code, signal = program.exit()
        return {
            "at": ended,
            "cause": self._final_cause(cause),
            "code": code,
            "signal": signal,
            "findings": self._findings(),
        }

    def _wait(self, deadline: float) -> str:
        """Return the cause of the end; empty when our input ended."""
        poll = select.poll()
        output = self._program.output
        for descriptor in (self._commands.descriptor, self._program.command, self._program.first, output.descriptor):
            poll.register(descriptor, select.POLLIN)
        next_sample = time.monotonic() + SAMPLE_SECONDS
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, next_sample - time.monotonic()) * 1000)}
            if self._commands.descriptor in ready and (cause := self._commanded()) is not None:
                return cause
            if output.descriptor in ready and not output.read():
                poll.unregister(output.descriptor)  # every writer has closed it
            if self._program.command in ready or self._program.first in ready:
                return "exited"
            now = time.monotonic()
            if now >= next_sample:
                next_sample = now + SAMPLE_SECONDS
                cause = self._sample(now)
                if cause:
                    return cause
            if now >= deadline:
                return "wall_clock"

    def _commanded(self) -> str | None:
        self._commands.read()
        if self._commands.closed:
            return ""
        return "stopped" if self._commands.take("stop") else None

    def _sample(self, now: float) -> str:
        if not self._group.controllers >= _COUNTED and (cause := self._sample_tree()):
            return cause
        if self._group.oom_kills():
            return "out_of_memory"
        full = self._is_full()
        if full and self._full:
            return "out_of_disk"
        self._full = full
        return "out_of_processes" if self._is_refusing(now) else ""

    def _is_full(self) -> bool:
        for place in self._places:
            info = os.statvfs(place)
            if info.f_bfree == 0 or info.f_ffree == 0:
                return True
        return False

    def _is_refusing(self, now: float) -> bool:
        refused = self._refused_forks()
        if refused > self._refused:
            if self._refusing_since is None:
                self._refusing_since = now
            self._refused_last = now
        elif now - self._refused_last > _FORK_GAP:
            self._refusing_since = None
        self._refused = refused
        return self._refusing_since is not None and now - self._refusing_since >= FORK_SECONDS

    def _refused_forks(self) -> int:
        if "pids" in self._group.controllers:
            return self._group.refused_forks()
        # Without the kernel's counter: a tree at its limit is taken for one that is refused more.
        return self._refused + 1 if self._threads >= self._limits["processes"] else self._refused

    def _sample_tree(self) -> str:
        """Look at every process where no control group does it for us."""
        processes = tree(self._program.first_pid)
        self._threads = sum(threads for _, _, threads in processes) - self._program.own_processes
        if "pids" not in self._group.controllers and self._threads >= (most := self._limits["processes"]):
            self._sampled["process_limit"] = f"{self._threads} processes and threads were seen; the limit is {most}"
            if self._threads > most + 1:
                return "out_of_processes"  # more than the resource limit allows: it does not hold for this user
        if "memory" in self._group.controllers:
            return ""
        # The first sum counts pages twice that forked processes share; the true one takes the kernel longer.
        limit = self._limits["memory"]
        if sum(memory for _, memory, _ in processes) <= limit:
            return ""
        used = sum(shared_out(pid) for pid, _, _ in processes)
        if used <= limit:
            return ""
        self._sampled["memory_limit"] = f"{used} bytes of memory were seen in use; the limit is {limit}"
        return "out_of_memory"

    def _final_cause(self, cause: str) -> str:
        """A cause that the kernel counted wins over how the first process ended; ``stopped`` and what was seen before stay."""
        if cause in {"stopped", "out_of_memory", "out_of_disk", "out_of_processes"}:
            return cause
        if self._group.oom_kills():
            return "out_of_memory"
        return "out_of_disk" if self._is_full() else cause

    def _findings(self) -> list[tuple[str, str]]:
        found = [*self._sampled.items()]
        kills, refused = self._group.oom_kills(), self._group.refused_forks()
        found += [] if kills else self._program.findings()
        if kills:
            found.append(("oom_kill", f"the kernel killed {kills} process{'es' if kills > 1 else ''} for memory"))
        if refused:
            found.append(("refused_forks", f"{refused} forks were refused at {self._limits['processes']} processes"))
        if self._is_full():
            found.append(("disk_full", "no free block or inode was left at the end"))
        return found


def limits_labels(controllers: frozenset[str]) -> dict[str, str]:
    """Return the label ``limits``: what holds them, by the kernel or by our samples."""
    if controllers >= _ALL:
        return {"limits": "cgroup, memory includes disk"}
    if {"memory", "pids"} <= controllers:
        return {"limits": "cgroup, memory includes disk, cpu not limited"}
    missing = ", ".join(name for name in ("memory", "pids", "cpu") if name not in controllers)
    return {"limits": "sampled" if not controllers else f"sampled ({missing}), else cgroup"}


def tree(first: int) -> list[tuple[int, int, int]]:
    """Return process id, resident memory that is no file's in bytes, and threads of ``first`` and each process below it."""
    result = []
    pending = [first]
    while pending:
        pid = pending.pop()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                    pending += map(int, file.read().split())
        except (OSError, ValueError):
            continue
        numbers = _numbers(f"/proc/{pid}/status")
        memory = (numbers.get("RssAnon", 0) + numbers.get("RssShmem", 0)) << 10
        result.append((pid, memory, numbers.get("Threads", 1)))
    return result


def shared_out(pid: int) -> int:
    """Return a process's memory that is no file's, in bytes, pages that several processes hold divided among them."""
    numbers = _numbers(f"/proc/{pid}/smaps_rollup")
    return (numbers.get("Pss_Anon", 0) + numbers.get("Pss_Shmem", 0)) << 10


def _numbers(path: str) -> dict[str, int]:
    """Return the lines ``Name: number`` of a file of /proc; none when the process is gone."""
    result = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                words = value.split()
                if words and words[0].isdigit():
                    result[name] = int(words[0])
    except OSError:
        return {}
    return result
