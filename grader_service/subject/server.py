"""The subject server: one JSON line per request on descriptor 3, each answered by a fresh process over the frozen workspace.

It holds nothing worth stealing: expected values never come here. What it defends is the channel (an answer must come from the process that
was asked, now) and the workspace (each request sees the frozen one). Between two requests nothing else lives in this sandbox, and whatever
a request changed is laid again from read-only inputs. An agent's process can kill this server; then the channel ends and the tests fail.

Input: one JSON object on standard input, ``{"state", "pristine", "root", "limit_bytes", "pythonpath": […], "callee"}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import time
from typing import Any

from grader_service.child.assemble import (
    Entry,
    EvidenceError,
    TooMuchError,
    assemble,
    read_entries,
    without_by_products,
)
from grader_service.subject.leftovers import SharedMemory, refuse_message_queues
from grader_service.subject.process import Limits, Ran, run
from grader_service.subject.ready import READY

CHANNEL = 3
LINE_BYTES = 1 << 20
_TEXT_BYTES = 256 << 10
_TAIL_BYTES = 2000
_EVIDENCE_EXIT = 70
_WIPED = ("/tmp", "/output", "/dev/shm")  # noqa: S108 - the sandbox's own
_PROOF_SECONDS = 60.0
_TICK_SECONDS = 0.011
"""Longer than the coarsest step of file times in Linux, 10 ms."""

Mark = tuple[int, int, int, int, int]


def main() -> None:
    """Show that all of this works here, lay the workspace, then serve until the channel ends."""
    config = json.load(sys.stdin)
    guard_against_running_outside()
    protect()
    os.set_inheritable(CHANNEL, False)
    left = SharedMemory()
    prove(config["callee"], left)
    os.write(CHANNEL, READY)
    try:
        room = Room(config, left)
    except EvidenceError as error:
        sys.stderr.write(f"{error}\n")
        os._exit(_EVIDENCE_EXIT)
    channel = os.fdopen(CHANNEL, "r+b", buffering=0, closefd=False)
    with os.fdopen(os.dup(CHANNEL), "rb") as requests:
        os.set_inheritable(requests.fileno(), False)
        while (line := requests.readline(LINE_BYTES + 1)) and line.endswith(b"\n"):
            request = json.loads(line)
            reply = {**serve(request, room, config), "nonce": request["nonce"]}
            data = json.dumps(reply).encode() + b"\n"
            if len(data) > LINE_BYTES:
                data = (
                    json.dumps({"nonce": request["nonce"], "problem": "the answer is larger than 1 MiB"}).encode()
                    + b"\n"
                )
            while data:
                data = data[channel.write(data) :]
            room.restore()


def guard_against_running_outside() -> None:
    """End at once unless this is a sandbox of its own: the server kills every process that it can see."""
    alone = sum(name.isdigit() for name in os.listdir("/proc")) <= 8  # noqa: PTH208
    if not alone or os.getuid() == 0:
        sys.exit("the subject server runs only in a sandbox of its own, not as root")


def protect() -> None:
    """Keep processes of the same user from tracing this one or taking its descriptors, and collect their orphans."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    pr_set_dumpable, pr_set_child_subreaper = 4, 36
    if libc.prctl(pr_set_dumpable, 0, 0, 0, 0) or libc.prctl(pr_set_child_subreaper, 1, 0, 0, 0):
        sys.exit("the subject server cannot protect itself: prctl was refused")
    refuse_message_queues()


def prove(callee: str, left: SharedMemory) -> None:
    """Do what every request needs once, with no byte of the agent's. What fails here ends this program, and is nobody's result."""
    job = json.dumps({"op": "script", "code": "result = 1", "pythonpath": []}).encode()
    limits = Limits(_PROOF_SECONDS, _TAIL_BYTES, LINE_BYTES, keep_end=True)
    ran = run([sys.executable, "-I", "-B", callee], dict(os.environ), "/", job, limits, answer=True)  # noqa: TID251
    kill_all_others()
    left.forget()
    if ran.answer != b'{"value": 1}\n':
        sys.exit(f"the subject server cannot serve: {_ending(ran)} {ran.stderr.decode('utf-8', 'replace')}")


