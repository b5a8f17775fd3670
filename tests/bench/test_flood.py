"""The benchmark of a flooded gateway runs and prints its times; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.bench
def test_a_freezer_beside_flooding_agents(capsys: pytest.CaptureFixture[str]) -> None:
    program = Path(__file__).parent / "gateway/bench_flood.py"
    done = subprocess.run([sys.executable, str(program), "3"], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert all(case["lost"] == 0 for case in json.loads(done.stdout).values())
