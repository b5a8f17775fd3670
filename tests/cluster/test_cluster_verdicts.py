"""The same trials on this machine and on the cluster: the same endings and the same verdicts; and an upgrade that nobody notices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import ROOT, Runs, report, write_suite
from installed_world import Release, get, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

STARTER = ROOT / "tasks" / "starter"
AGENTS = ["oracle", "nop", "manifests/agents/careful.yaml", "manifests/agents/sloppy.yaml"]
FEW = ["config-v2", "refund-over-limit", "one-rounding"]
"""Files, a declined task, hidden tests in pods."""


def _local(folder: Path, words: list[str]) -> dict[str, Any]:
    """Run the trials on this machine. Returns the report."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATE_")}
    environment = {**kept, "ORCHESTRATE_STORE": str(folder / "store")}
    command = [
        sys.executable,
        "-m",
        "orchestrator",
        "submit",
        str(STARTER),
        "--backend",
        "bubblewrap",
        "--yes",
        "--json",
    ]
    done = subprocess.run(
        [*command, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _told(document: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal: who passed what, and how trials ended."""
    kinds = ("planned", "passed", "failed", "abstained")
    tasks = {
        (each["task"], each["agent"]): {kind: each["counts"][kind] for kind in kinds} for each in document["tasks"]
    }
    endings = {each["agent"]: each["termination_reason"] for each in document["agents"]}
    return {"tasks": tasks, "endings": endings}


@pytest.mark.parametrize(
    ("tasks", "samples"), [(FEW, "1"), pytest.param([], "3", marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_verdicts_are_those_of_this_machine(ready: Release, tmp_path: Path, tasks: list[str], samples: str) -> None:
    chosen = [word for task in tasks for word in ("--tasks", task)]
    words = [word for agent in AGENTS for word in ("--agent", agent)]
    here = _local(tmp_path, [*words, *chosen, "--samples", samples])
    runs = Runs(ready)
    run = runs.submit(STARTER, AGENTS, *chosen, "--samples", samples, "-n", "8", "--pool", "inline")
    runs.follow(run)
    runs.check(run)
    there = report(runs, run)
    assert _told(there) == _told(here)
    assert there["manifest"]["grader_version"]  # whoever submits cannot ask the grader: its verdicts say it


def test_an_upgrade_in_the_middle_of_a_run_disturbs_nothing(ready: Release, tmp_path: Path) -> None:
    runs = Runs(ready)
    run = runs.submit(write_suite(tmp_path, (4, 8)), ["oracle"], "--samples", "6", "-n", "6", "--pool", "inline")
    runs.busy(run, 2)
    deployments = f"/apis/apps/v1/namespaces/{ready.system}/deployments/relay"
    before = get(deployments)["metadata"]["generation"]
    ready.helm("upgrade", over={"driver": {"concurrency": 7}, "relay": {"resources": {"requests": {"cpu": "11m"}}}})
    until(lambda: get(deployments)["metadata"]["generation"] > before, "the relay is replaced", 30)
    runs.follow(run, resumes=0)
    assert not runs.check(run).causes
    ready.helm("upgrade")
    ready.await_ready()
