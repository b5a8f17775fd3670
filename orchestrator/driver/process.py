"""Name a process so that another one can say later whether it still lives."""

from __future__ import annotations

import os
import pwd
import signal
import socket
from pathlib import Path

from orchestrator.records.lease import Process


def this_process() -> Process:
    """Return the name of this process."""
    pid = os.getpid()
    return Process(host=socket.gethostname(), pid=pid, started=_started(pid), boot=_boot(), namespace=_namespace())


def this_person() -> str:
    """Return the name of whoever runs this process, and of the machine: ``USER@MACHINE``."""
    number = os.geteuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # a number that no file of this machine gives a name to, as in many containers
        name = str(number)
    return f"{name}@{socket.gethostname()}"


def is_gone(process: Process) -> bool:
    """Return whether a process is proven dead. False also where nothing can be said: another machine, or no ``/proc``."""
    return _is_in_sight(process) and _started(process.pid) != process.started and not _is_hidden(process.pid)


def kill(process: Process) -> bool:
    """Kill a process of this machine at once. False: it cannot be seen from here, or we may not."""
    if not _is_in_sight(process):
        return False
    try:
        if _started(process.pid) == process.started:
            os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def _is_in_sight(process: Process) -> bool:
    """Return whether its number means here what it meant where it was written down."""
    if process.boot is None or process.namespace is None or process.started is None:
        return False
    return (process.boot, process.namespace) == (_boot(), _namespace())


def _boot() -> str | None:
    return _read(Path("/proc/sys/kernel/random/boot_id"))


def _namespace() -> str | None:
    """Return the name spaces in which numbers and start times of processes mean the same."""
    try:
        return " ".join(str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "time"))
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the machine's start; None when there is none, or only its remains."""
    line = _read(Path(f"/proc/{pid}/stat"))
    if line is None:
        return None
    fields = line.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _is_hidden(pid: int) -> bool:
    """Return whether there is a process that ``/proc`` does not show to us (mount option ``hidepid``): it is another user's."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return _read(Path(f"/proc/{pid}/stat")) is None
    except (ProcessLookupError, OverflowError):
        return False
    return False


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
