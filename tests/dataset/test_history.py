"""Sums over earlier trials that estimates are made of."""

from __future__ import annotations

import asyncio

import pytest
from dataset_world import commit, lay_run
from run_builder import agent, manifest, outcome, save, task

from orchestrator.dataset.history import NO_HISTORY, Pair, Past, read_history
from orchestrator.records.ids import TrialId
from orchestrator.storage.file import FileStore


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


def pair(manifest):
    one, who = manifest.tasks[0], manifest.agents[0]
    return Pair(one.id, who.name, one.digest, who.digest)


async def lay(store, run, costs, *, digest=None, lost=()):
    """Write a run of one task by one agent, one trial for each cost."""
    one = task("t", samples=len(costs))
    made = manifest([one.model_copy(update={"digest": digest}) if digest else one], [agent("a")], run=run)
    outcomes = []
    for sample, cost in enumerate(costs, 1):
        trial = TrialId("t", "a", sample)
        outcomes += [outcome(run, trial, reason="infra_lost", cause="x", cost=each) for each in lost]
        outcomes.append(outcome(run, trial, launch=len(lost) + 1, cost=cost, working=sample))
    await save(store, made, outcomes, [])
    return made


def test_a_trial_costs_what_all_its_launches_did(store, tmp_path):
    async def live():
        made = await lay(store, "r1", [100, None, 50], lost=[7])
        await commit(store, "r1", tmp_path / "cache")
        return made, await read_history(store, "starter", tmp_path / "cache")

    made, history = asyncio.run(live())
    assert history.same(pair(made)) == Past(priced=2, cost_nano_usd=164, timed=3, working_s=6.0)
    assert history.same(pair(made)).mean_cost == 82
    assert history.same(pair(made)).mean_seconds == 2.0


def test_other_versions_count_by_their_names_only(store, tmp_path):
    async def live():
        old = await lay(store, "r1", [100], digest="sha256:" + "1" * 64)
        new = await lay(store, "r2", [50, 60])
        for run in ("r1", "r2"):
            await commit(store, run, tmp_path / "cache")
        return old, new, await read_history(store, "starter", tmp_path / "cache")

    old, new, history = asyncio.run(live())
    third = Pair("t", "a", "sha256:" + "3" * 64, "sha256:0")
    assert history.same(pair(new)).mean_cost == 55
    assert history.same(third) is None
    assert history.named(third) == history.same(pair(old)).plus(history.same(pair(new)))
    assert history.named(Pair("t", "b", "", "")) is None


def test_a_store_without_runs_of_the_suite_has_no_history(store, tmp_path):
    async def live():
        before = await read_history(store, "starter", tmp_path / "cache")
        await lay_run(store, "r1")
        await commit(store, "r1", tmp_path / "cache")
        return before, await read_history(store, "another", tmp_path / "cache")

    assert asyncio.run(live()) == (NO_HISTORY, NO_HISTORY)


def test_costs_beyond_a_machine_word_are_summed(store, tmp_path):
    async def live():
        made = await lay(store, "r1", [2**62, 2**62, 2**62])
        await commit(store, "r1", tmp_path / "cache")
        return (await read_history(store, "starter", tmp_path / "cache")).same(pair(made))

    assert asyncio.run(live()).cost_nano_usd == 3 * 2**62
