"""A checker in a process of its own. Here it has the same user as the grader, whose Python another one may not be able to start."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def checker(folder: Path, *, jobs: int = 2) -> Iterator[Path]:
    """Run a checker while the context is open and give its socket."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch, path = folder / "scratch", folder / "c.sock"
    command = [sys.executable, "-m", "grader_service", "checker", "--socket", str(path), "--scratch", str(scratch)]
    process = subprocess.Popen([*command, "--jobs", str(jobs)], cwd=ROOT, env={"PATH": os.environ["PATH"]})
    try:
        while not path.exists() and process.poll() is None:
            time.sleep(0.02)
        assert process.poll() is None, "the checker ended"
        yield path
    finally:
        process.terminate()
        process.wait()