class Room:
    """The workspace that requests see, and how it gets back to what was frozen."""

    def __init__(self, config: dict[str, Any], left: SharedMemory) -> None:
        self._config = config
        self._left = left
        self.root: str = config["root"]
        self.problem = ""
        """Why there is no workspace to ask about, if there is none."""
        self._entries: dict[str, Entry] = without_by_products(read_entries(f"{config['state']}/entries.jsonl"))
        self._lay()

    def restore(self) -> None:
        """Undo what the last request did. Only what differs is laid again; most requests change nothing."""
        for folder in (*_WIPED, os.path.expanduser("~")):  # noqa: PTH111
            wipe(folder)
        self._left.forget()
        now = marks(self.root)
        added = [path for path in now if path not in self._marks]
        touched = any(now.get(path) != mark for path, mark in self._marks.items())
        if touched:
            wipe(self.root)
            self._lay()
            return
        for path in sorted(added, reverse=True):
            _remove(f"{self.root}/{path}")

    def _lay(self) -> None:
        config = self._config
        try:
            assemble(
                self._entries,
                changes=f"{config['state']}/changes.tar",
                pristine=config["pristine"],
                root=self.root,
                limit_bytes=config["limit_bytes"],
            )
        except TooMuchError as error:
            self.problem = str(error)
        self._marks = marks(self.root)
        time.sleep(_TICK_SECONDS)  # a write within the same tick would leave the change time as it is


def marks(root: str) -> dict[str, Mark]:
    """Return what identifies each path's content: a write changes the change time, which no process here can set back."""
    found: dict[str, Mark] = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(f"{root}/{folder}"))
        except OSError:
            found[folder] = (-1, 0, 0, 0, 0)
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            seen = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(seen.st_mode):
                found[path] = (seen.st_mode, seen.st_ino, 0, 0, 0)
                waiting.append(path)
            else:
                found[path] = (seen.st_mode, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    return found


def wipe(folder: str) -> None:
    """Remove everything in a folder, as far as the file system lets us."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            _remove(f"{folder}/{name}")


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        if os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH112, PTH114
            os.unlink(path)  # noqa: PTH108
            return
        os.chmod(path, 0o700)  # noqa: PTH101
        for folder, folders, _ in os.walk(path):
            for name in folders:  # before the walk enters them: a folder without permissions lists nothing
                if not os.path.islink(f"{folder}/{name}"):  # noqa: PTH114
                    os.chmod(f"{folder}/{name}", 0o700)  # noqa: PTH101
        shutil.rmtree(path, ignore_errors=True)


def serve(request: dict[str, Any], room: Room, config: dict[str, Any]) -> dict[str, Any]:
    """Answer one request. Everything the request started is dead when this returns."""
    if room.problem:
        return {"problem": room.problem}
    own = dict(os.environ)  # noqa: TID251 - a program inside of a sandbox; what an image sets is there
    pythonpath = [*config["pythonpath"], *filter(None, own.get("PYTHONPATH", "").split(":"))]
    environment = {**own, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ":".join(pythonpath)}
    if request["op"] == "run":
        return _serve_run(request, room, environment)
    job = json.dumps({**request, "nonce": None, "pythonpath": pythonpath}).encode()
    command = [sys.executable, "-I", "-B", config["callee"]]
    ran = run(
        command,
        environment,
        room.root,
        job,
        Limits(request["timeout"], _TAIL_BYTES, LINE_BYTES, keep_end=True),
        answer=True,
    )
    kill_all_others()
    reply = _ending(ran)
    reply["output"] = (ran.stdout + ran.stderr)[-_TAIL_BYTES:].decode("utf-8", "replace")
    try:
        reply["answer"] = ran.answer.decode() if ran.answer.endswith(b"\n") else None
    except UnicodeDecodeError:
        reply["answer"] = None
    return reply


def _ending(ran: Ran) -> dict[str, Any]:
    return {"exit_code": ran.exit_code, "signal": ran.signal, "timed_out": ran.timed_out, "too_large": ran.too_large}


def _serve_run(request: dict[str, Any], room: Room, environment: dict[str, str]) -> dict[str, Any]:
    try:
        for name, text in request["files"].items():
            _write(f"{room.root}/{name}", text.encode())
    except OSError as error:
        return {"problem": f"an input file could not be written: {error.strerror}"}
    limits = Limits(request["timeout"], _TEXT_BYTES, 0)
    ran = run(request["argv"], {**environment, **request["env"]}, room.root, request["stdin"].encode(), limits)
    kill_all_others()
    reply = _ending(ran)
    reply["stdout"], reply["stderr"] = ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace")
    reply["files"] = {name: text for name in request["read"] if (text := _read(f"{room.root}/{name}")) is not None}
    return reply


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "wb") as file:
        file.write(data)


def _read(path: str) -> str | None:
    """Return the text of a regular file of at most 256 KiB; None for everything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(_TEXT_BYTES + 1)
    return None if len(data) > _TEXT_BYTES else data.decode("utf-8", "replace")


def kill_all_others() -> None:
    """Kill every process in this sandbox but the first and this one, and wait until they are gone."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
    sys.exit("processes of the agent could not be killed")
