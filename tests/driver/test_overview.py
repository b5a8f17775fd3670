"""The list of runs: what it shows, where it has it from, and what it leaves unread."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from dataset_world import commit
from run_builder import NIGHT, agent, manifest, outcome, save, task, verdict

from orchestrator.driver import overview as module
from orchestrator.driver.overview import Line, Overview, overview
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.lease import Claim, Release
from orchestrator.records.lease import Process as ProcessName
from orchestrator.settings import Settings, load_settings
from orchestrator.storage.file import FileStore


class Counting(FileStore):
    """A store that notes which objects were read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.read: list[str] = []

    async def get(self, key: str) -> bytes:
        self.read.append(key)
        return await super().get(key)

    def records_read(self, run: str) -> int:
        return sum(key.startswith((f"outcomes/{run}/", f"grades/{run}/")) for key in self.read)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "store")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(tmp_path, environ={}, overrides={"cache": str(tmp_path / "cache")})


async def lay(store: FileStore, run: str, *, ended: int = 4, age_h: int = 0, suite: str = "starter") -> None:
    """Save a run of four trials of which so many have ended: the first one failed, the others passed, each for 5 nano USD."""
    made = manifest([task("fix", samples=4)], [agent("careful")], run=run, created_at=NIGHT - timedelta(hours=age_h))
    trials = [TrialId("fix", "careful", number) for number in range(1, ended + 1)]
    verdicts = [verdict(run, trial, "passed" if trial.sample > 1 else "failed") for trial in trials]
    await save(
        store, made.model_copy(update={"suite": suite}), [outcome(run, trial, cost=5) for trial in trials], verdicts
    )


async def look(store: FileStore, settings: Settings, *, suite: str | None = None, most: int | None = None) -> Overview:
    return await overview(store, settings, suite=suite, most=most)


def facts(line: Line) -> tuple[object, ...]:
    counts = None if line.counts is None else (line.counts["passed"], line.counts["failed"])
    return line.state, line.ended, line.planned, counts, line.spent_nano_usd


def test_runs_that_the_dataset_has_are_not_read(store: Counting, settings: Settings, tmp_path: Path) -> None:
    async def story() -> Overview:
        await lay(store, "r1")
        await commit(store, "r1", tmp_path)
        store.read.clear()
        return await look(store, settings)

    (line,) = asyncio.run(story()).lines
    assert facts(line) == ("complete", 4, 4, (3, 1), 20)
    assert (line.agents, line.created_at) == (("careful",), NIGHT)
    assert store.records_read("r1") == 0


def test_other_runs_are_counted_from_their_records(store: Counting, settings: Settings) -> None:
    async def story() -> Overview:
        await lay(store, "whole")
        await lay(store, "part", ended=2, age_h=1)
        await lay(store, "none", ended=0, age_h=2)
        return await look(store, settings)

    found = asyncio.run(story())
    assert [facts(line) for line in found.lines] == [
        ("complete", 4, 4, (3, 1), 20),
        ("interrupted", 2, 4, (1, 1), 10),
        ("waiting", 0, 4, (0, 0), 0),
    ]


def test_rows_that_are_older_than_the_records_are_not_believed(
    store: Counting, settings: Settings, tmp_path: Path
) -> None:
    async def story() -> list[tuple[object, ...]]:
        await lay(store, "r1", ended=2)
        await commit(store, "r1", tmp_path)
        store.read.clear()
        seen = [facts((await look(store, settings)).lines[0])]
        assert store.records_read("r1") == 0
        trial = TrialId("fix", "careful", 3)
        await store.create(keys.outcome("r1", trial, 1), outcome("r1", trial, cost=5).to_bytes())
        seen.append(facts((await look(store, settings)).lines[0]))
        return seen

    assert asyncio.run(story()) == [("interrupted", 2, 4, (1, 1), 10), ("interrupted", 2, 4, (1, 1), 15)]


def test_large_runs_are_told_by_their_keys(
    store: Counting, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_RECORDS", 9)

    async def story() -> Overview:
        for age, run in enumerate(("new", "old")):
            await lay(store, run, age_h=age)
        return await look(store, settings)

    new, old = asyncio.run(story()).lines
    assert facts(new) == ("complete", 4, 4, (3, 1), 20)
    assert facts(old) == ("complete", 4, 4, None, None)
    assert store.records_read("old") == 0


def test_what_cannot_be_read_is_shown_as_such(store: Counting, settings: Settings, tmp_path: Path) -> None:
    async def story() -> Overview:
        for age, run in enumerate(("good", "foreign", "torn", "mixed")):
            await lay(store, run, age_h=age)
        (tmp_path / "store" / keys.manifest("torn")).write_bytes(b"{")
        await store.create("outcomes/foreign/what/1.json", b"{}")
        trial = TrialId("fix", "careful", 1)
        (tmp_path / "store" / keys.outcome("mixed", trial, 1)).write_bytes(outcome("good", trial).to_bytes())
        return await look(store, settings)

    found = {line.run: line for line in asyncio.run(story()).lines}
    assert {run: line.state for run, line in found.items()} == {
        "good": "complete",
        "foreign": "unreadable",
        "torn": "unreadable",
        "mixed": "unreadable",
    }
    assert all(found[run].problem for run in ("foreign", "torn", "mixed"))


def test_newest_first_some_of_them_and_of_one_suite(store: Counting, settings: Settings) -> None:
    async def story() -> tuple[Overview, Overview]:
        for age, run in enumerate(("c", "a", "b")):
            await lay(store, run, age_h=age, suite="other" if run == "b" else "starter")
        return await look(store, settings, most=2), await look(store, settings, suite="other")

    newest, other = asyncio.run(story())
    assert ([line.run for line in newest.lines], newest.more) == (["c", "a"], 1)
    assert ([line.run for line in other.lines], other.more) == (["b"], 0)


def test_why_a_driver_let_go_is_told(store: Counting, settings: Settings) -> None:
    async def story() -> Overview:
        await lay(store, "r1", ended=1)
        process = ProcessName(host="elsewhere", pid=1)
        claim = Claim(run="r1", epoch=1, writer_id="w", process=process, at=0, term_s=15)
        await store.create(keys.claim("r1", 1), claim.to_bytes())
        silent = (await look(store, settings)).lines[0].state
        assert silent == "silent"
        await store.create(keys.release("r1", 1), Release(epoch=1, at=0, reason="paused").to_bytes())
        return await look(store, settings)

    assert asyncio.run(story()).lines[0].state == "paused"


def test_an_empty_store_has_no_runs(store: Counting, settings: Settings) -> None:
    assert asyncio.run(look(store, settings)) == Overview((), 0)
