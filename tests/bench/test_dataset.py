"""The benchmark of the dataset runs and prints its ratios; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "dataset/bench_dataset.py"


def measure(*words: str) -> tuple[str, dict]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False, timeout=1500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stdout)


@pytest.mark.bench
def test_a_million_trials_beside_bare_duckdb(capsys: pytest.CaptureFixture[str]) -> None:
    shown, found = measure()
    with capsys.disabled():
        print(f"\n{shown}")
    assert found["rows"] == 1_000_000


def test_the_benchmark_works_in_small() -> None:
    _, found = measure("3", "100")
    assert found["rows"] == 300
