"""Standard output and error that a run survives: a reader may leave, a terminal may go, a locale may lack letters."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO, cast

from orchestrator.errors import InfrastructureError

_GONE = {errno.EPIPE, errno.EIO}
"""Nobody reads any more: the pipe's other end was closed, or the terminal was."""


def can_ask() -> bool:
    """Return whether a person can be asked: standard input is there, and a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


class Output:
    """A text stream whose reader may go: what nobody reads is dropped, and the work and its exit code stay what they are.

    With ``needed``, any other failure, such as a full disk, raises InfrastructureError; without, it is dropped too.
    """

    def __init__(self, stream: TextIO, *, needed: bool) -> None:
        self._stream = stream
        self._needed = needed

    def write(self, text: str) -> int:
        """Write, as far as anybody reads."""
        with self._dropped():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, as far as anybody reads."""
        with self._dropped():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _dropped(self) -> Any:
        try:
            yield
        except OSError as error:
            if self._needed and error.errno not in _GONE:
                msg = f"standard output cannot be written: {error.strerror}; what was committed is in the store"
                raise InfrastructureError(msg, cause="output") from error


def guard_streams() -> None:
    """Put such streams in place of this process's own, and open closed descriptors, so that no file of ours gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = cast("TextIO", Output(sys.stdout or _nowhere(), needed=True))
    sys.stderr = cast("TextIO", Output(sys.stderr or _nowhere(), needed=False))


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")  # closed by nobody: it stands for a stream of the process
