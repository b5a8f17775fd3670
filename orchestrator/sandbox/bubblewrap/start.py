"""Starting the sandbox's program behind a gate, and handing its listening socket to the gateway. Standard library only; part of the keeper.

bwrap starts ``/bin/sh``, which says that it is there and waits; the kernel tells us its process id with the message. While it waits we take
descriptors of its process and of the namespace's first process, open the listening socket in its network namespace, and only then let it
become the program. So nothing of the agent runs before everything is watched, and no helper of ours runs inside.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.

from __future__ import annotations

import _socket
import binascii
import os
import resource
import select
import time

from orchestrator.sandbox.keeper import linux
from orchestrator.sandbox.keeper.attempts import Attempts, hand_over
from orchestrator.sandbox.keeper.child import arrange, be_plain, memory_file
from orchestrator.sandbox.keeper.door import open_door
from orchestrator.sandbox.keeper.program import KeeperError, Program, Tail, kill_namespace, parent, readable

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.sandbox.bubblewrap.stage import Stage
    from orchestrator.sandbox.keeper.cgroup import Group

SETUP_SECONDS = 60.0
"""Longest time until bwrap has made the sandbox."""
_SIGKILL = 9
_TELLER = 12
"""The descriptor by which bwrap's process hands over what it may not keep."""
_REPORT_SECONDS = 0.2


class BwrapProgram(Program):
    """bwrap, the first process of its PID namespace, and the program."""

    own_processes = 1  # bwrap's own first process

    def __init__(self, bwrap: int, output: Tail, gate: _socket.socket, attempts: Attempts | None) -> None:
        super().__init__(output)
        self._bwrap = bwrap
        self._gate = gate
        self._status: int | None = None
        self._attempts = attempts
        self._found: list[tuple[str, str]] | None = []

    def release(self) -> None:
        """Open the gate: the program starts. Raises OSError."""
        self._gate.send(b"\n")
        self._gate.close()

    def settle(self) -> None:
        """Where the kernel does not tell, bwrap itself reports the exit code in a moment; killed at once it could not."""
        if linux.exit_status(self.command) is None and not _kernel_tells():
            watch = os.pidfd_open(self._bwrap)
            readable(watch, _REPORT_SECONDS)
            os.close(watch)

    def close(self) -> None:
        """Kill everything and wait until it is dead. Harmless when repeated. Raises KeeperError."""
        if self._status is None:
            if self.first >= 0:
                kill_namespace(self.first)
            else:
                os.kill(self._bwrap, _SIGKILL)
            self._status = os.waitpid(self._bwrap, 0)[1]
            self._gate.close()
            while self.output.read():
                pass
            if self._attempts is not None:
                self._found = self._attempts.found()

    def exit(self) -> tuple[int | None, int | None]:
        """Return exit code and signal of the program, one of them None, once it is closed."""
        status = linux.exit_status(self.command)
        if status is None:
            # bwrap passes an exit code on and turns a signal into 128 + its number, as shells do.
            code = os.waitstatus_to_exitcode(self._status or 0)
            return (None, code - 128) if 128 < code <= 192 else (None, 9) if code < 0 else (code, None)
        return (None, status & 0x7F) if status & 0x7F else (status >> 8, None)

    def findings(self) -> list[tuple[str, str]]:
        """Return what was tried on folders that are watched, once it is closed. Raises KeeperError when that was not seen to the end."""
        if self._found is None:
            msg = "the process that looks for attempts to write has failed, so the program was refused what it may do"
            raise KeeperError(msg, "sandbox_watch")
        return self._found

    def wait_at_gate(self) -> int:
        """Return the process id of the shell at the gate. Raises KeeperError when bwrap does not get there."""
        deadline = time.monotonic() + SETUP_SECONDS
        gate = self._gate
        watch = os.pidfd_open(self._bwrap)
        poll = select.poll()
        poll.register(gate.fileno(), select.POLLIN)
        poll.register(watch, select.POLLIN)
        try:
            while time.monotonic() < deadline:
                ready = dict(poll.poll(1000))
                self.output.read()
                if ready.get(gate.fileno(), 0) & select.POLLIN:
                    data, ancillary, _, _ = gate.recvmsg(16, 256)
                    for level, kind, value in ancillary:
                        if data and level == _socket.SOL_SOCKET and kind == _socket.SCM_CREDENTIALS:
                            return int.from_bytes(value[:4], "little")
                if ready:
                    break
        finally:
            os.close(watch)
        self.close()
        said = self.output.tail().decode("utf-8", "replace").strip()[-2000:]
        msg = f"bwrap could not make the sandbox: {said or f'it said nothing (wait status {self._status})'}"
        raise KeeperError(msg, "sandbox_bwrap")


