"""First process of a subject's container: ``python3 -I -S /grader/join.py``.

Connects to the runner, starts the subject with the line as its descriptor 3, and watches over it: processes, disk, time, and the line, with
which everything here ends, whoever keeps the subject from noticing. It cannot be killed or traced by what runs beside it: it is the first
process, not dumpable, and the subject is refused the system calls for that, since gVisor's kernel does not protect a first process. Knows
nothing hidden. Plan: ``{"command": […], "env": {…}, "stdin_b64", "workdir", "processes", "areas", "disk_bytes",
"wall_seconds", "line", "ready_seconds"}``.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

_PLAN = "/grader/plan.json"
_GUARD = ("/grader/guard", "guard", "--")
_LIB = "/grader/lib"
"""The grader's programs for subjects, read-only."""
_OVER, _NOT_JOINED, _DISK, _PROCESSES, _DEADLINE = 0, 121, 122, 123, 124
_TICK_SECONDS = 0.05
_TERMINATION = "/dev/termination-log"
_MOST_LAST_WORDS = 64 << 10  # the kubelet reads 4096 bytes
_PR_SET_DUMPABLE = 4


def main() -> int:
    """Run the subject to its end and return the exit code: its own, 128 plus its signal, or one of ours."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    with open(_PLAN, "rb") as file:  # noqa: PTH123
        plan = json.load(file)
    line = _joined(plan["line"], plan["ready_seconds"])
    if line is None:
        sys.stderr.write("no runner took the line\n")
        return _NOT_JOINED
    is_over = disk_watch(plan["areas"], plan["disk_bytes"])
    child = os.fork()
    if child == 0:
        _become(plan, line)
    code = _watch(child, line, plan["processes"], time.monotonic() + plan["wall_seconds"], is_over)
    return 1 if code == _NOT_JOINED else code  # a subject that chooses this code has been there all the same


def disk_watch(areas: list[str], disk_bytes: int) -> Callable[[], bool]:
    """Return what says, asked often, whether there is more in some folders than there may be."""
    sys.path.insert(0, _LIB)
    from orchestrator.sandbox.pod.usage import DiskWatch

    watch, asked_at = DiskWatch([(areas, disk_bytes)], ours=True), 0.0

    def is_over() -> bool:
        nonlocal asked_at
        if time.monotonic() < asked_at + watch.pause:
            return False
        asked_at = time.monotonic()
        return watch.is_over()

    return is_over


def _joined(place: str, seconds: float) -> socket.socket | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(place)
        except OSError:
            line.close()
            time.sleep(_TICK_SECONDS)
        else:
            return line
    return None


def _become(plan: dict[str, Any], line: socket.socket) -> None:
    try:
        os.setsid()
        source = os.memfd_create("stdin", os.MFD_CLOEXEC)
        os.write(source, base64.b64decode(plan["stdin_b64"]))
        os.lseek(source, 0, os.SEEK_SET)
        kept = line.dup()
        os.dup2(source, 0)
        os.dup2(kept.fileno(), 3)
        os.set_inheritable(3, True)  # it may have been that number before
        os.closerange(4, 1 << 16)
        os.chdir(plan["workdir"])
        _say_nothing()
        os.execve(_GUARD[0], [*_GUARD, *plan["command"]], {**os.environ, **plan["env"]})  # noqa: S606, TID251
    except BaseException as error:  # noqa: BLE001 - a fork must not return
        sys.stderr.write(f"cannot start {plan['command'][0]}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def _say_nothing() -> None:
    """Leave standard output and error: they are the container's log, which is on the node's disk and counts for no limit in time."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


def _watch(child: int, line: socket.socket, processes: int, deadline: float, is_over: Callable[[], bool]) -> int:
    """Wait for the child or for the runner to hang up, reaping whatever becomes ours, and end all others with it."""
    code: int | None = None
    peer = select.poll()
    peer.register(line, select.POLLRDHUP)
    while code is None:
        if time.monotonic() > deadline:
            code = _DEADLINE
        elif peer.poll(0):
            code = _OVER
        elif _count() > processes + 1:
            code = _PROCESSES
        elif is_over():
            code = _DISK
        else:
            _cut_last_words()
            code = _reaped(child)
            if code is None:
                time.sleep(_TICK_SECONDS)
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    return code


def _reaped(child: int) -> int | None:
    """Reap what has ended; the child's exit code once it is among that."""
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return _DEADLINE
        if process == 0:
            return None
        if process == child:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _cut_last_words() -> None:
    """Give the node back what a subject has put into its termination message: anybody may write it, and it counts for no limit."""
    with contextlib.suppress(OSError):
        if os.stat(_TERMINATION).st_blocks * 512 > _MOST_LAST_WORDS:  # noqa: PTH116
            os.truncate(_TERMINATION, 0)


def _count() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))  # noqa: PTH208


if __name__ == "__main__":
    os._exit(main())
