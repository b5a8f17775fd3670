"""A gateway that is killed goes on from its volume: trials at rest notice nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_runs import Runs, kill, processes, report, state, write_suite
from installed_world import Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TRIALS = 4


def _gateways() -> list[int]:
    """Return the processes of gateways in pods on this node: those of one machine's runs have no file of their own."""
    return [pid for pid, words in processes() if {"serve", "gateway", "--config"} <= set(words)]


def test_trials_at_rest_outlive_a_killed_gateway(ready: Release, tmp_path: Path) -> None:
    runs = Runs(ready)
    run = runs.submit(write_suite(tmp_path, (25, 30)), ["oracle"], "--samples", "2", "-n", "4", "--pool", "inline")

    def at_work() -> bool:
        return sum("running" in state(pod, "agent") for pod in runs.pods(run)) == TRIALS

    until(at_work, "all agents are at work", 420)
    before = _gateways()
    if not before:
        pytest.skip("the gateways do not run on this machine")
    assert kill(before)
    until(lambda: set(_gateways()) - set(before), "the gateway is started again", 60)
    runs.follow(run)
    left = runs.check(run)
    assert not left.causes, report(runs, run)
    assert {result for _, result in left.results.values()} == {"passed"}
    ready.await_ready()
