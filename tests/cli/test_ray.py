"""``--pool ray`` on a real Ray: the same report as inline; whatever is killed, the same trials, and nothing of Ray stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from cli_world import STARTER, clean_environment
from fire import descendants

TASKS = ("--tasks", "config-v2", "--tasks", "csv-quoted-fields")
UNLIKE = {"run", "run_id", "created_at", "submitted", "pool", "manifest"}
"""Of a report: ids and times of the run."""


def comparable(value: object) -> object:
    """Return a report without ids, times and durations."""
    if isinstance(value, dict):
        timed = {"latency_s", "waiting_s", "setup_s", "freeze_s"}
        return {name: comparable(each) for name, each in value.items() if name not in UNLIKE | timed}
    return [comparable(each) for each in value] if isinstance(value, list) else value


def read_all(folder: Path, kind: str) -> list[dict]:
    """Return all records of a kind in the run's store."""
    return [json.loads(path.read_bytes()) for path in (folder / f".orchestrate/store/{kind}").rglob("*.json")]


def outcomes_of(folder: Path, run: str) -> set[str]:
    """Return the trials of a run that have an outcome."""
    return {outcome["trial"] for outcome in read_all(folder, f"outcomes/{run}")}


@pytest.fixture(autouse=True)
def temporary(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folders of running sandboxes and of Ray are made, for the tests of this file alone."""
    monkeypatch.setenv("TMPDIR", str(short_folder))
    return short_folder


def wait_for(look, seconds: float = 60, told=lambda: ""):
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, told()
        time.sleep(0.1)
    return found


def wait_for_an_outcome(folder: Path, driver: subprocess.Popen[bytes]) -> None:
    def seen() -> bool:
        assert driver.poll() is None, (folder / "log").read_text()
        return bool(read_all(folder, "outcomes/r1"))

    wait_for(seen, 120, (folder / "log").read_text)


def actors(driver: int, name: bytes) -> list[int]:
    """Return the actor processes of a driver."""
    found = []
    for pid in descendants(driver):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::" + name):
                found.append(pid)
    return found


def named(driver: int, name: str) -> list[int]:
    found = []
    for pid in descendants(driver):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(pid)
    return found


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ray_and_inline_give_the_same_report(orchestrate, temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text("supervisors = 1\nconcurrency = 2\n")  # each is a process that loads Ray
    words = ("submit", STARTER, "--agent", "oracle", "--agent", "nop", "--samples", "1", *TASKS[:2], "--json")
    inline = orchestrate(*words, "--pool", "inline")
    ray = orchestrate(*words, "--pool", "ray", timeout=250)
    assert (inline.returncode, ray.returncode) == (0, 0), ray.stderr
    assert "starting Ray" in ray.stderr
    assert not [*temporary.glob("orch-*")]
    assert comparable(json.loads(ray.stdout)) == comparable(json.loads(inline.stdout))
    # Rows were written ahead by the driver and by supervisors, and are those of the records.
    for run in (inline, ray):
        name = json.loads(run.stdout)["run"]
        stages = read_all(tmp_path, f"stages/{name}")
        assert {trial["trial"] for stage in stages for trial in stage["trials"]} == outcomes_of(tmp_path, name)
        assert "nothing to add" in orchestrate("rebuild", name).stdout


def test_an_address_where_no_ray_is_is_said_at_once(orchestrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    found = orchestrate("submit", STARTER, "--agent", "oracle", "--samples", "1", *TASKS[:2], "--pool", "ray")
    assert found.returncode == 5
    assert "no Ray at RAY_ADDRESS 127.0.0.1:1: " in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", ["supervisor", "coordinator", "all supervisors"])
def test_killed_actors_come_back_and_every_trial_counts_once(tmp_path: Path, victim: str) -> None:
    driver = submitted(tmp_path, "--samples", "4")
    wait_for_an_outcome(tmp_path, driver)
    wait_for(lambda: actors(driver.pid, b"Supervisor"))
    hit = actors(driver.pid, b"Coordinator" if victim == "coordinator" else b"Supervisor")
    for pid in hit if victim == "all supervisors" else hit[:1]:
        os.kill(pid, signal.SIGKILL)
    assert driver.wait(300) == 0, (tmp_path / "log").read_text()
    all_there(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", ["gcs_server", "raylet", "driver"])
def test_without_its_cluster_or_driver_nothing_runs_on_and_resume_ends_the_run(
    tmp_path: Path, temporary: Path, victim: str
) -> None:
    driver = submitted(tmp_path, "--samples", "4")
    wait_for_an_outcome(tmp_path, driver)
    tree = descendants(driver.pid)
    os.kill(driver.pid if victim == "driver" else named(driver.pid, victim)[0], signal.SIGKILL)
    code = driver.wait(120)
    if victim != "driver":
        assert code == 5, (tmp_path / "log").read_text()
        assert f"Ray on this machine is gone: {victim} died" in (tmp_path / "log").read_text()
    wait_for(lambda: not [line for pid in tree if (line := alive(pid))], told=lambda: [*filter(None, map(alive, tree))])
    assert started(tmp_path, "resume", "r1", "--pool", "ray", "-n", "2").wait(300) == 0, (tmp_path / "log").read_text()
    all_there(tmp_path)
    assert not [*temporary.glob("orch-*")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_interrupt_keeps_what_runs_and_two_leave_at_once(tmp_path: Path, temporary: Path) -> None:
    for presses, said in ((1, "stopped by"), (2, "stopped at once")):
        folder = tmp_path / str(presses)
        folder.mkdir()
        driver = submitted(folder, "--samples", "8")
        wait_for_an_outcome(folder, driver)
        for _ in range(presses):
            os.killpg(driver.pid, signal.SIGINT)
            time.sleep(0.3)
        assert driver.wait(120) == 130, (folder / "log").read_text()
        assert said in (folder / "log").read_text()
        assert not [*temporary.glob("orch-*")]


def started(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, as a shell does."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *words],
            cwd=folder,
            env=clean_environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def submitted(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = ("submit", str(STARTER), "--agent", "oracle", *TASKS, "--run-id", "r1", "--pool", "ray", "-n", "2")
    return started(folder, *command, *words)


def alive(pid: int) -> str:
    """Return the command line of a living process; nothing for one that ended."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def all_there(folder: Path) -> None:
    outcomes = read_all(folder, "outcomes/r1")
    results = Counter(outcome["trial"] for outcome in outcomes if outcome["outcome_class"] == "result")
    assert set(results.values()) == {1}
    assert len(results) == 8
    verdicts = [verdict for verdict in read_all(folder, "grades/r1") if "result" in verdict]
    assert {verdict["result"] for verdict in verdicts} == {"passed"}
    assert len(verdicts) == 8
