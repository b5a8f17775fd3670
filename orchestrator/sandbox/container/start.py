"""Having the engine start a container that only holds namespaces, limits and an image. Standard library only; part of the keeper.

The container's first process is a shell that waits for its standard input to end. Only the keeper can write there, so however the keeper
ends, the container does too: nothing has to be alive to clean up. The shell also reaps what the agent's programs leave behind.
"""

# pathlib would double the start-up time of the keeper.
# ruff: noqa: PTH108, PTH123

from __future__ import annotations

import os
import time

from orchestrator.sandbox.keeper.program import KeeperError, parent, readable

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

START_SECONDS = 120.0
"""Longest time until the engine has started a container."""
REMOVE_SECONDS = 30.0
"""Longest time until the engine has removed one."""
_ASK_SECONDS = 0.02
_BECOME_SECONDS = 5.0
_TRIES = 2
_SAID_BYTES = 2000
_GONE = "no such container"


class Holder:
    """A container as the engine starts, knows and removes it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        engine = spec["engine"]
        self._env: dict[str, str] = engine["env"]
        self._engine = engine
        self._said = os.memfd_create("engine", os.MFD_CLOEXEC)
        self._stdin = -1
        self._starter = -1
        self._remover = -1
        self._begun = False
        self.first = -1
        """pidfd of the container's first process."""

    def begin(self) -> None:
        """Ask the engine for the container, and return at once. Raises KeeperError and OSError."""
        os.chdir(self._engine["folder"])  # Podman's monitor notes that memory ran out in a file where it was started
        reader, self._stdin = os.pipe2(os.O_CLOEXEC)
        self._begun = True
        try:
            self._starter = self._run(self._engine["run"], reader, self._said)
        finally:
            os.close(reader)

    def wait(self) -> int:
        """Wait until the container runs and return the process id of its first process. Raises KeeperError with the engine's words."""
        deadline = time.monotonic() + START_SECONDS
        pid = self._written(deadline) if self._engine["pidfile"] else self._asked(deadline)
        if not pid:
            raise KeeperError(self._failure(), "sandbox_engine")
        first = os.pidfd_open(pid)
        if not _becomes(pid, self._engine["token"]):
            os.close(first)
            msg = f"process {pid} of this machine is not the container's: the engine must run on this machine, not at another address"
            raise KeeperError(msg, "sandbox_engine")
        self.first = first
        if self._engine["pidfile"]:
            # The first process is a child of the one that removes the container afterwards.
            self._remover = os.pidfd_open(parent(pid))
        return pid

    def let_go(self) -> None:
        """Let the container's first process end, if it has not."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def remove(self) -> list[str]:
        """Let the container end and be removed; returns what would not go.

        An engine removes a container that has ended by itself. Where whoever does that is gone, the engine is asked to.
        """
        deadline = time.monotonic() + REMOVE_SECONDS
        orphan = self._remover >= 0 and readable(self._remover, 0)
        self.let_go()
        if not self._begun:
            return []
        if self._starter >= 0:
            orphan |= self._end_of_starter(deadline) is None
        if self._engine["pidfile"]:
            _forget(self._engine["pidfile"])
        if self._remover >= 0 and not orphan and readable(self._remover, max(0.0, deadline - time.monotonic())):
            return []
        if not self._engine["pidfile"] and not orphan:
            return []
        for _ in range(_TRIES):
            # The first try may wait for a monitor that is no more, fail for it, and note it: the next one goes.
            asked = self._run(self._engine["remove"], -1, self._said)
            if self._end_of(asked, time.monotonic() + REMOVE_SECONDS) == 0 or _GONE in self._words().lower():
                return []
        return [f"container {self._engine['name']}"]

    def _written(self, deadline: float) -> int:
        """Return the process id that the engine has written before its command ended; 0: it failed."""
        code = self._end_of_starter(deadline)
        path = self._engine["pidfile"]
        try:
            with open(path, encoding="ascii") as file:
                pid = int(file.read())
            _forget(path)
        except (OSError, ValueError):
            return 0
        return pid if code == 0 else 0

    def _asked(self, deadline: float) -> int:
        """Ask the engine for the process id until it has one; 0: its command ended before."""
        while time.monotonic() < deadline:
            answer = os.memfd_create("answer", os.MFD_CLOEXEC)
            silent = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._end_of(self._run(self._engine["state"], -1, answer, silent), deadline)
                text = os.pread(answer, 64, 0).strip()
            finally:
                os.close(answer)
                os.close(silent)
            if text.isdigit() and int(text):
                return int(text)
            if self._has_ended():
                return 0
            time.sleep(_ASK_SECONDS)
        return 0

    def _has_ended(self) -> bool:
        if self._starter >= 0 and os.waitpid(self._starter, os.WNOHANG)[0]:
            self._starter = -1
        return self._starter < 0

    def _run(self, words: list[str], stdin: int, out: int, err: int = -1) -> int:
        """Start a command of the engine and return its process id. Raises KeeperError."""
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        actions = [
            (os.POSIX_SPAWN_DUP2, null if stdin < 0 else stdin, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, out if err < 0 else err, 2),
        ]
        try:
            return os.posix_spawnp(words[0], words, self._env, file_actions=actions)
        except OSError as error:
            msg = f"cannot start {words[0]}: {error.strerror}"
            raise KeeperError(msg, "sandbox_engine") from error
        finally:
            os.close(null)

    def _end_of_starter(self, deadline: float) -> int | None:
        pid, self._starter = self._starter, -1
        return None if pid < 0 else self._end_of(pid, deadline)

    def _end_of(self, pid: int, deadline: float) -> int | None:
        """Wait for a command of the engine and return its exit code; None: it had to be killed."""
        watch = os.pidfd_open(pid)
        try:
            if not readable(watch, max(0.0, deadline - time.monotonic())):
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                return None
        finally:
            os.close(watch)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _words(self) -> str:
        size = os.fstat(self._said).st_size
        data = os.pread(self._said, _SAID_BYTES, max(0, size - _SAID_BYTES))
        return data.decode("utf-8", "replace").strip()

    def _failure(self) -> str:
        return f"the engine could not start the container: {self._words() or 'it said nothing'}"


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _becomes(pid: int, token: str) -> bool:
    """Wait until a process has the token among its arguments: an engine tells its id before it is what was asked for."""
    deadline = time.monotonic() + _BECOME_SECONDS
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if token.encode() in file.read().split(b"\0"):
                    return True
        except OSError:
            return False
        time.sleep(_ASK_SECONDS / 4)
    return False
