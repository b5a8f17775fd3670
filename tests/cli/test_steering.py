"""Steer a run from another process than the one that drives it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_world import STARTER, clean_environment


def submit_slow(folder: Path, run: str, *words: str) -> subprocess.Popen[str]:
    """Start a run of one trial that takes a minute, and wait until the trial runs."""
    agent = folder / "slow.yaml"
    agent.write_text('type: command\ncommand: [sleep, "60.5"]\n')
    command = [sys.executable, "-m", "orchestrator", "submit", str(STARTER), "--agent", str(agent), "--samples", "1"]
    process = subprocess.Popen(
        [*command, "--tasks", "board-figure", "--run-id", run, *words],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 100
    while not list((folder / f".orchestrate/store/leases/{run}").rglob("claims/*.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


@pytest.mark.timeout(240)
def test_a_run_is_stopped_from_another_process(orchestrate, tmp_path: Path) -> None:
    running = submit_slow(tmp_path, "r1")
    command = [sys.executable, "-m", "orchestrator", "watch", "r1", "--interval", "0.2"]
    watching = subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    stopped = orchestrate("stop", "r1", timeout=100)
    _, said = running.communicate(timeout=100)
    assert (stopped.returncode, running.returncode) == (0, 130), stopped.stderr + said
    report, seen = watching.communicate(timeout=100)
    assert watching.returncode == 130, seen
    assert report.startswith("run r1 ")
    assert "stopped by " in seen
    asked, how, left = stopped.stdout.splitlines()
    assert asked.startswith(f"process {running.pid} on ")
    assert asked.endswith("was asked to stop")
    assert " and was stopped by " in how
    assert left.startswith("1 trial is left; go on with: ")
    assert left.endswith("resume r1")
    assert "stopping, asked by " in said

    again = orchestrate("stop", "r1", timeout=100)
    assert again.returncode == 0
    assert again.stdout.startswith("nobody drives run r1: ")


@pytest.mark.timeout(240)
def test_failed_trials_are_repeated_from_the_store_alone(orchestrate, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    shutil.copytree(STARTER / "config-v2", suite / "config-v2")
    shutil.copy(STARTER / "suite.yaml", suite)
    first = orchestrate(
        "submit", suite, "--agent", "nop", "--agent", "oracle", "--samples", "1", "--run-id", "r1", timeout=100
    )
    assert first.returncode == 0, first.stderr
    shutil.rmtree(suite)

    again = orchestrate("rerun", "r1", "--failed", "--run-id", "r2", "--json", timeout=100)
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert report["manifest"]["rerun_of"] == "r1"
    (agent,) = report["agents"]
    assert (agent["agent"], agent["counts"]["planned"], agent["counts"]["failed"]) == ("nop", 1, 1)
