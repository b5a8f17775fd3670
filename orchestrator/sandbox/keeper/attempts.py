"""Seeing that a program tries to write where it may only read. Standard library only; part of the keeper.

What is mounted read-only refuses by itself and tells nobody. So the calls that write by a path are shown to a small process of ours, which
reads the path, answers that the call may go on, and keeps what it was when it leads below a watched folder. It decides nothing: a path that
is changed meanwhile deceives the finding alone. It runs in the agent's control group, so whoever floods it waits for it, and nobody else.

Not seen: changes by an open file (``fchmod``), and calls of processes that this user may not look into. A program behind it cannot have
a listener of its own.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH115

from __future__ import annotations

import _socket
import fcntl
import os
import select
import struct

from orchestrator.sandbox.keeper import linux
from orchestrator.sandbox.keeper.child import arrange
from orchestrator.sandbox.keeper.program import kill, readable

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.sandbox.keeper.cgroup import Group

MOST_PATHS = 16
"""Paths that are told; of more attempts only the number is."""
MOST_ATTEMPTS = 1000
"""After so many nothing is looked at any more."""
_PATH_BYTES, _SHOWN_BYTES = 4096, 200
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # ioctls of seccomp's listener
_NOTICE = struct.Struct("=QIIiIQ6Q")
_GO_ON = 1
_HERE = -100  # AT_FDCWD
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OPENAT2 = 437
_IN_ROOT = 0x10
_LEAVE_SECONDS = 2.0
_CHANNEL, _REPORT = 3, 4


class Attempts:
    """The process that looks, seen from the keeper."""

    def __init__(self, watch: dict[str, Any], group: Group) -> None:
        """Start it; ``watch``: ``calls``, ``places``, as ``seccomp.watched`` makes them. Raises OSError."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        self._report, report = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            _look(ours.fileno(), report, watch, group)
        ours.close()
        os.close(report)
        self.teller = theirs.detach()
        """The socket by which the program's process hands over its listener (``hand_over``)."""
        self._watch = os.pidfd_open(self._pid)

    def sees(self) -> bool:
        """Return whether it looks, once the program's process has handed over or has gone on."""
        return os.read(self._report, 1) == b"+"

    def found(self) -> list[tuple[str, str]] | None:
        """Return the findings, once the tree is dead; None when it has failed before: calls of the program were refused then. Once."""
        ended = readable(self._watch, _LEAVE_SECONDS)
        if not ended:
            kill(self._watch)
        status = os.waitpid(self._pid, 0)[1]
        told = _told(self._report)
        os.close(self._watch)
        os.close(self._report)
        return None if ended and status else told


def hand_over(teller: int, code: bytes, seccomp: int) -> None:
    """In the program's process: put it behind the filter and give away the listener; where there is none, go on without.

    ``code``: bytes of ``struct sock_filter``; ``seccomp``: the number of that system call.
    """
    try:
        listener = linux.listen_to_calls(code, seccomp)
    except OSError:  # an old kernel, or another listener before us
        return
    channel = _socket.socket(fileno=teller)
    channel.sendmsg([b"+"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listener))])
    channel.close()
    os.close(listener)


def _told(report: int) -> list[tuple[str, str]]:
    text = b""
    while chunk := os.read(report, 1 << 16):
        text += chunk
    lines = text.decode("ascii", "replace").lstrip("+").splitlines()
    return [("memory_write", line) for line in lines]


def _look(channel: int, report: int, watch: dict[str, Any], group: Group) -> None:
    """In a process of its own: look until nobody is left who could try. Never returns."""
    code = 1
    try:
        linux.die_with_parent()
        arrange({_CHANNEL: channel, _REPORT: report})
        opened = _socket.socket(fileno=_CHANNEL)
        _, rights, _, _ = opened.recvmsg(1, _socket.CMSG_SPACE(4))
        opened.close()
        if rights:
            group.join()
            os.write(_REPORT, b"+")
            _Looker(struct.unpack("i", rights[0][2][:4])[0], watch).run()
        code = 0
    finally:
        os._exit(code)


