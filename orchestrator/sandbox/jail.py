"""What a process gives up before it takes what is not trusted, without any privilege: files, programs, sockets, memory.

Landlock's interface: the kernel's ``include/uapi/linux/landlock.h``.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable

from orchestrator.sandbox import seccomp
from orchestrator.sandbox.keeper import linux

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FIRST_RIGHTS = (1 << 13) - 1
"""Rights over files of the first version of the interface."""
_LATER_RIGHTS = ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
"""Version, and what it added: moving between folders, truncating, ioctl on devices."""
_FILE_RIGHTS = 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_NET_VERSION, _ALL_NET = 4, 3
_SCOPE_VERSION, _ALL_SCOPES = 6, 3
"""Since version 6: no signals to processes outside, no abstract unix sockets made outside."""
_DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_OPEN_FILES = 256
_PROCESSES = 4096
"""Of this user on this machine: a bound against floods, far from what honest work and other programs of the user need."""


def protect() -> None:
    """Keep processes of the same user from tracing this one and from reading its memory. Its forks inherit that. Raises OSError."""
    linux.prctl(_PR_SET_DUMPABLE, 0)


def confine(
    readable: Iterable[str], writable: str, *, cpu_seconds: int, memory_bytes: int, file_bytes: int, alone: bool = False
) -> None:
    """Give up everything for good but reading some folders and writing below one, within limits. Raises OSError.

    ``memory_bytes`` counts beyond what the process has mapped already. ``alone``: as the system call filter says.
    """
    limits = (
        (resource.RLIMIT_AS, mapped_bytes() + memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_NPROC, _PROCESSES),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    )
    for kind, limit in limits:
        resource.setrlimit(kind, (limit, limit))
    resource.setrlimit(
        resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1)
    )  # at the hard one Linux kills without saying why
    linux.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if landlock_version():
        _see_only(readable, writable)
    linux.filter_calls(seccomp.reader_program(platform.machine(), alone=alone))


def mapped_bytes() -> int:
    """Return the size of this process's address space."""
    with open("/proc/self/statm") as sizes:  # noqa: PTH123
        return int(sizes.read().split()[0]) * resource.getpagesize()


def landlock_version() -> int:
    """Return the version of the kernel's Landlock interface; 0 where it has none or has it switched off."""
    try:
        return linux.call("landlock", _CREATE, None, 0, _VERSION_FLAG)
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}:
            return 0
        raise


def own_files() -> set[str]:
    """Return the folders that Python loads its modules and libraries from."""
    return {path for path in (sys.prefix, sys.base_prefix, *sys.path, *_LIBRARIES) if path and os.path.exists(path)}  # noqa: PTH110


def _see_only(readable: Iterable[str], writable: str) -> None:
    version = landlock_version()
    rights = _FIRST_RIGHTS
    for since, right in _LATER_RIGHTS:
        rights |= right if version >= since else 0
    attributes = struct.pack(
        "QQQ",
        rights,
        _ALL_NET if version >= _NET_VERSION else 0,
        _ALL_SCOPES if version >= _SCOPE_VERSION else 0,
    )
    size = 24 if version >= _SCOPE_VERSION else 16 if version >= _NET_VERSION else 8
    ruleset = linux.call("landlock", _CREATE, attributes[:size], size, 0)
    try:
        for path in {*readable, *_DEVICES, *own_files()}:
            _allow(ruleset, path, _READ_FILE | _READ_DIR)
        _allow(ruleset, writable, rights & ~1)  # everything but running programs
        linux.call("landlock", _RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112
            rights &= _FILE_RIGHTS
        linux.call("landlock", _ADD, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
