"""The command line as a person uses it: a process, its output, its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STARTER = ROOT / "tasks/starter"


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


def clean_environment() -> dict[str, str]:
    """Return this environment without settings or keys of the person who runs the tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ORCHESTRATE_") and not name.endswith("_API_KEY")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
