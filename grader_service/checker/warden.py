"""One job of the checker: a process that watches over the child that parses, and outlives whatever that child does.

Request and reply are one JSON line each. The request: ``{"job": {…}, "wall_seconds", "disk_bytes"}``, the job as for the limited child, but
without ``root`` and ``answer``. The reply: ``{"code", "signal", "cause", "started", "ended", "answer", "output"}``, the last two in base64,
or ``{"problem": "…"}``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from orchestrator.sandbox import jail

REQUEST_BYTES = 8 << 20
ANSWER_BYTES = 1 << 20
_OUTPUT_BYTES = 8192
_SPARE_BYTES = 64 << 20
"""With less room than this left, what a child could not write is no finding about the agent."""
_OOM_COUNTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_NO_MEMORY = 77
"""Exit code of a child that met its memory limit."""
_PR_SET_CHILD_SUBREAPER = 36

Greeting = Callable[[dict[str, Any]], dict[str, Any]]


class Warden:
    """Runs one job in a folder of its own."""

    def __init__(self, request: dict[str, Any], scratch: str, client: socket.socket) -> None:
        self._request = request
        self._client = client
        self._home = tempfile.mkdtemp(dir=os.path.realpath(scratch))
        self._deadline = time.monotonic() + request["wall_seconds"]
        self._output = b""
        self._oom_kills = oom_kills()

    def run(self) -> dict[str, Any]:
        """Run the child until nothing of it is alive, and return the reply. Raises OSError when there can be no child."""
        from orchestrator.sandbox.keeper import linux

        linux.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        started = time.time()
        try:
            reader, writer = os.pipe2(os.O_CLOEXEC)
            child = os.fork()
            if child == 0:
                os.close(reader)
                self._child(writer)
            os.close(writer)
            ended = os.pidfd_open(child)
            cause = self._watch(reader, ended)
            status = _end_all(child)
            os.close(ended)
            os.close(reader)
            return self._reply(cause, status, started)
        finally:
            remove(self._home)

    def _child(self, writer: int) -> None:
        status = 70
        try:
            os.setsid()
            null = os.open("/dev/null", os.O_RDWR)
            for number, source in ((0, null), (1, writer), (2, writer)):
                os.dup2(source, number)
            os.closerange(3, 1 << 16)
            status = parse(self._request, self._home)
        except BaseException as error:  # noqa: BLE001 - a fork must never return into its parent's code
            with contextlib.suppress(OSError, ValueError):
                os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        finally:
            os._exit(status)

    def _watch(self, reader: int, ended: int) -> str:
        """Wait for the child's end, its deadline, or the end of whoever asked."""
        open_ = True
        while (left := self._deadline - time.monotonic()) > 0:
            awaited: list[Any] = [ended, self._client, *([reader] if open_ else [])]
            ready, _, _ = select.select(awaited, [], [], left)
            if reader in ready:
                chunk = os.read(reader, 65536)
                open_ = bool(chunk)
                self._output = (self._output + chunk)[-_OUTPUT_BYTES:]
            if ended in ready:
                return "exited"
            if self._client in ready:
                return "stopped"
        return "wall_clock"

    def _reply(self, cause: str, status: int, started: float) -> dict[str, Any]:
        code = os.waitstatus_to_exitcode(status)
        if cause == "exited" and code == _NO_MEMORY:
            cause = "out_of_memory"
        if oom_kills() != self._oom_kills or (cause == "exited" and code == -signal.SIGKILL):
            return {"problem": "a process of the checker was killed from outside: its memory limit is too low"}
        if shutil.disk_usage(self._home).free < _SPARE_BYTES:
            return {
                "problem": f"less than {_SPARE_BYTES >> 20} MiB are free for what is laid: give the checker's scratch folder more"
            }
        if cause == "exited" and code == -signal.SIGXCPU:
            cause = "wall_clock"
        answer = read_answer(f"{self._home}/answer.json")
        return {
            "code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "cause": cause,
            "started": started,
            "ended": time.time(),
            "answer": None if answer is None else base64.b64encode(answer).decode(),
            "output": base64.b64encode(self._output).decode(),
        }


def parse(request: dict[str, Any], home: str) -> int:
    """Confine this process and evaluate the job's checks; returns the exit code."""
    from grader_service.child.main import run

    told = request["job"]
    seconds, memory = int(told["seconds"]), int(told["memory_bytes"])
    temporary = f"{home}/temporary"
    os.mkdir(temporary)  # noqa: PTH102
    os.environ.clear()  # noqa: TID251 - of the child
    os.environ["TMPDIR"] = temporary  # noqa: TID251
    tempfile.tempdir = temporary
    os.chdir(home)
    job = {
        **told,
        "root": f"{home}/frozen",
        "answer": f"{home}/answer.json",
        "packages": [],
        "memory_bytes": jail.mapped_bytes() + memory,
    }
    jail.confine(
        (told["state"], told["pristine"], told["hidden"]),
        home,
        cpu_seconds=seconds * 2 + 30,
        memory_bytes=memory,
        file_bytes=request["disk_bytes"],
    )
    try:
        run(job)
    except MemoryError:
        return _NO_MEMORY
    return 0


def _end_all(child: int) -> int:
    """Kill whatever descends from this process, and return the child's wait status. Orphans become ours, so none gets away."""
    status = 0
    while True:
        for process in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            process, found = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if process == child:
            status = found


def _children() -> list[int]:
    own, found = str(os.getpid()), []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as line:  # noqa: PTH123
                if line.read().rpartition(b")")[2].split()[1].decode() == own:
                    found.append(int(name))
    return found


def oom_kills() -> int:
    """Return how many processes of this container the kernel has killed for want of memory, as far as it tells."""
    for path in _OOM_COUNTS:
        with contextlib.suppress(OSError, ValueError), open(path) as lines:  # noqa: PTH123
            counts = dict(line.split(maxsplit=1) for line in lines)
            return int(counts.get("oom_kill", 0))
    return 0


def read_answer(path: str) -> bytes | None:
    """Return what a child wrote, if that is a regular file of at most 1 MiB."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(ANSWER_BYTES + 1)
    return data if len(data) <= ANSWER_BYTES else None


def remove(folder: str) -> None:
    """Remove a folder whose own folders may have lost their permissions."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            if not os.path.islink(f"{place}/{name}"):  # noqa: PTH114
                with contextlib.suppress(OSError):
                    os.chmod(f"{place}/{name}", 0o700)  # noqa: PTH101
    shutil.rmtree(folder, ignore_errors=True)


def serve_one(client: socket.socket, scratch: str, greet: Greeting) -> None:
    """Answer the one request of a connection; ``greet`` answers what is no job."""
    with client.makefile("rb") as lines:
        line = lines.readline(REQUEST_BYTES + 1)
    if not line.endswith(b"\n"):
        return
    request = json.loads(line)
    try:
        reply = greet(request) if "job" not in request else Warden(request, scratch, client).run()
    except OSError as error:
        reply = {"problem": f"{error.strerror or error} ({error.filename or 'in the checker'})"}
    with contextlib.suppress(OSError):
        client.sendall(json.dumps(reply).encode() + b"\n")
    sys.stderr.flush()
