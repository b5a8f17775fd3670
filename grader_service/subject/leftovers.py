"""What outlives its maker in a sandbox and is no file: System V objects, POSIX message queues."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Iterable
from typing import Any

_IPC_PRIVATE, _IPC_RMID, _OWNER_ONLY = 0, 0, 0o600
_MQ_OPEN = {"x86_64": 240, "aarch64": 180}
_NO_QUEUE = b"no-queue-of-this-name"


class CannotForgetError(Exception):
    """Something that a request leaves here would still be there for the next one."""


class SharedMemory:
    """Removes the System V objects of a sandbox: shared memory, message queues, semaphores."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._kinds = {
            "shm": _Kind((libc.shmget, 1), (libc.shmctl,)),
            "msg": _Kind((libc.msgget,), (libc.msgctl,)),
            "sem": _Kind((libc.semget, 1), (libc.semctl, 0)),
        }
        self._last = dict.fromkeys(self._kinds, -1)
        """The highest number that was removed, where the kernel counts up."""

    def forget(self) -> None:
        """Remove all that there are. Raises CannotForgetError."""
        for name, kind in self._kinds.items():
            listed = _listed(name)
            for number in self._counted(name) if listed is None else listed:
                kind.remove(number)

    def _counted(self, name: str) -> Iterable[int]:
        """Return all numbers up to that of a new object: gVisor lists none, and never uses a number twice."""
        newest = self._kinds[name].make()
        if newest < 0:
            msg = f"no System V object can be made to find the others of kind {name}"
            raise CannotForgetError(msg)
        since, self._last[name] = self._last[name], newest
        return range(since + 1, newest + 1)


class _Kind:
    """A kind of objects: the system call that makes one, with its size where it has one, and the one that removes it, up to the command."""

    def __init__(self, get: tuple[Any, ...], control: tuple[Any, ...]) -> None:
        self._get, self._control = get, control

    def make(self) -> int:
        """Return the number of a new object; -1: there can be none."""
        call, *size = self._get
        return int(call(_IPC_PRIVATE, *size, _OWNER_ONLY))

    def remove(self, number: int) -> None:
        """Remove an object, if there is one of this number and it may be."""
        call, *place = self._control
        call(number, *place, _IPC_RMID, None)


def _listed(kind: str) -> list[int] | None:
    """Return the numbers of the objects of a kind; None where the kernel has no table of them."""
    try:
        with open(f"/proc/sysvipc/{kind}") as table:  # noqa: PTH123
            return [int(line.split()[1]) for line in table.readlines()[1:]]
    except FileNotFoundError:
        return None


def refuse_message_queues() -> None:
    """Have no POSIX message queues made here: they outlive their makers and cannot be listed. Raises CannotForgetError.

    By a limit; gVisor knows none for them, there the guard that this process was started by refuses the system call.
    """
    try:
        resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
    except (OSError, ValueError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(_MQ_OPEN[os.uname().machine], _NO_QUEUE, os.O_RDONLY, 0, None)
        if ctypes.get_errno() != errno.ENOSYS:
            msg = "POSIX message queues cannot be refused: no limit and no guard"
            raise CannotForgetError(msg) from None
