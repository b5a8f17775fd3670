"""``grader-service checker``: takes jobs on a unix socket, some at a time, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from grader_service.checker.warden import Greeting, remove, serve_one
from orchestrator.sandbox import jail

_OWN_BYTES = 96 << 20
"""What the server itself takes, with the packages that it has loaded for its children."""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def main(path: Path, scratch: Path, jobs: int) -> None:
    """Serve until SIGTERM. ``jobs``: how many at a time; further ones wait. Raises OSError."""
    from grader_service.programs import service_version

    jail.protect()
    _load()
    version = service_version()
    scratch.mkdir(parents=True, exist_ok=True)
    for left in scratch.iterdir():  # of an earlier process
        remove(str(left)) if left.is_dir() else left.unlink()
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o660)
        listening.listen(128)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        sys.stderr.write(f"grader-service checker: {version} takes {jobs} jobs at a time on {path}\n")
        sys.stderr.flush()
        _accept(listening, str(scratch), jobs, lambda request: _greeting(request, version, jobs))


def _load() -> None:
    """Load now what children would load each for itself."""
    import griffe
    import ruamel.yaml

    import grader_service.child.api
    import grader_service.child.diff
    import grader_service.child.documents
    import grader_service.child.files
    import grader_service.child.sqlite

    _ = (griffe, ruamel.yaml, grader_service.child)


def _accept(listening: socket.socket, scratch: str, jobs: int, greet: Greeting) -> None:
    running: set[int] = set()
    woken, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(woken, selectors.EVENT_READ)
        while True:
            _reap(running)
            if len(running) < jobs and listening not in selector.get_map():
                selector.register(listening, selectors.EVENT_READ)
            if len(running) >= jobs and listening in selector.get_map():
                selector.unregister(listening)
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
            if listening in ready:
                client, _ = listening.accept()
                running.add(_fork(client, listening, scratch, greet))
                client.close()


def _reap(running: set[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (process := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            running.discard(process)


def _fork(client: socket.socket, listening: socket.socket, scratch: str, greet: Greeting) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        listening.close()
        serve_one(client, scratch, greet)
        status = 0
    except Exception as error:  # noqa: BLE001 - the fork must not return into the server; the asker sees the end of the line
        sys.stderr.write(f"grader-service checker: a job failed: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(status)


def _greeting(request: dict[str, Any], version: str, jobs: int) -> dict[str, Any]:
    """Say who is there, or what has to change before jobs of the size asked for fit in here."""
    wanted, limit = _OWN_BYTES + jobs * int(request["job_bytes"]), _memory_limit()
    if limit is not None and limit < wanted:
        problem = (
            f"the checker may use {limit >> 20} MiB of memory, and {jobs} jobs at a time need {wanted >> 20} MiB: raise its memory limit, "
            "or lower --jobs or GRADER_SERVICE_CHECK_MEMORY_BYTES"
        )
        return {"problem": problem}
    return {"version": version, "jobs": jobs, "landlock": jail.landlock_version()}


def _memory_limit() -> int | None:
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            return int(Path(path).read_text())
    return None