def kept_name(number: int) -> str:
    """Return the variable that holds the value of the program's variable of that number until the gate opens."""
    return f"SANDBOX_GATE_{number}"


def gate(names: list[str]) -> str:
    """Return the script that waits at the gate and becomes the program with its variables.

    They are set behind the gate, because variables such as LD_PRELOAD run code in whatever starts with them, and by reference, because
    every user of the machine can read the arguments of bwrap.
    """
    kept = [kept_name(number) for number in range(len(names))]
    words = [f"-u {holder}" for holder in kept] + [
        f'{name}="${holder}"' for name, holder in zip(names, kept, strict=True)
    ]
    become = f"/usr/bin/env {' '.join(words)} " if names else ""
    return f'echo >&9 && read -r x <&9 && exec {become}"$@" 9>&-'


def start(spec: dict[str, Any], stage: Stage, group: Group) -> BwrapProgram:
    """Start bwrap up to the gate and hand over the listening socket. Raises KeeperError and OSError; then nothing is left running."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    ours.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reader, False)
    arguments = [
        *stage.arguments(),
        "--seccomp",
        "11",
        "--",
        "/bin/sh",
        "-c",
        gate(spec["env"]),
        "sh",
        *spec["command"],
    ]
    end = arguments.index("--")
    words = b"\0".join(os.fsencode(word) for word in arguments[:end]) + b"\0"
    descriptors = {
        1: writer,
        2: writer,
        9: theirs.fileno(),
        10: memory_file("arguments", words),
        11: memory_file("seccomp", binascii.a2b_base64(spec["seccomp"])),
    }
    if spec["stdin"]:
        descriptors[0] = memory_file("stdin", binascii.a2b_base64(spec["stdin"]))
    if spec["channel"] is not None:
        descriptors[3] = spec["channel"]
    attempts = Attempts(spec["watch"], group) if spec["watch"] else None
    if attempts is not None:
        descriptors[_TELLER] = attempts.teller
    bwrap = os.fork()
    if bwrap == 0:
        _become(stage, group, spec, descriptors, arguments[end:])
    theirs.detach()
    for descriptor in set(descriptors.values()):
        os.close(descriptor)
    program = BwrapProgram(bwrap, Tail(reader, spec["limits"]["output"]), ours, attempts)
    try:
        pid = program.wait_at_gate()
        program.command = os.pidfd_open(pid)
        program.first_pid = parent(pid)
        program.first = os.pidfd_open(program.first_pid)
        if attempts is not None and attempts.sees():
            program.labels = {"memory": "watched"}
        if spec["door"] is not None:
            open_door(spec["door"], pid)
    except BaseException:
        program.close()
        raise
    return program


def _become(stage: Stage, group: Group, spec: dict[str, Any], descriptors: dict[int, int], command: list[str]) -> None:
    """In the forked child: take limits, user and descriptors, and become bwrap. Never returns."""
    try:
        group.join()
        arrange(descriptors, own=(_TELLER,))
        be_plain()
        _limit_processes(spec, group, shared=stage.user is None)
        if stage.user is not None:
            os.setgroups([])
            os.setresgid(stage.user, stage.user, stage.user)
            os.setresuid(stage.user, stage.user, stage.user)
        if spec["watch"]:
            hand_over(_TELLER, binascii.a2b_base64(spec["watch"]["filter"]), spec["watch"]["seccomp"])
        os.chdir("/")
        os.execve(stage.bwrap, ["bwrap", "--args", "10", *command], {})  # noqa: S606 - bwrap itself, no shell wanted
    except OSError as error:
        os.write(2, f"keeper: cannot start bwrap: {error}\n".encode())
    finally:
        os._exit(127)


def _limit_processes(spec: dict[str, Any], group: Group, *, shared: bool) -> None:
    if "pids" not in group.controllers:
        # Counted for the sandbox's user, or in the keeper's own user namespace: two processes of bwrap, and in the latter the keeper.
        # So is what looks for attempts to write.
        most = spec["limits"]["processes"] + ((4 if spec["watch"] else 3) if shared else 2)
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _kernel_tells() -> bool:
    """Return whether this kernel keeps exit codes for holders of a pidfd (6.15 and later)."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor.split("-")[0])) >= (6, 15)
