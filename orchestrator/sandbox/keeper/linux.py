"""The few Linux calls that Python's standard library lacks. Used by the keeper; nothing is loaded at import time but ``ctypes``."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

TERMINALS = 64
"""Pseudo terminals of one sandbox; the machine has some thousands for all."""

_SYS_OPENAT2 = 437  # the same on every architecture
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_NEW_LISTENER, _WAIT_KILLABLE = 8, 32
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
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


def call(what: str, number: int, *arguments: object) -> int:
    """Make a system call by its number. Raises OSError that names ``what``."""
    wide = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    result: int = _libc.syscall(ctypes.c_long(number), *wide)
    return _check(result, what)


def prctl(option: int, *values: object) -> None:
    """Change something of the calling process. Raises OSError."""
    padded = [*values, *(0,) * (4 - len(values))]
    _check(_libc.prctl(option, *(ctypes.c_ulong(each) if isinstance(each, int) else each for each in padded)), "prctl")


def drop_capabilities() -> None:
    """Give up every capability of the calling thread, for good where nothing can be run. Raises OSError."""
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def filter_calls(code: bytes) -> None:
    """Put the calling thread behind a system call filter, for good. ``code``: bytes of ``struct sock_filter``. Raises OSError."""
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(kept))
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.create_string_buffer(program, len(program)))


def listen_to_calls(code: bytes, seccomp: int) -> int:
    """Put the calling thread behind a filter that asks, for good, and return the descriptor that is asked. Raises OSError.

    ``code``: bytes of ``struct sock_filter``; ``seccomp``: the number of that system call. New privileges are given up.
    """
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(kept))
    buffer = ctypes.create_string_buffer(program, len(program))
    try:
        return call("seccomp", seccomp, 1, _NEW_LISTENER | _WAIT_KILLABLE, buffer)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return call("seccomp", seccomp, 1, _NEW_LISTENER, buffer)  # before Linux 5.19


def die_with_parent() -> None:
    """Let the calling process be killed when its parent ends. Raises OSError."""
    prctl(_PR_SET_PDEATHSIG, 9)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount. Raises OSError that names the target."""
    _check(
        _libc.mount(
            os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode() or None
        ),
        target,
    )


def mount_terminals(target: str) -> None:
    """Mount a place for pseudo terminals, few enough that no sandbox can have all of the machine's. Raises OSError."""
    mount("devpts", target, "devpts", MS_NOSUID | MS_NOEXEC, f"newinstance,ptmxmode=0666,mode=0620,max={TERMINALS}")


def unmount(target: str) -> None:
    """Unmount, at the latest when nobody uses it any more. Raises OSError."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), target)


def mapping_namespace(owner: tuple[int, int], user: int) -> int:
    """Return a user namespace, open, in which ``owner`` (user, group) stands for the user and group ``user``. Raises OSError."""
    ready, told = os.pipe2(os.O_CLOEXEC)
    wait, done = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            os.close(done)
            unshare(CLONE_NEWUSER)
            os.write(told, b"x")
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(told)
    os.close(wait)
    try:
        if not os.read(ready, 1):
            raise OSError(0, "a user namespace for the workspace was refused")
        for name, number in (("uid_map", owner[0]), ("gid_map", owner[1])):
            descriptor = os.open(f"/proc/{child}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"{number} {user} 1".encode())
            finally:
                os.close(descriptor)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.close(done)
        os.waitpid(child, 0)


def open_beneath(root: int, path: bytes, flags: int) -> int:
    """Open ``path`` below the folder ``root`` without following any link on the way, nor crossing a mount. Raises OSError.

    Where the kernel has no such call (gVisor's, or one behind a filter that does not know it) each part of the path is opened by itself;
    mounts are crossed then.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    how = struct.pack("QQQ", flags, 0, _RESOLVE)
    result: int = _libc.syscall(_SYS_OPENAT2, root, path, how, ctypes.c_size_t(24))
    if result < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):
        return _open_by_parts(root, path, flags)
    return _check(result, os.fsdecode(path[:200]))


def _open_by_parts(root: int, path: bytes, flags: int) -> int:
    parts = path.split(b"/")
    if b".." in parts or b"" in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(path[:200]))
    folder = root
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            if folder != root:
                os.close(folder)
            folder = below
        return os.open(parts[-1], flags, dir_fd=folder)
    finally:
        if folder != root:
            os.close(folder)


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
