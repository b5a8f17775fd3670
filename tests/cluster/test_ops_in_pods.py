"""The suite over worlds measures on a cluster what it measures on one machine: oracles pass, every mistake is caught."""

from __future__ import annotations

import json

import pytest
from cluster_runs import ROOT, Runs
from installed_world import Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

FEW = ["refund-lost-answer", "calendar-which-kim", "vendor-research", "invoices-overdue"]
"""A fault after the effect, a user, a cassette, clock and memory."""


@pytest.mark.parametrize("tasks", [FEW, pytest.param([], marks=pytest.mark.slow)], ids=["few", "all"])
def test_tasks_of_worlds_are_valid_in_pods(ready: Release, tasks: list[str]) -> None:
    runs = Runs(ready)
    chosen = [word for task in tasks for word in ("--tasks", task)]
    done = runs.cli("validate", str(ROOT / "tasks/ops"), "--backend", "kubernetes", "--json", "-n", "8", *chosen)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    found = json.loads(done.stdout)["tasks"]
    assert len(found) == (len(tasks) or len(list((ROOT / "tasks/ops").glob("*/task.yaml"))))
    assert all(task["ok"] for task in found), found
