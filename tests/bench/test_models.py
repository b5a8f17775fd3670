"""The benchmark of model calls runs and prints what the gateway adds; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "gateway/bench_models.py"


@pytest.mark.bench
@pytest.mark.parametrize("what", ["added", "slots", "memory"])
def test_models_behind_the_gateway(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    calls = {"added": ["--concurrent", "1,64"], "slots": [], "memory": ["--calls", "10000"]}
    command = [sys.executable, str(PROGRAM), what, *calls[what]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n{done.stdout}")
    found = json.loads(done.stdout)
    each = [way for case in found.values() for way in case.values()] if what == "added" else [found]
    assert all(case.get("failed", 0) == 0 for case in each)
