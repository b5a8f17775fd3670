"""The benchmarks of the cluster's client run and print their ratios; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "kubernetes"


def measure(program: str, *words: str) -> tuple[str, dict]:
    command = [sys.executable, str(HERE / program), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stdout)


@pytest.mark.bench
def test_creates_and_events_beside_a_bare_loop(capsys: pytest.CaptureFixture[str]) -> None:
    shown, found = measure("bench_client.py")
    with capsys.disabled():
        print(f"\n{shown}")
    assert all(found[what]["ratio"] > 0 for what in ("creates", "watch_events"))


@pytest.mark.bench
def test_ten_thousand_pods_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    shown, found = measure("bench_flight.py")
    with capsys.disabled():
        print(f"\n{shown}")
    assert found["pods"] == 10_000


@pytest.mark.slow
@pytest.mark.parametrize(("program", "words"), [("bench_client.py", ("50", "100", "1")), ("bench_flight.py", ("20",))])
def test_the_benchmarks_work_in_small(program: str, words: tuple[str, ...]) -> None:
    _, found = measure(program, *words)
    assert found
