"""Coding agents as their registries have them, unmodified, in pods with scripted models: from the task to the verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cluster_runs import Runs, report
from installed_world import Release

sys.path.insert(0, str(Path(__file__).parents[1] / "agents"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from real_agents import DONE, REAL, STARTER, TASK, Real, kept_cache, project

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
EACH = [pytest.param(real, marks=() if real.name == "claude-code" else pytest.mark.slow, id=real.name) for real in REAL]
"""One of them whenever there is a cluster, all with ``slow``."""


@pytest.mark.parametrize("real", EACH)
def test_it_finishes_a_starter_task_in_a_pod(
    real: Real, ready: Release, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = project(real, tmp_path, kept_cache(request))
    runs = Runs(ready)
    words = ("--backend", "kubernetes", "--pool", "inline", "--agent", str(file), "--tasks", TASK, "--samples", "1")
    done = runs.cli("submit", str(STARTER), *words, "--yes", "--detach", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = done.stdout.split()[-1]
    runs.follow(run)
    left = runs.check(run)
    assert set(left.results.values()) == {("completed", "passed")}, report(runs, run)
    [launches] = left.outcomes.values()
    assert len(launches) == 1, [(each.cause, each.error) for each in launches]
    [outcome] = launches
    assert outcome.final is not None
    assert outcome.final.message.strip() == DONE
    assert outcome.steps == 3
    assert outcome.tool_calls == (2 if real.name in {"claude-code", "codex"} else 3)
    assert outcome.usage.total > 1000
    shown = json.loads(runs.cli("show", run, TASK, "--json").stdout)
    assert [launch["class"] for launch in shown["launches"]] == ["result"]


@pytest.mark.slow
def test_an_endpoint_is_asked_from_a_pod_through_the_gateway(ready: Release, tmp_path: Path) -> None:
    # The release's own canary: a listener that gateways reach and no pod may, which closes every connection.
    file = tmp_path / "remote.yaml"
    file.write_text(f"type: http\nurl: http://canary-a.{ready.system}.svc:9000/run\n")
    runs = Runs(ready)
    words = ("--backend", "kubernetes", "--pool", "inline", "--agent", str(file), "--tasks", TASK, "--samples", "1")
    done = runs.cli("submit", str(STARTER), *words, "--yes", "--detach", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = done.stdout.split()[-1]
    runs.follow(run)
    left = runs.check(run)
    assert set(left.results.values()) == {("unhandled_exception", "failed")}
    said = runs.cli("show", run, TASK).stdout
    assert "gave no answer: " in said
    assert "Tunnel connection failed" not in said
    assert any(word in said for word in ("RemoteDisconnected", "ConnectionResetError"))
