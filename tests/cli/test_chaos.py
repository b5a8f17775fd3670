"""Kill any process of a run at any moment: after resuming, every trial has exactly one result and the verdict it always has."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from cli_world import DEMO, clean_environment

WORDS = ("--samples", "2", "--tasks", "config-v2", "--tasks", "board-figure", "--run-id", "r1", "-n", "2")
TRIALS = 12  # 2 tasks x 3 agents x 2 samples
EXPECTED = {
    **dict.fromkeys(("config-v2@oracle", "config-v2@careful", "config-v2@sloppy"), "passed"),
    **dict.fromkeys(("board-figure@oracle", "board-figure@careful"), "passed"),
    "board-figure@sloppy": "failed",
}
VICTIMS = {
    "driver": None,
    "gateway": b"serve\0gateway",
    "grader": b"grader_service\0serve",
    "keeper": b"keeper",
}


def start(folder: Path, *words: str | Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "orchestrator", *map(str, words)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=clean_environment(), stdout=log, stderr=log)


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += [int(child), *children(int(child))]
    return found


def kill_one(driver: int, victim: str) -> bool:
    mark = VICTIMS[victim]
    for pid in [driver] if mark is None else children(driver):
        with contextlib.suppress(OSError):
            if mark is None or mark in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                return True
    return False


def read_all(folder: Path, kind: str) -> list[dict]:
    return [json.loads(path.read_bytes()) for path in (folder / f".orchestrate/store/{kind}").rglob("*.json")]


def run_with_kills(folder: Path, seed: int, most: int) -> Counter[str]:
    """Run to the end with a kill every few moments for a while. Returns what was killed."""
    dice, killed = random.Random(seed), Counter()
    process = start(folder, "submit", DEMO, *WORDS)
    deadline = time.monotonic() + 240
    while (process.poll() or not has_all(folder)) and time.monotonic() < deadline:
        if process.poll() is not None:
            started = (folder / ".orchestrate/store/runs/r1/manifest.json").exists()
            process.wait()
            process = start(folder, "resume", "r1") if started else start(folder, "submit", DEMO, *WORDS)
        time.sleep(dice.uniform(0.2, 3))
        if sum(killed.values()) < most:
            victim = dice.choice(list(VICTIMS))
            killed[victim] += process.poll() is None and kill_one(process.pid, victim)
    process.wait(timeout=120)
    return killed


def has_all(folder: Path) -> bool:
    return len(read_all(folder, "grades/r1")) >= TRIALS


def check(folder: Path, killed: Counter[str]) -> None:
    told = f"{dict(killed)}\n{(folder / 'log').read_text()[-4000:]}"
    results = [outcome for outcome in read_all(folder, "outcomes/r1") if outcome["outcome_class"] == "result"]
    assert Counter(Counter(outcome["trial"] for outcome in results).values()) == {1: TRIALS}, told
    verdicts = {verdict["trial"]: verdict["result"] for verdict in read_all(folder, "grades/r1") if "result" in verdict}
    assert {trial: EXPECTED[trial.rsplit(":", 1)[0]] for trial in verdicts} == verdicts, told
    assert len(verdicts) == TRIALS, told


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 21))
def test_kills_lose_and_double_nothing_at_many_moments(tmp_path: Path, seed: int) -> None:
    check(tmp_path, run_with_kills(tmp_path, seed, most=5))
