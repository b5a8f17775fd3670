"""The list of commands on a narrow terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from cli_world import clean_environment


def help_of(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "orchestrator", *words, "--help"]
    environment = {**clean_environment(), "COLUMNS": "80"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_command_has_one_whole_line(tmp_path: Path) -> None:
    text = help_of(tmp_path)
    lines = text[text.index("Commands:") :].splitlines()[1:]
    assert {"submit", "resume", "report", "show", "logs", "pull", "validate", "try", "schema"} <= {
        line.split()[0] for line in lines
    }
    assert all(line.endswith(".") and "..." not in line for line in lines), text


def test_services_are_not_listed_but_there(tmp_path: Path) -> None:
    assert not re.search(r"^ *serve", help_of(tmp_path), re.MULTILINE)
    assert "gateway" in help_of(tmp_path, "serve")


def test_all_backends_are_offered(tmp_path: Path) -> None:
    assert "auto, bubblewrap, container or kubernetes." in help_of(tmp_path, "submit")


def test_an_interrupt_while_loading_leaves_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(30)\n")
    environment = clean_environment()
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "report"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (130, "")
