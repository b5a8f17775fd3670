"""A suite of two tasks in images, on this machine's engine, with a base image that needs no registry."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "sandbox"))
sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from cli_world import clean_environment

HERE = Path(__file__).parent
collect_ignore = ["suite"]
BASE = "localhost/orchestrate-test-base:1"
"""What the suite's recipe and one of its tasks name."""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def base() -> str:
    """The id of the base image, under the name that the suite knows; skips where there is no engine."""
    from container_world import engine, image

    asyncio.run(engine().tag(image(), BASE))
    return image()


@pytest.fixture
def suite(base: str, tmp_path: Path) -> Path:
    """A copy of the suite that a test may change, not locked."""
    return shutil.copytree(HERE / "suite", tmp_path / "boxed")


@pytest.fixture
def orchestrate(tmp_path: Path) -> Run:
    """Run ``orchestrate`` beside the suite; its output is in the error when it does not end as it should."""

    def run(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "orchestrator", *map(str, words)]
        done = subprocess.run(
            command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run
