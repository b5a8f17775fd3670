"""Stores, disks and clocks that fail while a run is driven: it rides that out, or pauses, says why, and goes on. Never a score."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_world import DEMO
from fire import Battle, await_that, check_nothing_left, check_result, check_rows, records

sys.path.insert(0, str(Path(__file__).parent.parent / "storage"))

from s3_proxy import Answer, Late, Lose, Request, Wire
from s3_world import BUCKET, Seaweed, s3_url, seaweed, wire

__all__ = ["s3_url", "seaweed", "wire"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")


@pytest.fixture
def battles() -> Iterator[Callable[..., Battle]]:
    made: list[Battle] = []

    def make(folder: Path, url: str = "", **variables: str) -> Battle:
        made.append(Battle(folder, url, **variables))
        return made[-1]

    yield make
    for battle in made:
        battle.end()


def check_all(battle: Battle) -> None:
    check_result(battle.objects(), battle.log)
    check_rows(battle)
    check_nothing_left(battle)


# --- a service that fails ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_bucket(tmp_path: Path, seaweed: Seaweed, wire: Wire, battles: Callable[..., Battle]) -> tuple[Battle, Wire]:
    return battles(tmp_path, f"s3://{BUCKET}/{tmp_path.name}?endpoint={wire.endpoint}"), wire


def begins(battle: Battle, wire: Wire, after: int) -> subprocess.Popen[bytes]:
    """Start the run and return after so many requests of it."""
    process = battle.submit()
    assert await_that(lambda: len(wire.seen) > after or process.poll() is not None, 120)
    return process


def rides_out(battle: Battle, process: subprocess.Popen[bytes]) -> None:
    assert process.wait(400) == 0, battle.log
    assert {outcome["launch"] for outcome in records(battle.objects(), "outcomes")} == {1}, battle.log
    check_all(battle)


@pytest.mark.parametrize("after", [40, 90, 150, 220])
@pytest.mark.parametrize(
    "fault", [Answer(503, "SlowDown"), Answer(500, "InternalError", seconds=5)], ids=["busy", "hangs"]
)
def test_a_service_that_is_away_for_a_while_is_ridden_out(
    in_bucket: tuple[Battle, Wire], after: int, fault: Answer
) -> None:
    battle, wire = in_bucket
    process = begins(battle, wire, after)
    wire.break_all(fault)
    time.sleep(15)
    wire.rule = lambda _: None
    rides_out(battle, process)


def test_a_service_that_is_away_for_a_whole_minute_is_ridden_out_and_said(in_bucket: tuple[Battle, Wire]) -> None:
    battle, wire = in_bucket
    process = begins(battle, wire, 100)
    wire.break_all(Answer(503, "SlowDown"))
    time.sleep(60)
    wire.rule = lambda _: None
    rides_out(battle, process)
    assert battle.log.count("the store has not answered for 10 s; what runs goes on") >= 1


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_are_lost_double_nothing(in_bucket: tuple[Battle, Wire], seed: int) -> None:
    battle, wire = in_bucket
    dice = random.Random(seed)

    def rule(request: Request) -> Lose | None:
        return Lose() if request.method in {"PUT", "POST"} and dice.random() < 0.25 else None

    wire.rule = rule
    rides_out(battle, battle.submit())


def test_a_slow_service_only_takes_longer(in_bucket: tuple[Battle, Wire]) -> None:
    battle, wire = in_bucket
    wire.break_all(Late(2))
    process = battle.start(
        "submit", DEMO, "--samples", "1",
        "--tasks", "config-v2", "--run-id", battle.run_id, "-n", "3",
    )  # fmt: skip
    assert process.wait(500) == 0, battle.log
    wire.rule = lambda _: None
    found = battle.objects()
    assert sorted((each["trial"], each["launch"]) for each in records(found, "outcomes")) == [
        (f"config-v2@{agent}:1", 1) for agent in ("careful", "oracle", "sloppy")
    ]
    assert {each["result"] for each in records(found, "grades")} == {"passed"}


# --- disks that are full or read-only ----------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    folder = tmp_path / "disk"
    folder.mkdir()

    def make(kilobytes: int) -> Path:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=0700", "tmpfs", str(folder)], check=True)
        return folder

    yield make
    subprocess.run(["umount", "-l", str(folder)], check=False, stderr=subprocess.DEVNULL)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


@needs_mounts
@pytest.mark.parametrize("kilobytes", [330, 430, 500, 580, 620, 660, 700, 740])
def test_a_store_that_fills_up_pauses_the_run(
    tmp_path: Path, disk: Callable[[int], Path], battles: Callable[..., Battle], kilobytes: int
) -> None:
    folder = disk(kilobytes)
    battle = battles(tmp_path, ORCHESTRATE_STORE=str(folder / "store"))
    battle.store = folder / "store"
    assert battle.submit().wait(200) == 5, battle.log
    assert "No space left on device; the disk is full: free space there or choose another store" in battle.log
    assert f"resume {battle.run_id}" in battle.log or not battle.has_run()
    remount(folder, "size=50m")
    process = battle.resume() if battle.has_run() else battle.submit()
    assert process.wait(200) == 0, battle.log
    check_all(battle)


@needs_mounts
@pytest.mark.parametrize("kilobytes", [40, 100, 160])
def test_a_cache_that_fills_up_pauses_the_run(
    tmp_path: Path, disk: Callable[[int], Path], battles: Callable[..., Battle], kilobytes: int
) -> None:
    folder = disk(kilobytes)
    battle = battles(tmp_path, ORCHESTRATE_CACHE=str(folder / "cache"))
    code = battle.submit().wait(200)
    assert code == 0 or (code == 5 and "free space or name another cache folder" in battle.log), battle.log
    remount(folder, "size=50m")
    assert battle.resume().wait(200) == 0, battle.log
    check_all(battle)


@needs_mounts
@pytest.mark.parametrize("kilobytes", [200, 320, 360, 400, 440, 480, 520])
def test_a_scratch_folder_that_fills_up_scores_nothing(
    tmp_path: Path, disk: Callable[[int], Path], battles: Callable[..., Battle], kilobytes: int
) -> None:
    battle = battles(tmp_path)
    folder = disk(kilobytes)
    battle.scratch.symlink_to(folder)
    try:
        code = battle.submit().wait(200)
        assert code == 0 or (code == 5 and "No space left on device" in battle.log), battle.log
        remount(folder, "size=50m")
        if code:
            process = battle.resume() if battle.has_run() else battle.submit()
            assert process.wait(200) == 0, battle.log
        check_result(battle.objects(), battle.log)
    finally:
        battle.scratch.unlink()


@needs_mounts
def test_logs_that_fill_up_change_nothing(
    tmp_path: Path, disk: Callable[[int], Path], battles: Callable[..., Battle]
) -> None:
    folder = disk(64)
    with (folder / "full").open("wb") as file:
        file.write(bytes(60 << 10))
    battle = battles(tmp_path, ORCHESTRATE_LOGS=str(folder / "logs"))
    assert battle.submit().wait(200) == 0, battle.log
    check_all(battle)


@needs_mounts
@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_becomes_read_only_pauses_the_run(
    tmp_path: Path, disk: Callable[[int], Path], battles: Callable[..., Battle], seed: int
) -> None:
    folder = disk(50_000)
    battle = battles(tmp_path, ORCHESTRATE_STORE=str(folder / "store"))
    battle.store = folder / "store"
    process = battle.submit()
    assert await_that(battle.has_run, 120)
    time.sleep(random.Random(seed).uniform(0, 3))  # the moment is what is varied
    await_that(
        lambda: (
            subprocess.run(
                ["mount", "-o", "remount,ro", str(folder)], check=False, stderr=subprocess.DEVNULL
            ).returncode
            == 0
        )
    )
    code = process.wait(200)
    assert code == 0 or (code == 5 and "the file system is read-only: mount it writable" in battle.log), battle.log
    remount(folder, "rw")
    assert battle.resume().wait(200) == 0, battle.log
    check_all(battle)


# --- what lies below -----------------------------------------------------------------------------------------------------------------

_INTERPOSED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int fsync(int fd) {
    const char *flag = getenv("FIRE_NO_FSYNC");
    if (flag && access(flag, F_OK) == 0) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    const char *skew = getenv("FIRE_SKEW");
    if (skew && clock == CLOCK_REALTIME) now->tv_sec += atol(skew);
    return done;
}
"""


