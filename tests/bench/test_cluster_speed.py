"""The benchmark on a real cluster runs and prints its shares; no time is asserted. Skipped where there is no cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "kubernetes" / "bench_cluster.py"


@pytest.mark.bench
@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_trials_beside_bare_pods(capsys: pytest.CaptureFixture[str]) -> None:
    if os.environ.get("ORCHESTRATE_TEST_CLUSTER") != "1":
        pytest.skip("no cluster: set ORCHESTRATE_TEST_CLUSTER=1 and KUBECONFIG where one may be used")
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False, timeout=1700)
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n{done.stdout}")
    found = json.loads(done.stdout)
    assert found["share"] > 0
    assert found["lost_launches"] == 0
