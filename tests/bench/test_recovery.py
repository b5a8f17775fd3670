"""The benchmark of a gateway that goes on from its volume runs and prints seconds and memory; that no launch is lost is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "gateway/bench_recovery.py"


@pytest.mark.bench
@pytest.mark.parametrize("late", [[], ["20"]], ids=["a folder", "S3 far away"])
def test_a_gateway_goes_on_with_a_thousand_launches(late: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, str(PROGRAM), "1000", "20", *late]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n{done.stdout}")
    found = json.loads(done.stdout)
    assert found["kept"] == found["launches"] == 1000
