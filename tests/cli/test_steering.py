"""Steer a run from another process than the one that drives it, then repeat a part of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_world import STARTER, clean_environment


def start(folder: Path, *words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *map(str, words)],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def submit_slow(folder: Path, suite: Path, run: str) -> subprocess.Popen[str]:
    """Start a run of two trials, one that fails and one that takes a minute, and wait until the first one is graded."""
    agent = folder / "slow.yaml"
    agent.write_text('type: command\ncommand: [sleep, "300.5"]\n')
    words = ("--agent", "nop", "--agent", agent, "--samples", "1", "-n", "2", "--run-id", run)
    process = start(folder, "submit", suite, *words)
    deadline = time.monotonic() + 100
    while not list((folder / f".orchestrate/store/grades/{run}").rglob("*.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_run_is_watched_and_stopped_elsewhere_and_repeated_from_the_store(orchestrate, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    shutil.copytree(STARTER / "config-v2", suite / "config-v2")
    shutil.copy(STARTER / "suite.yaml", suite)
    running = submit_slow(tmp_path, suite, "r1")
    watching = start(tmp_path, "watch", "r1", "--interval", "0.2")
    stopped = orchestrate("stop", "r1", timeout=100)
    _, said = running.communicate(timeout=100)
    assert (stopped.returncode, running.returncode) == (0, 130), stopped.stderr + said
    asked, how, left = stopped.stdout.splitlines()
    assert asked.startswith(f"process {running.pid} on ")
    assert asked.endswith("was asked to stop")
    assert " and was stopped by " in how
    assert left.startswith("1 trial is left; go on with: ")
    assert left.endswith("resume r1")
    assert "stopping, asked by " in said
    report, seen = watching.communicate(timeout=100)
    assert watching.returncode == 130, seen
    assert report.startswith("run r1 ")
    assert "stopped by " in seen
    assert orchestrate("stop", "r1").stdout.startswith("nobody drives run r1: ")

    shutil.rmtree(suite)
    again = orchestrate("rerun", "r1", "--failed", "--run-id", "r2", "--json", timeout=100)
    assert again.returncode == 0, again.stderr
    repeated = json.loads(again.stdout)
    assert repeated["manifest"]["rerun_of"] == "r1"
    (agent,) = repeated["agents"]
    assert (agent["agent"], agent["counts"]["planned"], agent["counts"]["failed"]) == ("nop", 1, 1)