@pytest.fixture
def below(tmp_path: Path) -> dict[str, str]:
    """The variables by which a process gets disks and clocks that lie."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "below.c").write_text(_INTERPOSED)
    library = tmp_path / "below.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "below.c", "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("seed", range(3))
def test_a_disk_that_cannot_flush_pauses_the_run(
    tmp_path: Path, battles: Callable[..., Battle], below: dict[str, str], seed: int
) -> None:
    flag = tmp_path / "flag"
    battle = battles(tmp_path, FIRE_NO_FSYNC=str(flag), **below)
    process = battle.submit()
    assert await_that(battle.has_run, 120)
    time.sleep(random.Random(seed).uniform(0, 2.5))  # the moment is what is varied
    flag.touch()
    code = process.wait(200)
    assert code == 0 or (code == 5 and "Input/output error" in battle.log), battle.log
    flag.unlink()
    assert battle.resume().wait(200) == 0, battle.log
    check_all(battle)


@pytest.mark.parametrize("skews", [("600", "-600"), ("-600", "600")])
def test_clocks_that_differ_by_minutes_change_nothing(
    tmp_path: Path, battles: Callable[..., Battle], below: dict[str, str], skews: tuple[str, str]
) -> None:
    battle = battles(tmp_path, FIRE_SKEW=skews[0], **below)
    process = battle.submit()
    assert await_that(lambda: list(records(battle.objects(), "outcomes")) or process.poll() is not None, 120)
    process.kill()
    process.wait()
    battle.environment["FIRE_SKEW"] = skews[1]
    assert battle.resume().wait(200) == 0, battle.log
    check_all(battle)
