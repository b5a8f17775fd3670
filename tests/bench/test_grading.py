"""The benchmark of grading by file checks runs and prints its ratios; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "grading/bench_grading.py"


@pytest.mark.bench
def test_verdicts_by_file_checks_beside_those_in_sandboxes(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert json.loads(done.stdout)["verdicts"] == 50
