"""Drivers on the cluster: one that is told to end lets go and the next one goes on; people stop and resume what a Job drives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cluster_runs import Runs, write_suite
from installed_world import Release, ask, until

from orchestrator.records import keys
from orchestrator.records.lease import Release as LetGo
from orchestrator.sandbox.kubernetes import names
from orchestrator.storage.open import open_store

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def drivers(release: Release, run: str) -> list[str]:
    """Return the pods of a run's drivers that have not ended."""
    found = release.pods(release.drivers, f"{names.RUN_LABEL}={names.run_hash(run)}")
    return [pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Running"]


def let_go(runs: Runs, run: str, epoch: int) -> LetGo:
    """Return why the driver of an epoch let go."""
    environment = Runs(runs.release, "reader").environment
    with pytest.MonkeyPatch.context() as patch:
        for name in environment:
            if name.startswith("AWS_"):
                patch.setenv(name, environment[name])
        store, key = open_store(environment["ORCHESTRATE_STORE"]), keys.release(run, epoch)
        return LetGo.from_bytes(asyncio.run(store.get(key)), key)


def test_a_driver_whose_pod_is_deleted_hands_its_pods_to_the_next(ready: Release, tmp_path: Path) -> None:
    runs = Runs(ready)
    run = runs.submit(write_suite(tmp_path, [45, 45]), ["oracle"])
    before = {pod["metadata"]["uid"] for pod in runs.busy(run, 2)}
    [driver] = drivers(ready, run)
    ask("DELETE", f"/api/v1/namespaces/{ready.drivers}/pods/{driver}")
    until(lambda: drivers(ready, run) not in ([], [driver]), "another driver runs", 120)
    assert {pod["metadata"]["uid"] for pod in runs.pods(run)} == before
    runs.follow(run, resumes=0)
    left = runs.check(run)
    assert [len(launches) for launches in left.outcomes.values()] == [1, 1]
    assert {launches[0].epoch for launches in left.outcomes.values()} == {2}
    assert let_go(runs, run, 1).reason == "yielded"


def test_a_run_is_stopped_from_elsewhere_and_goes_on_when_it_is_resumed(ready: Release, tmp_path: Path) -> None:
    runs = Runs(ready)
    run = runs.submit(write_suite(tmp_path, [75]), ["oracle"])  # long enough for a busy machine to ask meanwhile
    runs.busy(run)
    stopped = runs.cli("stop", run)
    assert stopped.returncode == 0, stopped.stderr
    watched = runs.cli("watch", run)
    assert watched.returncode == 130, watched.stderr
    resumed = runs.cli("resume", run)
    assert resumed.returncode == 0, resumed.stderr
    left = runs.check(run)
    assert [each.outcome_class for launches in left.outcomes.values() for each in launches] == ["cancelled", "result"]
    log = runs.cli("logs", run, "--driver")
    assert f"run {run}: 1 to run, 0 to grade" in log.stdout
