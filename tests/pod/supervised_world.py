"""A pod's folders, and an agent's container whose first process is the real supervisor."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from orchestrator.sandbox.bubblewrap.host import bwrap

SOURCE = Path(__file__).parents[2] / "orchestrator/sandbox/pod/supervisor.c"
FLAGS = ("-std=gnu11", "-Os", "-static", "-Wall", "-Wextra", "-Werror")


def supervisor() -> Path:
    """The supervisor, compiled once for all tests of this source; skips where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: the supervisor is tested where there is one")
    sources = SOURCE.read_bytes() + SOURCE.with_name("guard.h").read_bytes()
    digest = hashlib.sha256(sources + " ".join(FLAGS).encode()).hexdigest()[:16]
    program = Path(tempfile.gettempdir()) / f"orchestrate-supervisor-{os.getuid()}-{digest}"
    if not program.exists():
        made = program.with_name(f"{program.name}.{os.getpid()}")
        subprocess.run([compiler, *FLAGS, "-o", str(made), str(SOURCE)], check=True)
        made.rename(program)
    return program


def system() -> list[str]:
    """Arguments that show this machine's own files, read-only."""
    hidden = {"proc", "dev", "tmp", "sys", "ctl", "log", "workspace"}
    found = []
    for entry in sorted(Path("/").iterdir()):
        if entry.is_symlink():
            found += ["--symlink", str(entry.readlink()), str(entry)]
        elif entry.is_dir() and entry.name not in hidden:
            found += ["--ro-bind", str(entry), str(entry)]
    return found


class Pod:
    """Folders of one pod below ``root``."""

    def __init__(
        self, root: Path, *, wall: float = 20, output: int = 4096, processes: int = 64, stdin: bytes = b""
    ) -> None:
        self.ctl, self.log, self.workspace, self.cgroup = (
            root / name for name in ("ctl", "log", "workspace", "cgroup")
        )
        for folder in (self.ctl, self.log, self.workspace, self.cgroup):
            folder.mkdir(parents=True)
        self.termination = root / "termination-log"
        self.termination.touch()
        (self.ctl / "limits").write_text(f"wall_seconds {wall}\noutput_bytes {output}\nprocesses {processes}\n")
        (self.ctl / "alive").touch()
        (self.ctl / "stdin").write_bytes(stdin)
        shutil.copy(supervisor(), self.ctl / "supervisor")
        (self.ctl / "supervisor").chmod(0o555)

    def start(self, *command: str, binds: tuple[str, ...] = ()) -> Running:
        """Start a command under the supervisor, as its container's first process and without privileges."""
        told, info = os.pipe()
        arguments = [
            *(
                str(bwrap()),
                "--unshare-user",
                "--uid",
                "64000",
                "--gid",
                "64000",
                "--unshare-pid",
                "--as-pid-1",
                "--unshare-ipc",
            ),
            *("--cap-drop", "ALL", "--die-with-parent", "--info-fd", str(info)),
            *(*system(), "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
            # wherever the interpreter is, also below what is hidden
            *(flag for place in (sys.base_prefix, sys.prefix) for flag in ("--ro-bind", place, place)),
            *("--ro-bind", str(self.cgroup), "/sys/fs/cgroup"),
            *("--ro-bind", str(self.ctl), "/ctl", "--bind", str(self.log), "/log"),
            *("--bind", str(self.termination), "/dev/termination-log", "--bind", str(self.workspace), "/workspace"),
            *(*binds, "--chdir", "/workspace", "/ctl/supervisor", "run", "--", *command),
        ]
        process = subprocess.Popen(arguments, pass_fds=(info,), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(info)
        with os.fdopen(told) as lines:
            text = lines.read()
        return Running(process, json.loads(text)["child-pid"] if text else 0)

    def run(self, *command: str, **more: Any) -> int:
        """Run a command under the supervisor to its end and return the container's exit code."""
        return self.start(*command, **more).wait()

    def python(self, code: str, **more: Any) -> int:
        """The same for a few lines of Python."""
        return self.run(sys.executable, "-I", "-S", "-c", code, **more)

    def ending(self) -> dict[str, Any]:
        """What the supervisor said at last; the same in both places."""
        text = self.termination.read_text()
        assert (self.log / "ending").read_text() == text
        return json.loads(text)

    def output(self) -> bytes:
        """What the ring holds, in the order of printing."""
        data = (self.log / "output").read_bytes()
        printed, size = (int(word) for word in data[:32].split())
        ring = data[32:]
        return ring if printed <= size else ring[printed % size :] + ring[: printed % size]

    def stop(self) -> None:
        """What the freezer does when the gateway says so."""
        (self.ctl / "stop").touch()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


class Running:
    """A started container."""

    def __init__(self, process: subprocess.Popen[bytes], first: int) -> None:
        self.process, self.first = process, first
        self.stderr = b""
        weakref.finalize(self, _end, process)  # whatever became of the test

    def wait(self) -> int:
        """Return the exit code of its first process."""
        try:
            _, self.stderr = self.process.communicate(timeout=30)
        finally:
            self.process.kill()
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        """What the runtime does: a signal to the first process, from outside of its namespace."""
        os.kill(self.first, number)

    def until(self, path: Path) -> None:
        """Wait until a file is there."""
        deadline = time.monotonic() + 20
        while not path.exists():
            assert self.process.poll() is None, self.wait()
            assert time.monotonic() < deadline
            time.sleep(0.005)


@contextlib.contextmanager
def holding(path: Path):
    """Hold the lock that the supervisor takes."""
    import fcntl

    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
