"""The command line as a person uses it: a process, its output, its exit code."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import clean_environment

from orchestrator.cli.app import run_command


@pytest.fixture
def orchestrate(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``orchestrate`` in an empty folder."""

    def run(*words: str | Path, timeout: float = 50) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "orchestrator", *map(str, words)],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same in this process, for commands that do little: loading the program costs more than all that they do."""
    wanted = clean_environment()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for name in os.environ.keys() - wanted.keys():
        monkeypatch.delenv(name)
    for name, value in dict(wanted.items() - os.environ.items()).items():
        monkeypatch.setenv(name, value)

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        arguments = [str(word) for word in words]
        return subprocess.CompletedProcess(arguments, run_command(arguments), *capsys.readouterr())

    return run
