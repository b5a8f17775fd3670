"""What a child of the keeper does before it becomes a program, in every kind of sandbox. Standard library only; part of the keeper."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` builds enumerations that nobody needs here
import fcntl
import os
import resource

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Collection

_SIGPIPE, _SIGXFSZ = 13, 25
_FIRST_FREE = 64
"""From here on descriptors are put aside while they get their numbers."""
_OPEN_FILES, _MOST_OPEN_FILES = 4096, 65536


def memory_file(name: str, data: bytes) -> int:
    """Return an open file in memory that holds the data and is read from its start. Raises OSError."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def arrange(descriptors: dict[int, int], own: Collection[int] = ()) -> None:
    """Give open files these numbers and close all others; those of ``own`` close when the program starts.

    Standard input is ``/dev/null`` where none is given. Raises OSError.
    """
    aside = {number: fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for number, each in descriptors.items()}
    for number, each in aside.items():
        os.dup2(each, number, inheritable=number not in own)
    if 0 not in descriptors:
        os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
    below = 0
    for number in sorted({0, *descriptors}):
        if below < number:  # an empty range would close everything
            os.closerange(below, number)
        below = number + 1
    os.closerange(below, 1 << 16)


def be_plain() -> None:
    """Take the limits and signals that every program starts with: no core files, room for open files, nothing ignored. Raises OSError."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _OPEN_FILES), min(hard, _MOST_OPEN_FILES)))
    for number in (_SIGPIPE, _SIGXFSZ):  # Python ignores them
        _signal.signal(number, _signal.SIG_DFL)
