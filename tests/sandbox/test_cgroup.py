"""Control groups of version 2, on folders made like them: this cannot show that a kernel obeys, only what is written where."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from orchestrator.sandbox.keeper import cgroup


@pytest.fixture
def unified(tmp_path: Path) -> tuple[str, str, Path]:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    own = root / "user.slice"
    own.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/user.slice\n")
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    (own / "cgroup.subtree_control").write_text("")
    return str(proc), str(root), own


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files that a kernel makes in a new group."""
    make = os.mkdir

    def mkdir(path: str, *mode: int) -> None:
        make(path, *mode)
        for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs", "cgroup.kill"):
            (Path(path) / name).touch()

    monkeypatch.setattr(os, "mkdir", mkdir)


def test_limits_of_version_2(unified, kernel):
    proc, root, own = unified
    group = cgroup.make("x", {"memory": 2**20, "pids": 66, "cpu": 1.5}, proc, root)
    (folder,) = own.glob("orchestrate.*")
    assert group.controllers == {"memory", "pids", "cpu"}
    assert (folder / "memory.max").read_text() == str(2**20)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "pids.max").read_text() == "66"
    assert (folder / "cpu.max").read_text() == "150000 100000"
    group.join()
    assert (folder / "cgroup.procs").read_text() == "0"


def test_counters_of_version_2(unified, kernel):
    proc, root, own = unified
    group = cgroup.make("x", {"memory": 1, "pids": 1, "cpu": 1}, proc, root)
    (folder,) = own.glob("orchestrate.*")
    assert (group.oom_kills(), group.refused_forks()) == (0, 0)
    (folder / "memory.events").write_text("low 0\noom 4\noom_kill 3\n")
    (folder / "pids.events").write_text("max 7\n")
    assert (group.oom_kills(), group.refused_forks()) == (3, 7)


def test_a_group_that_may_not_be_made_holds_nothing(unified):
    proc, root, own = unified
    (own / "cgroup.controllers").write_text("pids\n")
    (own / "cgroup.subtree_control").unlink()
    assert cgroup.make("x", {"memory": 1, "pids": 1, "cpu": 1}, proc, root).controllers == frozenset()
    assert not list(own.glob("orchestrate.*"))


def test_no_control_groups_at_all(tmp_path):
    assert cgroup.make("x", {"memory": 1, "pids": 1, "cpu": 1}, str(tmp_path), str(tmp_path)).controllers == frozenset()


def test_only_old_groups_of_dead_keepers_are_stale(tmp_path):
    old = time.time() - 3600
    start = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
    live, dead, young, other = (
        tmp_path / name
        for name in (
            f"orchestrate.{os.getpid()}.{start}.a",
            f"orchestrate.{os.getpid()}.1.b",
            f"orchestrate.{os.getpid()}.1.c",
            "system.slice",
        )
    )
    for folder in (live, dead, young, other):
        folder.mkdir()
    for folder in (live, dead, other):
        os.utime(folder, (old, old))
    cgroup.remove_stale(str(tmp_path))
    assert (live.exists(), dead.exists(), young.exists(), other.exists()) == (True, False, True, True)
