"""Starting the sandbox's program behind a gate, and handing its listening socket to the gateway. Standard library only; part of the keeper.

bwrap starts ``/bin/sh``, which says that it is there and waits; the kernel tells us its process id with the message. While it waits we take
descriptors of its process and of the namespace's first process, open the listening socket in its network namespace, and only then let it
become the program. So nothing of the agent runs before everything is watched, and no helper of ours runs inside.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH123

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` builds enumerations that nobody needs here
import _socket
import _thread
import fcntl
import os
import resource
import select
import sys
import time

from orchestrator.sandbox.bubblewrap import linux
from orchestrator.sandbox.bubblewrap.small import read_json, write_json

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.sandbox.bubblewrap.cgroup import Group
    from orchestrator.sandbox.bubblewrap.stage import Stage

SETUP_SECONDS = 60.0
"""Longest time until bwrap has made the sandbox."""
DOOR_SECONDS = 30.0
"""Longest time until the gateway has taken the listening socket."""
KILL_SECONDS = 30.0
"""Longest time until a killed tree is gone; a process in an uninterruptible wait can need a while."""
_SIGKILL = 9
_SIGPIPE, _SIGXFSZ = 13, 25


class StartError(Exception):
    """The program could not be started or ended. ``cause`` is the short word under which equal failures are counted."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Tail:
    """The last bytes of the program's output; the rest is read and forgotten, so that the program never waits for us."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self._limit = limit
        self._data = bytearray()

    def read(self) -> bool:
        """Take what is there, at most 1 MiB at a time. False: nothing more for now."""
        try:
            chunk = os.read(self.descriptor, 1 << 20)
        except BlockingIOError:
            return False
        self._data += chunk
        if len(self._data) > 2 * self._limit + (1 << 16):
            del self._data[: len(self._data) - self._limit]
        return bool(chunk)

    def tail(self) -> bytes:
        """Return the end of the output."""
        return bytes(self._data[max(0, len(self._data) - self._limit) :])


class Program:
    """A started sandbox: bwrap, the first process of its PID namespace, and the program."""

    def __init__(self, bwrap: int, output: Tail, gate: _socket.socket) -> None:
        self.bwrap = bwrap
        self.output = output
        self.first = -1
        """pidfd of the namespace's first process: readable once everything inside is dead."""
        self.command = -1
        """pidfd of the program."""
        self.first_pid = 0
        self._gate = gate
        self._status: int | None = None

    def release(self) -> None:
        """Open the gate: the program starts. Raises OSError."""
        self._gate.send(b"\n")
        self._gate.close()

    def close(self) -> int | None:
        """Kill everything, wait until it is dead, and return bwrap's wait status. Harmless when repeated. Raises StartError."""
        if self._status is None:
            if self.first >= 0:
                kill(self.first)
                if not readable(self.first, KILL_SECONDS):
                    msg = f"processes of a killed sandbox were still there after {KILL_SECONDS:g} s"
                    raise StartError(msg, "sandbox_unkillable")
            else:
                os.kill(self.bwrap, _SIGKILL)
            self._status = os.waitpid(self.bwrap, 0)[1]
            self._gate.close()
            while self.output.read():
                pass
        return self._status


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


def start(spec: dict[str, Any], stage: Stage, group: Group) -> Program:
    """Start bwrap up to the gate and hand over the listening socket. Raises StartError and OSError; then nothing is left running."""
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
    descriptors = {
        0: _memory("stdin", _bytes(spec["stdin"]))
        if spec["stdin"]
        else os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC),
        1: writer,
        2: writer,
        9: theirs.fileno(),
        10: _memory("arguments", b"\0".join(os.fsencode(word) for word in arguments[: arguments.index("--")]) + b"\0"),
        11: _memory("seccomp", _bytes(spec["seccomp"])),
    }
    if spec["channel"] is not None:
        descriptors[3] = spec["channel"]
    bwrap = os.fork()
    if bwrap == 0:
        _become(stage, group, spec, descriptors, arguments[arguments.index("--") :])
    theirs.detach()
    for descriptor in set(descriptors.values()):
        os.close(descriptor)
    program = Program(bwrap, Tail(reader, spec["limits"]["output"]), ours)
    try:
        pid = _wait_at_gate(ours, program)
        program.command = os.pidfd_open(pid)
        program.first_pid = _parent(pid)
        program.first = os.pidfd_open(program.first_pid)
        if spec["door"] is not None:
            hand_over(spec["door"], _listener(pid, spec["door"]["port"]))
    except BaseException:
        program.close()
        raise
    return program


