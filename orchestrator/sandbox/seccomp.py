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
from collections.abc import Iterable
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
