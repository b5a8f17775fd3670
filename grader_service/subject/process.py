"""Run one program for a request: bounded in time and output, never waiting for what it left behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one request."""

    seconds: float
    output_bytes: int
    """Of standard output, and of standard error."""
    answer_bytes: int
    keep_end: bool = False
    """Output beyond the limit is dropped from its beginning, instead of ending the program."""


@dataclass
class Ran:
    """How a program ended. Times out and too large: it was killed for that."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    too_large: bool = False
    stdout: bytes = b""
    stderr: bytes = b""
    answer: bytes = b""


def run(argv: list[str], env: dict[str, str], cwd: str, stdin: bytes, limits: Limits, *, answer: bool = False) -> Ran:
    """Run a program. With ``answer`` it gets the number of a descriptor to write one line to as its last argument."""
    ran = Ran()
    source = os.memfd_create("stdin", os.MFD_CLOEXEC)
    reader, writer = os.pipe()
    try:
        _write_all(source, stdin)
        os.lseek(source, 0, os.SEEK_SET)
        process = subprocess.Popen(
            [*argv, str(writer)] if answer else argv,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            pass_fds=(writer,) if answer else (),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(reader)
        os.close(writer)
        missing = isinstance(error, FileNotFoundError)
        return Ran(exit_code=127 if missing else 126, stderr=f"{argv[0]}: {error}".encode("utf-8", "backslashreplace"))
    finally:
        os.close(source)
    os.close(writer)
    try:
        _watch(process, reader, limits, ran)
    finally:
        os.close(reader)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return ran


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _watch(process: subprocess.Popen[bytes], reader: int, limits: Limits, ran: Ran) -> None:
    assert process.stdout is not None  # noqa: S101 - asked for above
    assert process.stderr is not None  # noqa: S101
    names = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr", reader: "answer"}
    ended = os.pidfd_open(process.pid)
    deadline = time.monotonic() + limits.seconds
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            for descriptor in names:
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0, deadline - time.monotonic()))
                for key, _ in ready:
                    if key.fd in names and not _take(key.fd, names[key.fd], limits, ran):
                        selector.unregister(key.fd)
                if any(key.fd == ended for key, _ in ready):
                    break
                if ran.too_large or not ready:
                    ran.timed_out = not ran.too_large
                    os.killpg(process.pid, signal.SIGKILL)
                    break
    finally:
        os.close(ended)
    code = process.wait()
    ran.exit_code, ran.signal = (code, None) if code >= 0 else (None, -code)
    for descriptor, name in names.items():
        while not ran.too_large and _take(descriptor, name, limits, ran):
            pass


def _take(descriptor: int, name: str, limits: Limits, ran: Ran) -> bool:
    """Read what is there. False: nothing more now, or never."""
    try:
        chunk = os.read(descriptor, 65536)
    except BlockingIOError:
        return False
    if not chunk:
        return False
    data = getattr(ran, name) + chunk
    limit = limits.answer_bytes if name == "answer" else limits.output_bytes
    if len(data) > limit:
        ran.too_large = ran.too_large or name == "answer" or not limits.keep_end
        data = data[-limit:]
    setattr(ran, name, data)
    return True