def hand_over(door: dict[str, Any], listener: _socket.socket) -> None:
    """Give a listening socket to the gateway. Raises StartError."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(DOOR_SECONDS)
        connection.connect(door["socket"])
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.fileno().to_bytes(4, sys.byteorder))
        connection.sendmsg([(write_json({"token": door["token"]}) + "\n").encode()], [rights])
        reply = b""
        while not reply.endswith(b"\n") and len(reply) < 4096:
            chunk = connection.recv(4096)
            if not chunk:
                break
            reply += chunk
        answer = read_json(reply.decode().strip())
        if answer.get("ok") is not True:
            msg = f"the gateway did not take the sandbox's socket: {answer.get('error', reply)!s:.300}"
            raise StartError(msg, "gateway_door")
    except (OSError, ValueError, AttributeError) as error:
        msg = f"the gateway at {door['socket']} did not take the sandbox's socket: {getattr(error, 'strerror', None) or error}"
        raise StartError(msg, "gateway_door") from error
    finally:
        connection.close()
        listener.close()


def kill(pidfd: int) -> None:
    """Kill the process behind a descriptor, if it still is there."""
    try:
        _signal.pidfd_send_signal(pidfd, _SIGKILL)
    except ProcessLookupError:
        return


def readable(descriptor: int, seconds: float) -> bool:
    """Wait until a descriptor is readable; False when it was not in time."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _become(stage: Stage, group: Group, spec: dict[str, Any], descriptors: dict[int, int], command: list[str]) -> None:
    """In the forked child: take limits, user and descriptors, and become bwrap. Never returns."""
    try:
        group.join()
        high = {
            number: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for number, descriptor in descriptors.items()
        }
        for number, descriptor in high.items():
            os.dup2(descriptor, number, inheritable=True)
        below = 0
        for number in sorted(descriptors):
            if below < number:  # an empty range would close everything
                os.closerange(below, number)
            below = number + 1
        os.closerange(below, 1 << 16)
        _limits(spec, group)
        if stage.user is not None:
            os.setgroups([])
            os.setresgid(stage.user, stage.user, stage.user)
            os.setresuid(stage.user, stage.user, stage.user)
        for number in (_SIGPIPE, _SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        os.chdir("/")
        os.execve(stage.bwrap, ["bwrap", "--args", "10", *command], {})  # noqa: S606 - bwrap itself, no shell wanted
    except OSError as error:
        os.write(2, f"keeper: cannot start bwrap: {error}\n".encode())
    finally:
        os._exit(127)


def _limits(spec: dict[str, Any], group: Group) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), min(hard, 65536)))
    if "pids" not in group.controllers:
        # Counted in the keeper's own user namespace: its processes and those of the sandbox.
        most = spec["limits"]["processes"] + 4
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _wait_at_gate(gate: _socket.socket, program: Program) -> int:
    """Return the process id of the shell at the gate."""
    deadline = time.monotonic() + SETUP_SECONDS
    watch = os.pidfd_open(program.bwrap)
    poll = select.poll()
    poll.register(gate.fileno(), select.POLLIN)
    poll.register(watch, select.POLLIN)
    try:
        while time.monotonic() < deadline:
            ready = dict(poll.poll(1000))
            program.output.read()
            if ready.get(gate.fileno(), 0) & select.POLLIN:
                data, ancillary, _, _ = gate.recvmsg(16, 256)
                for level, kind, value in ancillary:
                    if data and level == _socket.SOL_SOCKET and kind == _socket.SCM_CREDENTIALS:
                        return int.from_bytes(value[:4], "little")
            if ready:
                break
    finally:
        os.close(watch)
    status = program.close()
    said = program.output.tail().decode("utf-8", "replace").strip()[-2000:]
    msg = f"bwrap could not make the sandbox: {said or f'it said nothing (wait status {status})'}"
    raise StartError(msg, "sandbox_bwrap")


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("PPid:"))


def _listener(pid: int, port: int) -> _socket.socket:
    """Return a socket that listens on the sandbox's own loopback."""
    made: list[_socket.socket | OSError] = []
    entered = _thread.allocate_lock()

    def enter() -> None:
        try:
            linux.setns(theirs, linux.CLONE_NEWNET)
            made.append(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC))
        except OSError as error:
            made.append(error)
        finally:
            entered.release()

    theirs = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A thread enters alone and ends there: the way back is closed to an ordinary user, who owns no network but the sandbox's.
        entered.acquire()
        _thread.start_new_thread(enter, ())
        entered.acquire()
    finally:
        os.close(theirs)
    listener = made[0]
    if isinstance(listener, OSError):
        raise listener
    # A socket belongs to the namespace that it was made in.
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def _memory(name: str, data: bytes) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _bytes(text: str) -> bytes:
    import binascii

    return binascii.a2b_base64(text)
