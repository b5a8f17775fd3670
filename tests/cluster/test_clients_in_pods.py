"""The clients that people use, as their registries have them, in pods with scripted models: from the task to the verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cluster_runs import Runs, report
from installed_world import Release

sys.path.insert(0, str(Path(__file__).parents[1] / "agents"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from client_agents import CLIENTS, asking_suite, check_trial, clients_project
from real_agents import TASK, kept_cache

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_the_clients_finish_a_starter_task_in_pods(
    ready: Release, tmp_path: Path, request: pytest.FixtureRequest, subtests: pytest.Subtests
) -> None:
    agents = clients_project(tmp_path, kept_cache(request))
    runs = Runs(ready)
    words = ("--backend", "kubernetes", "--samples", "1", "-n", "4", "--yes", "--detach")
    done = runs.cli("submit", str(asking_suite(tmp_path)), *agents, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = done.stdout.split()[-1]
    runs.follow(run)
    left = runs.check(run)
    assert set(left.results.values()) == {("completed", "passed")}, report(runs, run)
    for client in CLIENTS:
        trial = f"{TASK}@{client.agent}"
        with subtests.test(client.agent):
            shown = json.loads(runs.cli("show", run, trial, "--json").stdout)
            logs = runs.cli("logs", run, trial, "--json").stdout
            check_trial(client, shown, [json.loads(line) for line in logs.splitlines()])
