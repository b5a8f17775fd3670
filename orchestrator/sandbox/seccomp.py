"""The system call filter, assembled as classic BPF. Pure.

Refused with an error, so that programs can cope: sockets other than INET, INET6 and UNIX, keyrings, bpf, io_uring, performance counters,
userfaultfd, mounting, entering or making namespaces, kernel modules, rebooting, clocks. Calls of another ABI (32-bit, x32) kill the
process, since every number means something else there. ``ptrace`` stays: a tracee must be in the sandbox and of the same user, and
debuggers and sanitizers need it.

Not there at all, so that C libraries and databases take another way: ``clone3``, whose flags no filter can read, and ``io_setup``, whose
contexts are counted for the whole machine, so that one sandbox could have them all.

Source of the numbers: the kernel's ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARG0 = 0, 4, 16  # offsets in struct seccomp_data
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_NAMESPACES = 0x7E020080  # every CLONE_NEW… flag: time, mount, cgroup, uts, ipc, user, pid, net
_X32 = 0x40000000


@dataclass(frozen=True)
class _Machine:
    audit: int
    socket: int
    socketpair: int
    clone: int
    io_setup: int
    refused: dict[str, int]
    programs: dict[str, int]
    """Running programs, and reaching into other processes."""
    prlimit: int
    processes: dict[str, int]
    """Making processes, signals to others, and changing what files are: owner, rights, times."""


_COMMON_NEW = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "open_tree_attr": 467,
}
_REACHING = {"pidfd_getfd": 438, "process_madvise": 440}
_CHANGING = {"pidfd_send_signal": 424, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466}
_CLONE3 = 435
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        socket=41,
        socketpair=53,
        clone=56,
        io_setup=206,
        refused=_COMMON_NEW
        | {
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "bpf": 321,
            "perf_event_open": 298,
            "userfaultfd": 323,
            "mount": 165,
            "umount2": 166,
            "pivot_root": 155,
            "unshare": 272,
            "setns": 308,
            "init_module": 175,
            "finit_module": 313,
            "delete_module": 176,
            "kexec_load": 246,
            "kexec_file_load": 320,
            "reboot": 169,
            "swapon": 167,
            "swapoff": 168,
            "acct": 163,
            "quotactl": 179,
            "quotactl_fd": 443,
            "open_by_handle_at": 304,
            "settimeofday": 164,
            "clock_settime": 227,
            "iopl": 172,
            "ioperm": 173,
            "syslog": 103,
        },
        programs=_REACHING
        | {"execve": 59, "execveat": 322, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311},
        prlimit=302,
        processes=_CHANGING
        | {"fork": 57, "vfork": 58, "kill": 62, "tkill": 200, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297}
        | {"chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "fchmodat": 268}
        | {"utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280}
        | {
            "setxattr": 188,
            "lsetxattr": 189,
            "fsetxattr": 190,
            "removexattr": 197,
            "lremovexattr": 198,
            "fremovexattr": 199,
        },
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        socket=198,
        socketpair=199,
        clone=220,
        io_setup=0,
        refused=_COMMON_NEW
        | {
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "bpf": 280,
            "perf_event_open": 241,
            "userfaultfd": 282,
            "mount": 40,
            "umount2": 39,
            "pivot_root": 41,
            "unshare": 97,
            "setns": 268,
            "init_module": 105,
            "finit_module": 273,
            "delete_module": 106,
            "kexec_load": 104,
            "kexec_file_load": 294,
            "reboot": 142,
            "swapon": 224,
            "swapoff": 225,
            "acct": 89,
            "quotactl": 60,
            "quotactl_fd": 443,
            "open_by_handle_at": 265,
            "settimeofday": 170,
            "clock_settime": 112,
            "syslog": 116,
        },
        programs=_REACHING
        | {"execve": 221, "execveat": 281, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271},
        prlimit=261,
        processes=_CHANGING
        | {"kill": 129, "tkill": 130, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240}
        | {"fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88}
        | {"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16},
    ),
}


_NOTIFY = 0x7FC00000
_WRITES = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_OPENS = {"open": 1, "openat": 2}
"""Place of the flags among the arguments of calls that open."""
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NAMES, _FILES = False, True  # whether a link at the end of the path is followed
_BY_PATH: dict[str, tuple[bool, tuple[tuple[int | None, int], ...], int | None, int | None]] = {
    "open": (_FILES, ((None, 0),), 2, None),
    "creat": (_FILES, ((None, 0),), 85, None),
    "truncate": (_FILES, ((None, 0),), 76, 45),
    "mkdir": (_NAMES, ((None, 0),), 83, None),
    "rmdir": (_NAMES, ((None, 0),), 84, None),
    "unlink": (_NAMES, ((None, 0),), 87, None),
    "rename": (_NAMES, ((None, 0), (None, 1)), 82, None),
    "link": (_NAMES, ((None, 1),), 86, None),
    "symlink": (_NAMES, ((None, 1),), 88, None),
    "mknod": (_NAMES, ((None, 0),), 133, None),
    "chmod": (_FILES, ((None, 0),), 90, None),
    "chown": (_FILES, ((None, 0),), 92, None),
    "lchown": (_NAMES, ((None, 0),), 94, None),
    "utime": (_FILES, ((None, 0),), 132, None),
    "utimes": (_FILES, ((None, 0),), 235, None),
    "futimesat": (_FILES, ((0, 1),), 261, None),
    "setxattr": (_FILES, ((None, 0),), 188, 5),
    "lsetxattr": (_NAMES, ((None, 0),), 189, 6),
    "removexattr": (_FILES, ((None, 0),), 197, 14),
    "lremovexattr": (_NAMES, ((None, 0),), 198, 15),
    "openat": (_FILES, ((0, 1),), 257, 56),
    "openat2": (_FILES, ((0, 1),), 437, 437),
    "mkdirat": (_NAMES, ((0, 1),), 258, 34),
    "mknodat": (_NAMES, ((0, 1),), 259, 33),
    "unlinkat": (_NAMES, ((0, 1),), 263, 35),
    "renameat": (_NAMES, ((0, 1), (2, 3)), 264, 38),
    "renameat2": (_NAMES, ((0, 1), (2, 3)), 316, 276),
    "linkat": (_NAMES, ((2, 3),), 265, 37),
    "symlinkat": (_NAMES, ((1, 2),), 266, 36),
    "fchmodat": (_FILES, ((0, 1),), 268, 53),
    "fchmodat2": (_FILES, ((0, 1),), 452, 452),
    "fchownat": (_FILES, ((0, 1),), 260, 54),
    "utimensat": (_FILES, ((0, 1),), 280, 88),
}
"""Calls that write by a path: whether a link at its end is followed, where folder and path are among the arguments, the numbers."""


@dataclass(frozen=True)
class Watched:
    """What is needed to see that programs try to write."""

    code: bytes
    """The filter that asks, as bytes of ``struct sock_filter``."""
    calls: Mapping[int, tuple[str, bool, tuple[tuple[int | None, int], ...]]]
    """Number of a call to its name, whether it follows a link at the end of the path, and where folder and path are among its arguments."""
    seccomp: int
    """Number of the call that installs filters."""


def watched(machine: str) -> Watched:
    """Return what shows calls that write by a path to a listener; all others go on. Raises KeyError for an unknown machine."""
    calls = {
        number: (name, follows, places)
        for name, (follows, places, *numbers) in _BY_PATH.items()
        if (number := numbers[machine != "x86_64"]) is not None
    }
    audit = _MACHINES[machine].audit
    code = [_line(_LOAD, _ARCH), _line(_JUMP_EQ, audit, 1, 0), _line(_RETURN, _ALLOW), _line(_LOAD, _NUMBER)]
    for number, (name, _, _) in calls.items():
        flags = _OPENS.get(name)
        if flags is None:
            code += [_line(_JUMP_EQ, number, 0, 1), _line(_RETURN, _NOTIFY)]
            continue
        code += [_line(_JUMP_EQ, number, 0, 4), _line(_LOAD, _ARG0 + 8 * flags), _line(_JUMP_SET, _WRITES, 0, 1)]
        code += [_line(_RETURN, _NOTIFY), _line(_RETURN, _ALLOW)]
    return Watched(b"".join([*code, _line(_RETURN, _ALLOW)]), calls, _SECCOMP[machine])


def machines() -> tuple[str, ...]:
    """Return the machines that there is a filter for, as ``platform.machine()`` names them."""
    return tuple(_MACHINES)


def program(machine: str) -> bytes:
    """Return the filter for a machine as bytes of ``struct sock_filter``. Raises KeyError for an unknown machine."""
    table = _MACHINES[machine]
    code = _common(machine, table.refused.values())
    for number in (table.socket, table.socketpair):
        code += _families(number)
    return b"".join([*code, _line(_RETURN, _ALLOW)])


def reader_program(machine: str, *, alone: bool = False) -> bytes:
    """Return the filter for a process that only reads and writes files: also no socket of any kind, no program, no other process.

    ``alone``: nor does it make processes or threads, send signals, or change what files are beside their
    bytes. Raises KeyError for an unknown machine.
    """
    table = _MACHINES[machine]
    refused = [*table.refused.values(), *table.programs.values(), table.socket, table.socketpair]
    refused += [table.clone, *table.processes.values()] if alone else []
    return b"".join([*_common(machine, refused), *_own_limits(table.prlimit), _line(_RETURN, _ALLOW)])


def _common(machine: str, refused: Iterable[int]) -> list[bytes]:
    table = _MACHINES[machine]
    code = _architecture(table.audit, x32=machine == "x86_64")
    for number in sorted(refused):
        code += [_line(_JUMP_EQ, number, 0, 1), _line(_RETURN, _ERRNO | _EPERM)]
    for number in (_CLONE3, table.io_setup):
        code += [_line(_JUMP_EQ, number, 0, 1), _line(_RETURN, _ERRNO | _ENOSYS)]
    return code + _clone(table.clone)


def _architecture(audit: int, *, x32: bool) -> list[bytes]:
    code = [_line(_LOAD, _ARCH), _line(_JUMP_EQ, audit, 1, 0), _line(_RETURN, _KILL), _line(_LOAD, _NUMBER)]
    if x32:
        code += [_line(_JUMP_GE, _X32, 0, 1), _line(_RETURN, _KILL)]
    return code


def _clone(number: int) -> list[bytes]:
    return [
        _line(_JUMP_EQ, number, 0, 4),
        _line(_LOAD, _ARG0),
        _line(_JUMP_SET, _NAMESPACES, 0, 1),
        _line(_RETURN, _ERRNO | _EPERM),
        _line(_LOAD, _NUMBER),
    ]


def _own_limits(number: int) -> list[bytes]:
    """Let a process change the limits of no other."""
    return [
        _line(_JUMP_EQ, number, 0, 4),
        _line(_LOAD, _ARG0),
        _line(_JUMP_EQ, 0, 1, 0),
        _line(_RETURN, _ERRNO | _EPERM),
        _line(_LOAD, _NUMBER),
    ]


def _families(number: int) -> list[bytes]:
    count = len(_FAMILIES)
    code = [_line(_JUMP_EQ, number, 0, count + 3), _line(_LOAD, _ARG0)]
    for place, family in enumerate(_FAMILIES):
        code.append(_line(_JUMP_EQ, family, count - place, 0))
    return [*code, _line(_RETURN, _ERRNO | _EAFNOSUPPORT), _line(_LOAD, _NUMBER)]


def _line(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)
