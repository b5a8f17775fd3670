"""The benchmarks run and print their ratios; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.bench
def test_nop_trial_beside_bare_starts(capsys: pytest.CaptureFixture[str]) -> None:
    program = Path(__file__).parent / "local/bench_nop.py"
    done = subprocess.run(
        [sys.executable, str(program), "20"], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert all(task["ratio"] > 0 for task in json.loads(done.stdout).values())


@pytest.mark.bench
def test_overhead_with_a_big_workspace(capsys: pytest.CaptureFixture[str]) -> None:
    program = Path(__file__).parent / "local/bench_big.py"
    done = subprocess.run(
        [sys.executable, str(program), "3"], capture_output=True, text=True, check=False, timeout=1500
    )
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert json.loads(done.stdout)["overhead_of_60_s"] > 0


@pytest.mark.bench
@pytest.mark.timeout(7200)
def test_trials_through_four_supervisors_beside_inline(capsys: pytest.CaptureFixture[str]) -> None:
    program = Path(__file__).parent / "local/bench_pools.py"
    done = subprocess.run(
        [sys.executable, str(program), "2000"], capture_output=True, text=True, check=False, timeout=7000
    )
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert json.loads(done.stdout)["ratio"] > 0
