"""What an agent takes of the disk is found wherever it hides it, or there is too much to look at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.sandbox.pod import usage
from orchestrator.sandbox.pod.usage import AREAS, DiskWatch, Walk, agent_limits

DISK = 4 << 20


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in (*(f"areas/{area}" for area in AREAS), "log"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(usage, "_AT_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(usage, "_LONG_REST", 0)
    return SimpleNamespace(areas=str(tmp_path / "areas"), log=str(tmp_path / "log"))


def nested(folder: str, name: str, levels: int) -> int:
    """Make folders in each other, step by step as an agent would, and return the last one, open."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    return here


@pytest.fixture
def deep(places: Any) -> Iterator[int]:
    """A folder whose path is longer than Linux opens in one call."""
    folder = nested(f"{places.areas}/home", "d" * 200, 45)
    yield folder
    os.close(folder)


def fill(folder: int) -> None:
    file = os.open("big", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
    try:
        os.write(file, b"x" * (2 * DISK))
        os.fsync(file)
    finally:
        os.close(file)


def finds(watch: DiskWatch) -> bool:
    return any(watch.is_over() for _ in range(100))


def test_a_file_far_below_counts(places: Any, deep: int) -> None:
    watch = DiskWatch(agent_limits(places, DISK))
    assert not finds(watch)
    fill(deep)
    assert finds(watch)
    walk = Walk([f"{places.areas}/home"])
    assert walk.go_on(60)
    assert walk.whole
    assert walk.taken[f"{places.areas}/home"] >= 2 * DISK


def test_what_lies_too_deep_is_too_much(places: Any, deep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_DEEPEST_BYTES", 9000)
    assert finds(DiskWatch(agent_limits(places, DISK)))


def test_what_there_is_no_memory_for_is_too_much(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = DiskWatch(agent_limits(places, DISK))
    assert not finds(watch)

    def fails(self: Walk, *_: object) -> Iterator[None]:
        yield
        raise MemoryError

    monkeypatch.setattr(Walk, "_inside", fails)
    assert finds(watch)


def test_files_without_content_are_looked_for_when_the_disk_has_more_of_them(
    places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOST_NAMES", 1 << 13)
    monkeypatch.setattr(usage, "_AT_LEAST_SECONDS", 1000.0)
    counted = [100]
    monkeypatch.setattr(DiskWatch, "_used_of_disk", lambda self: (0, counted[0]))
    watch = DiskWatch(agent_limits(places, DISK))
    assert not finds(watch)
    for number in range(9000):
        os.close(os.open(f"{places.areas}/tmp/{number}", os.O_CREAT))
    counted[0] += 9000
    assert finds(watch)
