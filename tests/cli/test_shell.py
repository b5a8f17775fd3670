"""``orchestrate shell``: a person at a terminal is the agent."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import ROOT, STARTER, clean_environment

FIX = (ROOT / "manifests/agents/scripts/careful/config-v2.fix.sh").read_text()


def at_a_terminal(folder: Path, typed: list[tuple[str, str]], *words: str) -> tuple[int, str]:
    """Type each line once its prompt has been shown; return exit code and screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        command = [sys.executable, "-m", "orchestrator", "shell", str(STARTER / "config-v2"), *words]
        os.execve(sys.executable, command, clean_environment())
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 173, 0, 0))
    screen, waiting, deadline = "", list(typed), time.monotonic() + 50
    from_here = 0
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                screen += os.read(terminal, 65536).decode(errors="replace")
            except OSError:
                break
        if waiting and waiting[0][0] in screen[from_here:]:
            from_here = len(screen)
            os.write(terminal, waiting.pop(0)[1].encode())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen


def test_what_a_person_does_is_graded_as_a_trial(tmp_path: Path) -> None:
    code, screen = at_a_terminal(
        tmp_path,
        [
            ("Your shell:", "stty size\r"),
            ("41 173", f"sh <<'END'\r{FIX}\rEND\r"),
            ("$ ", "finish done\r"),
            ("usage: finish", "finish completed it is done\r"),
        ],
        "--as-trial",
    )
    assert code == 0, screen
    assert "Move the configuration of this service" in screen
    assert "config-v2@human:1   passed" in screen
    assert "it is done" in screen
    command = [sys.executable, "-m", "orchestrator", "rerun", "last", "--yes"]
    again = subprocess.run(command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "agent human is a person at a terminal, and nobody is at one here" in again.stderr


@pytest.mark.slow
def test_without_a_trial_nothing_is_kept(tmp_path: Path) -> None:
    code, _ = at_a_terminal(tmp_path, [("Your shell:", "exit\r")])
    assert code == 0
    assert not list(tmp_path.rglob("runs"))


def test_a_person_needs_a_terminal_and_a_command_of_their_own(in_process: Callable) -> None:
    done = in_process("shell", STARTER / "config-v2")
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
    done = in_process("submit", STARTER, "--agent", "human")
    assert done.returncode == 2
    assert "agent human: it is a person at a terminal; use: orchestrate shell TASK --as-trial" in done.stderr
