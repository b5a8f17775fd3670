"""The command line as a person uses it: a process, its output, its exit code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import clean_environment


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
