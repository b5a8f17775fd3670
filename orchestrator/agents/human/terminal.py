"""A shell for the person who is the agent, on a terminal of its own that is joined to the person's by descriptor 3.

Runs inside the sandbox with standard library alone. What comes on the descriptor is frames: ``d`` and a length, then what was typed; ``w``,
then rows and columns of the person's terminal. What goes out is what the terminal shows.
"""

# ruff: noqa: PTH100, PTH120, PTH123, S606, TID251 - a program of a sandbox: its environment is its own, and starting a shell is its work

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import struct
import sys
import termios

CHANNEL = 3
INSTRUCTION = "/task/instruction.md"
HERE = os.path.dirname(os.path.abspath(__file__))
_PIECE = 1 << 16
_BEGIN = "\x1b[1m{what}\x1b[0m\r\n"


def main() -> None:
    """Show the instruction, run the shell until it ends."""
    _say(_BEGIN.format(what="You are the agent. Your instruction, also in /task/instruction.md:") + "\r\n")
    with contextlib.suppress(OSError), open(INSTRUCTION, encoding="utf-8", errors="replace") as file:
        _say(file.read().replace("\n", "\r\n"))
    _say("\r\n" + _BEGIN.format(what="finish completed|declined|asked [WORDS…] ends it; so does exit. Your shell:"))
    child, terminal = pty.fork()
    if child == 0:
        _become_shell()
    _join(terminal)


def _become_shell() -> None:
    os.close(CHANNEL)
    os.environ["TERM"] = os.environ.get("TERM") or "xterm-256color"
    os.environ["ENV"] = f"{HERE}/rc"
    bash = shutil.which("bash")
    if bash is not None:
        os.execv(bash, ["bash", "--noprofile", "--rcfile", f"{HERE}/rc", "-i"])
    os.execvp("sh", ["sh", "-i"])


def _say(text: str) -> None:
    _write(CHANNEL, text.encode("utf-8", "replace"))


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _join(terminal: int) -> None:
    """Pass bytes both ways until the shell's side of the terminal is closed or the person has gone."""
    frames = Frames()
    while True:
        ready, _, _ = select.select([terminal, CHANNEL], [], [])
        if terminal in ready:
            try:
                shown = os.read(terminal, _PIECE)
            except OSError:  # how Linux tells that nobody has the other side open
                return
            if not shown:
                return
            _write(CHANNEL, shown)
        if CHANNEL in ready:
            data = os.read(CHANNEL, _PIECE)
            if not data:
                return
            for kind, value in frames.feed(data):
                if kind == b"d":
                    _write(terminal, value)
                else:
                    rows, columns = struct.unpack(">HH", value)
                    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Frames:
    """Puts frames together from bytes that come in any pieces."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the whole frames that there are now: kind and value."""
        self._data += data
        found = []
        while self._data:
            kind = self._data[:1]
            head = 5 if kind == b"d" else 1
            if len(self._data) < head:
                break
            size = int.from_bytes(self._data[1:5], "big") if kind == b"d" else 4
            if len(self._data) < head + size:
                break
            found.append((kind, self._data[head : head + size]))
            self._data = self._data[head + size :]
        return found


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(0)  # the person's side is closed; what is in the workspace is the result
