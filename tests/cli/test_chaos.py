"""Kill any process of a run at any moment: after resuming, every trial has exactly one result and the verdict it always has."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fire import TRIALS, Battle, check_nothing_left, check_result, check_rows, descendants, records

sys.path.insert(0, str(Path(__file__).parent.parent / "storage"))

from s3_world import ADMIN, BUCKET, Server, environment, own_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VICTIMS = {
    "driver": None,
    "gateway": b"serve\0gateway",
    "grader": b"grader_service\0serve",
    "keeper": b"keeper",
}
RAY_VICTIMS = {"worker": b"ray::", "raylet": b"raylet/raylet", "head": b"gcs_server"}


def kill_one(driver: subprocess.Popen[bytes], victim: str) -> bool:
    """SIGKILL one process of that kind as soon as there is one; returns whether there was."""
    mark, deadline = {**VICTIMS, **RAY_VICTIMS}[victim], time.monotonic() + 15
    while driver.poll() is None and time.monotonic() < deadline:
        for pid in [driver.pid] if mark is None else descendants(driver.pid):
            with contextlib.suppress(OSError):
                if mark is None or mark in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    return True
        time.sleep(0.01)
    return False


def restart(server: Server, pause: float) -> None:
    server.kill()
    time.sleep(pause)
    server.start()


def fight(
    battle: Battle, seed: int, most: int, server: Server | None = None, kinds: tuple[str, ...] = tuple(VICTIMS)
) -> Counter[str]:
    """Drive a run to its end with a kill every few moments until there were ``most``. Returns what was killed."""
    dice, killed = random.Random(seed), Counter()
    kinds = (*kinds, "store") if server else kinds
    process, deadline = battle.submit(), time.monotonic() + 600
    while time.monotonic() < deadline:
        time.sleep(dice.uniform(0.1, 4))
        if process.poll() is None and sum(killed.values()) < most:
            victim = dice.choice(kinds)
            if victim == "store":
                again = threading.Thread(target=restart, args=(server, dice.uniform(0, 3)))
                again.start()
                again.join()
                killed[victim] += 1
            else:
                killed[victim] += kill_one(process, victim)
        if process.poll() is not None:
            done = len(list(records(battle.objects(), "grades"))) == TRIALS
            if done and process.returncode == 0:
                break
            process = battle.resume() if battle.has_run() else battle.submit()
    assert process.wait(120) == 0, battle.log
    return killed


@pytest.fixture
def battle(tmp_path: Path) -> Iterator[Battle]:
    here = Battle(tmp_path)
    yield here
    here.end()


@pytest.mark.parametrize("seed", range(1, 21))
def test_kills_lose_and_double_nothing_at_many_moments(battle: Battle, seed: int) -> None:
    killed = fight(battle, seed, most=6)
    check_result(battle.objects(), f"{dict(killed)}\n{battle.log}")
    check_rows(battle)
    check_nothing_left(battle)
    print(f"KILLED {sum(killed.values())} {dict(killed)}")


@pytest.mark.parametrize("seed", range(1, 6))
def test_kills_with_a_bucket_whose_server_is_killed_too(tmp_path: Path, seed: int) -> None:
    with own_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(ADMIN).items():
            patch.setenv(name, value)
        battle = Battle(tmp_path, f"s3://{BUCKET}/fire?endpoint={server.endpoint}")
        try:
            killed = fight(battle, seed, most=5, server=server)
            check_result(battle.objects(), f"{dict(killed)}\n{battle.log}")
            check_rows(battle)
            check_nothing_left(battle)
        finally:
            battle.end()
    print(f"KILLED {sum(killed.values())} {dict(killed)}")


@pytest.mark.parametrize("seed", range(1, 6))
def test_kills_of_a_run_on_ray(battle: Battle, seed: int) -> None:
    battle.more_words = ("--pool", "ray")
    killed = fight(battle, seed, most=4, kinds=(*VICTIMS, *RAY_VICTIMS))
    check_result(battle.objects(), f"{dict(killed)}\n{battle.log}")
    check_rows(battle)
    check_nothing_left(battle)
    print(f"KILLED {sum(killed.values())} {dict(killed)}")