class _Looker:
    def __init__(self, listener: int, watch: dict[str, Any]) -> None:
        self._listener = listener
        self._calls = {int(number): call for number, call in watch["calls"].items()}
        self._places = [os.fsencode(place) for place in watch["places"]]
        self._count = 0
        self._paths: set[bytes] = set()

    def run(self) -> None:
        """Answer until the last process behind the filter is gone."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            [(_, ready)] = poll.poll()
            if ready & select.POLLIN:
                self._answer()
            elif ready:
                break
        more = self._count - len(self._paths)
        if more:
            most = " or more" if self._count >= MOST_ATTEMPTS else ""
            os.write(_REPORT, f"{self._count}{most} attempts in all\n".encode())

    def _answer(self) -> None:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, notice)
        except OSError:  # it was killed meanwhile
            return
        number, pid, _, call, _, _, *arguments = _NOTICE.unpack(notice)
        if self._count < MOST_ATTEMPTS and (path := self._attempt(pid, call, arguments)) is not None:
            self._keep(number, self._calls[call][0], path)
        try:
            fcntl.ioctl(self._listener, _SEND, struct.pack("=QqiI", number, 0, 0, _GO_ON))
        except OSError:
            return

    def _keep(self, number: int, name: str, path: bytes) -> None:
        try:
            fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", number))
        except OSError:  # it died while we looked: what we saw may be another process
            return
        self._count += 1
        if path not in self._paths and len(self._paths) < MOST_PATHS:
            self._paths.add(path)
            os.write(_REPORT, f"{name} {os.fsdecode(path[:_SHOWN_BYTES])!a}\n".encode())

    def _attempt(self, pid: int, call: int, arguments: list[int]) -> bytes | None:
        """Return the path below a watched folder that a call would change."""
        name, follows, places = self._calls[call]
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if name == "openat2" and not int.from_bytes(_peek(memory, arguments[2], 8), "little") & _WRITES:
                    return None
                paths = [
                    (
                        _HERE if folder is None else _signed(arguments[folder]),
                        _peek(memory, arguments[path], _PATH_BYTES),
                    )
                    for folder, path in places
                ]
            finally:
                os.close(memory)
            found = [_leads_to(pid, folder, raw.split(b"\0", 1)[0], follows=follows) for folder, raw in paths]
        except OSError:  # it is gone, or may not be looked into
            return None
        path = next((path for path in found if self._is_watched(path)), None)
        if path is not None and name.startswith("mkdir") and os.path.lexists(f"/proc/{pid}/root".encode() + path):
            return None  # as ``mkdir -p`` makes sure of every folder on the way
        return path

    def _is_watched(self, path: bytes) -> bool:
        return any(path == place or path.startswith(place + b"/") for place in self._places)


def _peek(memory: int, address: int, count: int) -> bytes:
    """Return bytes of a process; none where it has none."""
    if not 0 < address < 1 << 63:
        return b""
    try:
        return os.pread(memory, count, address)
    except OSError:
        return b""


def _signed(value: int) -> int:
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def _leads_to(pid: int, folder: int, path: bytes, *, follows: bool) -> bytes:
    """Return where a path leads, as the process sees it. ``follows``: the call follows a link at its end. Raises OSError."""
    if not path.startswith(b"/"):
        start = os.readlink(f"/proc/{pid}/{'cwd' if folder == _HERE else f'fd/{folder}'}".encode())
        path = start + b"/" + path if path else start
    path = path.rstrip(b"/") or b"/"
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
    try:
        if follows:
            try:
                return _resolved(root, path)
            except FileNotFoundError:  # it would be made
                pass
        above, name = os.path.split(path)
        return _resolved(root, above).rstrip(b"/") + b"/" + name
    finally:
        os.close(root)


def _resolved(root: int, path: bytes) -> bytes:
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT)
    try:
        opened = linux.call("openat2", _OPENAT2, root, path, how, len(how))
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        return os.path.normpath(path)
    try:
        return os.readlink(f"/proc/self/fd/{opened}".encode())
    finally:
        os.close(opened)
