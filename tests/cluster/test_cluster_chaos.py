"""Thirty trials through each thing that happens to a cluster: nothing is lost, nothing is done twice.

Whatever is broken here, the node's own processes and its API included, comes back by itself.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cluster_runs import Runs, daemon, evict, kill, steadily, write_suite
from installed_world import Release, ask, get, until

from orchestrator.sandbox.kubernetes import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

Blow = Callable[[Runs, str], None]


def _pods(release: Release) -> str:
    return f"/api/v1/namespaces/{release.trials}/pods"


def kill_driver(runs: Runs, run: str) -> None:
    until(lambda: kill(runs.driver_processes(run)), "a driver is there to kill", 120)


def kill_worker(runs: Runs, run: str) -> None:
    until(lambda: kill(runs.driver_processes(run, worker=True)), "a Ray actor is there to kill", 60)


def kill_daemon(name: str) -> Blow:
    def blow(runs: Runs, run: str) -> None:
        assert kill(daemon(name))

    return blow


def _some(runs: Runs, run: str) -> list[dict[str, Any]]:
    """Return two pods of the run, as chance has it."""
    until(lambda: len(runs.pods(run)) >= 2, "there are pods")
    return random.Random(run).sample(runs.pods(run)[:10], 2)


def delete_random_pods(runs: Runs, run: str) -> None:
    for pod in _some(runs, run):
        assert ask("DELETE", f"{_pods(runs.release)}/{pod['metadata']['name']}").status in (200, 202, 404)


def evict_random_pods(runs: Runs, run: str) -> None:
    for pod in _some(runs, run):
        assert evict(runs.release.trials, pod["metadata"]["name"]) in (200, 201, 404, 409)


def delete_services(*apps: str) -> Blow:
    def blow(runs: Runs, run: str) -> None:
        system = runs.release.system
        for app in apps:
            for pod in runs.release.pods(system, f"app={app}"):
                assert ask("DELETE", f"/api/v1/namespaces/{system}/pods/{pod['metadata']['name']}").status == 200

    return blow


def cordon_and_drain(runs: Runs, run: str) -> None:
    """As ``kubectl drain`` does, but for pods of others: this node is the only one there is."""
    release, node = runs.release, get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    _cordon(node, on=True)
    try:
        for namespace in (release.trials, release.drivers, release.grader, release.system):
            for pod in release.pods(namespace):
                if pod["status"]["phase"] in ("Pending", "Running") and pod["metadata"]["labels"].get("app") != "store":
                    evict(namespace, pod["metadata"]["name"])
        time.sleep(10)  # a while in which nothing can start
    finally:
        _cordon(node, on=False)


def _cordon(node: str, *, on: bool) -> None:
    kind = "application/strategic-merge-patch+json"
    assert ask("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": on}}, kind=kind).status == 200


BLOWS: dict[str, tuple[Blow, int]] = {
    "driver": (kill_driver, 2),
    "ray_worker": (kill_worker, 2),
    "api_server": (kill_daemon("kube-apiserver"), 3),
    "kubelet": (kill_daemon("kubelet"), 3),
    "containerd": (kill_daemon("containerd"), 2),
    "random_pods": (delete_random_pods, 4),
    "gateway_and_relay": (delete_services("gateway", "relay"), 1),
    "relay": (delete_services("relay"), 2),
    "grader": (delete_services("grader"), 1),
    "eviction": (evict_random_pods, 4),
    "drain": (cordon_and_drain, 1),
}
"""What is done, and how often in a run."""


def _answers() -> bool:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        return ask("GET", "/readyz").status == 200
    return False


def survive(release: Release, folder: Path, blow: Blow, times: int, *, trials: int = 30, pool: str = "ray") -> None:
    """Run trials whose agents take some seconds, strike while they run, and look at what is left."""
    runs = Runs(release)
    suite = write_suite(folder, (2, 4, 8))
    run = runs.submit(suite, ["oracle"], "--samples", str(trials // 3), "-n", "10", "--pool", pool)
    until(lambda: len(runs.pods(run)) >= 4, "some pods are made", 420)
    steadily(lambda: blow(runs, run), times, 8)
    until(_answers, "the API server answers")
    runs.follow(run)
    left = runs.check(run)
    print(f"\n{blow.__name__}: {len(left.outcomes)} trials, lost launches {dict(left.causes)}")
    assert {result for _, result in left.results.values()} == {"passed"}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOWS)
def test_thirty_trials_survive(ready: Release, tmp_path: Path, name: str) -> None:
    blow, times = BLOWS[name]
    survive(ready, tmp_path, blow, times)
    ready.await_ready()


def test_some_trials_survive_a_bad_minute(ready: Release, tmp_path: Path) -> None:
    def blow(runs: Runs, run: str) -> None:
        kill_driver(runs, run)
        delete_random_pods(runs, run)
        evict_random_pods(runs, run)
        kill_daemon("kube-apiserver")(runs, run)

    survive(ready, tmp_path, blow, 1, trials=12, pool="inline")


@pytest.mark.parametrize("absent", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_agents_that_end_while_nobody_drives_them_are_adopted(ready: Release, tmp_path: Path, absent: int) -> None:
    runs = Runs(ready)
    run = runs.submit(
        write_suite(tmp_path, (25, 30, 35)),
        ["oracle"],
        "--samples",
        "10" if absent > 60 else "2",
        *("-n", "30", "--pool", "inline"),
    )
    runs.busy(run, 2)
    jobs = f"/apis/batch/v1/namespaces/{ready.drivers}/jobs"
    job = get(f"{jobs}?labelSelector={names.RUN_LABEL}={names.run_hash(run)}")["items"][0]["metadata"]["name"]
    assert ask("DELETE", f"{jobs}/{job}", {"propagationPolicy": "Orphan"}).status == 200
    until(lambda: ask("GET", f"{jobs}/{job}").status == 404, "nothing starts another driver", 30)
    before = {pod["metadata"]["name"] for pod in runs.pods(run)}
    until(lambda: kill(runs.driver_processes(run)), "a driver is there to kill", 120)
    time.sleep(absent)  # agents end, and nobody is there who would see it
    ended = {pod["metadata"]["name"] for pod in runs.pods(run) if pod["status"]["phase"] in ("Succeeded", "Failed")}
    assert ended, "no pod has delivered by itself"
    assert runs.cli("resume", run, "--detach").returncode == 0
    runs.follow(run)
    left = runs.check(run)
    assert not left.causes, "an agent that had ended was lost"
    assert ended <= before
