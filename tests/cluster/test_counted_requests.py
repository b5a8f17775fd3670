"""What a driver asks of the API server for each trial, by the server's own log: one pod made and deleted, and hardly anything else."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from audited_api import audited, kubeconfig_of_driver, settings_of_driver
from cluster_runs import Runs, write_suite
from installed_world import Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

CONSTANT = 60
"""Requests of a run that do not grow with its trials: questions about its rights and about pods of each shape, lists, watches that are
opened again.
"""


@pytest.mark.parametrize("trials", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_one_pod_and_at_most_three_requests_for_each_trial(ready: Release, tmp_path: Path, trials: int) -> None:
    home = settings_of_driver(ready, tmp_path)
    runs = Runs(ready)
    suite = write_suite(tmp_path, (0, 1))
    words = ["--backend", "kubernetes", "--agent", "nop", "--samples", str(trials // 2), "-n", "10", "--pool", "inline"]
    with audited(tmp_path) as server:
        account = kubeconfig_of_driver(ready, tmp_path)
        environment = {**Runs(ready, "admin").environment, "KUBECONFIG": str(account)}
        command = [sys.executable, "-m", "orchestrator", "submit", str(suite), *words, "--yes"]
        done = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=1200, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        asked = server.requests(ready.account("driver"))
    run = done.stdout.partition("run ")[2].split()[0]
    left = runs.check(run)
    launches = sum(len(each) for each in left.outcomes.values())
    what = Counter((each["verb"], _object(each)) for each in asked)
    print(f"\n{trials} trials, {launches} launches: {dict(what)}")
    pods = {each["objectRef"]["name"] for each in asked if each["verb"] == "create" and _object(each) == "pods"}
    assert len(pods) == launches
    assert what["create", "pods"] == launches
    assert not [each for each in what if each[1] in ("pods/exec", "pods/attach", "pods/log", "pods/portforward")]
    beats = sum(count for (_, name), count in what.items() if name == "leases")
    assert len(asked) - beats <= 3 * launches + CONSTANT
    assert what["create", "pods"] + what["delete", "pods"] + what["get", "pods"] <= 3 * launches


def _object(event: dict) -> str:
    about = event.get("objectRef") or {}
    name = "/".join(filter(None, [about.get("resource", event["requestURI"]), about.get("subresource")]))
    return f"{name}, not made" if "dryRun=" in event["requestURI"] else name
