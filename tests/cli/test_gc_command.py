"""``orchestrate gc`` as a person types it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import clean_environment

sys.path.insert(0, str(Path(__file__).parent.parent / "dataset"))

from dataset_world import lay_run

from orchestrator.storage.file import FileStore

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """Two runs of two days ago, where ``orchestrate`` looks for them."""
    store = FileStore(tmp_path / ".orchestrate/store")
    for run in ("r1", "r2"):
        asyncio.run(lay_run(store, run, tasks=1, samples=1))
    for path in store.root.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - 2 * 86_400,) * 2)
    return store


def keys_of(store: FileStore) -> list[str]:
    return asyncio.run(store.list(""))


def test_a_run_goes_and_says_so_afterwards(in_process: Command, store: FileStore) -> None:
    before = keys_of(store)
    shown = in_process("gc", "--run", "r1", "--dry-run", "--json")
    plan = json.loads(shown.stdout)
    assert (plan["schema_version"], plan["dry_run"], plan["total"]["runs"]) == (1, True, 1)
    assert keys_of(store) == before
    done = in_process("gc", "--run", "r1", "--yes", "--json")
    assert {**json.loads(done.stdout), "dry_run": True} == plan
    for words in (("report", "r1"), ("rebuild", "r1"), ("resume", "r1")):
        told = in_process(*words)
        assert told.returncode == 2
        assert "run r1 was removed by gc on 20" in told.stderr
        assert "named by a person" in told.stderr
    assert in_process("report", "last", "--json").returncode == 0
    assert [key for key in keys_of(store) if "/r1/" in key and not key.startswith("removed/")] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "say what may go: --older-than 30d, --keep N or --run RUN"),
        (("--older-than", "30"), "write a number and s, m (minutes), h, d or w"),
        (("--keep", "1", "--run", "r1"), "--run names the runs that go"),
        (("--run", "r9"), "no run 'r9'"),
        (("--keep", "0"), "add --yes, or see them with --dry-run"),
    ],
)
def test_mistakes_remove_nothing(in_process: Command, store: FileStore, words: tuple[str, ...], told: str) -> None:
    before = keys_of(store)
    done = in_process("gc", *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert keys_of(store) == before


def test_a_no_removes_nothing(in_process: Command, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    before = keys_of(store)
    for answer in ("n\n", "\n", ""):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        done = in_process("gc", "--keep", "1")
        assert (done.returncode, done.stdout) == (130, "")
        assert keys_of(store) == before


def test_on_a_terminal_it_shows_what_goes_and_asks(tmp_path: Path, store: FileStore) -> None:
    here, there = pty.openpty()
    os.write(here, b"y\n")
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "gc", "--keep", "1"],
        cwd=tmp_path, env=clean_environment(), stdin=there, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    os.close(here)
    os.close(there)
    assert done.returncode == 0, done.stderr
    assert "remove all this for good? [y/N]" in done.stderr
    assert "would remove  r1  starter  2026-03-02 09:00 UTC" in done.stderr
    assert "removed  r1  starter" in done.stdout
    assert "runs/r1/manifest.json" not in keys_of(store)


def test_without_standard_input_nothing_is_asked_and_nothing_goes(
    in_process: Command, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys_of(store)
    monkeypatch.setattr("sys.stdin", None)
    done = in_process("gc", "--run", "r1")
    assert (done.returncode, "add --yes" in done.stderr) == (2, True), done.stderr
    assert keys_of(store) == before
    assert in_process("gc", "--run", "r1", "-y").returncode == 0
    assert keys_of(store) != before
