"""Entering a container and becoming the agent's program there. Standard library only; part of the keeper.

The program is a child of the keeper, not of the engine: it takes the container's namespaces, the root that the engine has made from the
image, and the container's control groups; then it gives up every right it has, waits at a gate, and becomes the program. So the program has
the descriptors that the keeper gives it, its exit status comes to the keeper itself, and what it may do depends on no option of an engine.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH118, PTH123

from __future__ import annotations

import binascii
import errno
import os
import struct

from orchestrator.sandbox.keeper import linux
from orchestrator.sandbox.keeper.child import arrange, be_plain

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from orchestrator.sandbox.container.stage import Stage
    from orchestrator.sandbox.keeper.cgroup import Group

READY = b"+"
"""What the child reports at its gate; anything else is a failure in words."""
_REPORT, _GATE = 10, 11  # descriptors that close when the program starts
_NAMESPACES = (
    ("ipc", linux.CLONE_NEWIPC),
    ("uts", linux.CLONE_NEWUTS),
    ("net", linux.CLONE_NEWNET),
    ("cgroup", linux.CLONE_NEWCGROUP),
    ("mnt", linux.CLONE_NEWNS),
)
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITIES = 64
_CAPSET_VERSION = 0x20080522
_CAPSET = {"x86_64": 126, "aarch64": 91}


def enter(
    spec: dict[str, Any],
    first: int,
    stage: Stage,
    group: Group,
    descriptors: dict[int, int],
    report: int,
    gate: int,
) -> int:
    """Start a child that waits at the gate inside of the container of ``first``; returns its process id. Raises OSError.

    ``descriptors`` are those of the program; it writes READY or what went wrong to ``report``, and starts once it can read from ``gate``.
    """
    opened = [(os.open(f"/proc/{first}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind) for name, kind in _NAMESPACES]
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    theirs = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    linux.setns(theirs, linux.CLONE_NEWPID)  # for children only
    try:
        child = os.fork()
        if child == 0:
            _become(spec, opened, stage, group, {**descriptors, _REPORT: report, _GATE: gate})
    finally:
        linux.setns(own, linux.CLONE_NEWPID)
        for descriptor in (own, theirs, *(each for each, _ in opened)):
            os.close(descriptor)
    return child


def _become(
    spec: dict[str, Any], namespaces: list[tuple[int, int]], stage: Stage, group: Group, descriptors: dict[int, int]
) -> NoReturn:
    report = descriptors[_REPORT]
    try:
        _prefer_to_kill()
        group.join()
        os.setsid()
        for descriptor, kind in namespaces:
            linux.setns(descriptor, kind)
        stage.attach()
        os.chdir(spec["workdir"])
        arrange(descriptors, own=(_REPORT, _GATE))
        report = _REPORT
        be_plain()
        os.umask(0o022)
        _give_up_rights(spec["owner"], binascii.a2b_base64(spec["seccomp"]))
        os.write(report, READY)
        if os.read(_GATE, 1):
            _execute(spec["command"], spec["env"])
    except OSError as error:
        os.write(report, f"{error.strerror} ({error.filename or 'no file'})".encode())
    except BaseException as error:  # noqa: BLE001 - the child must never run the keeper's code
        os.write(report, repr(error)[:1000].encode())
    finally:
        os._exit(125)


def _prefer_to_kill() -> None:
    """When memory is short the kernel shall kill what is the agent's, not the container's first process."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")


def _give_up_rights(owner: list[int], code: bytes) -> None:
    """Become the agent's user without any capability, now or later, behind the system call filter."""
    for capability in range(_CAPABILITIES):
        try:
            linux.prctl(_PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:  # the kernel has no more
                break
            raise
    os.setgroups([])
    os.setresgid(owner[1], owner[1], owner[1])
    os.setresuid(owner[0], owner[0], owner[0])
    header = struct.pack("Ii", _CAPSET_VERSION, 0)
    linux.call("capset", _CAPSET[os.uname().machine], header, bytes(24))
    linux.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    linux.filter_calls(code)


def _execute(command: list[str], env: dict[str, str]) -> None:
    """Become the program. Returns when it cannot be started, after saying so as a shell would."""
    name = command[0]
    folders = [""] if "/" in name else env.get("PATH", "").split(":")
    code, said = 127, "not found"
    for folder in folders:
        path = os.path.join(folder, name)
        try:
            os.execve(path, command, env)  # noqa: S606 - no shell wanted
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                os.execve("/bin/sh", ["sh", path, *command[1:]], env)  # noqa: S606 - as execvp does
            code, said = 126, os.strerror(error.errno or 0)
    os.write(2, f"{name}: {said}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)
