"""The few Linux calls that Python's standard library lacks. Used by the keeper; nothing is loaded at import time but ``ctypes``."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_SYS_OPENAT2 = 437  # the same number on every architecture
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # no mount crossed, no magic link, no symbolic link, nothing above the root
_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info), whose first version has 64 bytes
_PIDFD_INFO_EXIT = 8

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces named by ``flags``. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace behind a descriptor. Raises OSError."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount. Raises OSError that names the target."""
    _check(
        _libc.mount(
            os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode() or None
        ),
        target,
    )


def open_beneath(root: int, path: bytes, flags: int) -> int:
    """Open ``path`` below the folder ``root`` without following any link on the way, nor crossing a mount. Raises OSError."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0, _RESOLVE)
    result: int = _libc.syscall(_SYS_OPENAT2, root, path, how, ctypes.c_size_t(24))
    return _check(result, os.fsdecode(path[:200]))


def exit_status(pidfd: int) -> int | None:
    """Return the wait status of a reaped process of which we hold a pidfd; None where the kernel (before 6.15) does not tell."""
    info = bytearray(64)
    info[0] = _PIDFD_INFO_EXIT
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    if not info[0] & _PIDFD_INFO_EXIT:
        return None
    return int.from_bytes(info[60:64], "little")
