"""Traces in the store: each once, whatever happens, and readable like every run."""

import asyncio
import json
from pathlib import Path

import pytest
from import_world import START, atif, conversation, lines, otel, own, request, write
from typer.testing import CliRunner

from orchestrator.cli.app import app, run_command
from orchestrator.dataset.measured import read_metrics
from orchestrator.dataset.query import query
from orchestrator.dataset.write import commit_run, rebuild
from orchestrator.errors import RefusedError, StoreError
from orchestrator.importers.place import place_traces
from orchestrator.records import keys
from orchestrator.report.jsonform import as_json
from orchestrator.report.summary import summarise
from orchestrator.wiring import event_reader

TAU = Path(__file__).parent / "data" / "tau-bench-gpt-4o-airline.json.gz"


async def report(world, run):
    data = await world.data(run)
    cache = world.folder / "cache"
    measured = await read_metrics(world.store, cache, event_reader(world.store), data)
    return as_json(summarise(data, measured=measured))


def test_the_trajectories_of_tau_bench(world):
    async def story():
        done = await world.bring(TAU, agent="gpt-4o", suite="airline")
        assert (done.added, done.known, len(done.runs)) == (200, 0, 1)
        (run,) = done.runs
        before = await report(world, run)  # from the trajectories
        await commit_run(world.store, run, event_reader(world.store), world.folder / "cache")
        after = await report(world, run)  # from the dataset
        assert before["agents"] == after["agents"]
        (agent,) = after["agents"]
        assert agent["counts"]["planned"] == agent["counts"]["not_applicable"] == 200
        assert agent["pass_rate"]["value"] is None
        assert agent["pass_rate"]["reason"] == "imported traces have no verdict"
        found = agent["metrics"]["agent"]
        assert (found["steps"]["total"], found["steps"]["p50"], found["steps"]["n"]) == (2454, 11, 200)
        assert found["termination_reason"] == {"not_recorded": 200}
        validity, recovery = found["tool_call_validity"], found["recovery_rate"]
        assert (validity["numerator"], validity["denominator"]) == (1164, 1164)
        assert "1164 of 1164 calls had no schema" in validity["reason"]
        assert (recovery["numerator"], recovery["denominator"]) == (28, 38)
        for name in ("task_completion", "tool_selection_accuracy", "verification_failures", "context_exhaustion"):
            assert found[name]["value"] is None
            assert found[name]["reason"]
        assert (found["cost_usd"]["n"], found["latency_s"]["missing"]) == (0, 200)

        again = await world.bring(TAU, agent="gpt-4o", suite="airline")
        assert (again.added, again.known, again.runs, again.known_in) == (0, 200, [], {run})
        assert await world.store.list(keys.RUNS) == [keys.manifest(run)]
        assert not (await commit_run(world.store, run, event_reader(world.store), world.folder / "cache")).added
        sql = "SELECT origin, count(*), count(passed), count(output), count(working_s), sum(steps) FROM trials GROUP BY ALL"
        assert (await query(world.store, sql, world.folder / "cache")).rows == [("production", 200, 0, 0, 0, 2454)]

    asyncio.run(story())


def small(world):
    write(world.folder, "a.jsonl", lines(*(conversation(id=number) for number in range(5)), *own(), request(*otel())))
    write(world.folder, "b.json", json.dumps(atif()))
    return world.folder / "a.jsonl", world.folder / "b.json"


class Failing:
    """A store that fails at its n-th write, before or after it took effect."""

    def __init__(self, store, at, after):
        self._store, self._left, self._after = store, at, after
        self.get, self.exists, self.list, self.stream = store.get, store.exists, store.list, store.stream

    async def _write(self, work):
        self._left -= 1
        mine = self._left == 0
        if mine and not self._after:
            work.close()
            raise StoreError("away")
        done = await work
        if mine:
            raise StoreError("away")
        return done

    async def put_blob(self, key, data):
        return await self._write(self._store.put_blob(key, data))

    async def create(self, key, data):
        return await self._write(self._store.create(key, data))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 18, 2))
def test_an_import_that_fails_anywhere_is_completed_by_the_next_one(world, at, after):
    async def story():
        with pytest.raises(StoreError):
            await world.bring(*small(world), store=Failing(world.store, at, after))
        await world.bring(*small(world))
        assert (await world.bring(*small(world))).added == 0
        runs = [keys.run_of_manifest(key) for key in await world.store.list(keys.RUNS)]
        assert len(runs) == 1
        data = await world.data(runs[0])
        assert [row.result for row in data.rows] == ["not_applicable"] * 8
        assert all(row.outcome and not row.is_left(3) for row in data.rows)

    asyncio.run(story())


def test_only_what_is_new_is_added_and_two_at_a_time_add_it_once(world):
    async def story():
        first, second = small(world)
        one = await world.bring(first)
        two = await world.bring(second, first)
        assert (one.added, two.added, two.known) == (7, 1, 7)
        write(world.folder, "c.jsonl", lines(*(conversation(id=number, agent="other") for number in range(20, 26))))
        traces = [world.read(world.folder / "c.jsonl")[0] for _ in range(3)]
        from orchestrator.importers.place import Names

        await asyncio.gather(*(place_traces(world.store, each, Names()) for each in traces))
        runs = [keys.run_of_manifest(key) for key in await world.store.list(keys.RUNS)]
        assert sorted([len((await world.data(run)).rows) for run in runs]) == [1, 6, 7]

    asyncio.run(story())


def test_equal_traces_are_one(world):
    path = write(world.folder, "a.jsonl", lines(conversation(), conversation()))
    assert asyncio.run(world.bring(path)).added == 1


def test_rows_of_an_import_can_be_made_anew_and_say_what_is_unknown(world):
    async def story():
        done = await world.bring(*small(world))
        (run,), cache = done.runs, world.folder / "cache"
        await commit_run(world.store, run, event_reader(world.store), cache)
        assert not (await rebuild(world.store, run, event_reader(world.store), cache)).added
        known = "count(uncached_input), count(started_at), count(waiting_s), sum(cost_nano_usd)"
        sql = f"SELECT agent, count(*), {known} FROM trials GROUP BY ALL ORDER BY ALL"
        assert (await query(world.store, sql, cache)).rows == [
            ("agent", 5, 0, 0, 0, None),
            ("careful", 1, 1, 1, 1, 7),
            ("order-desk", 1, 1, 1, 0, 6_000_000),
            ("terminus-2", 1, 1, 1, 0, 750_000_000),
        ]
        sql = 'SELECT count(*) FROM steps WHERE "at" IS NULL'
        assert (await query(world.store, sql, cache)).rows == [(5 * 6,)]
        sql = f"SELECT count(*) FROM steps WHERE epoch(steps.at) BETWEEN {START} AND {START + 100} AND agent = 'order-desk'"
        assert (await query(world.store, sql, cache)).rows == [(4,)]

    asyncio.run(story())


def test_the_commands_that_read_runs_read_imports(world, monkeypatch):
    monkeypatch.chdir(world.folder)
    runner, store = CliRunner(), str(world.folder / "store")
    bad = write(world.folder, "bad.jsonl", lines(conversation(id=99)) + "{\n")
    found = runner.invoke(
        app, ["import", "traces", *map(str, small(world)), str(bad), "--agent", "Desk", "--json", "--store", store]
    )
    assert found.exit_code == 2
    assert f"{bad}:2:" in found.stderr
    said = json.loads(found.stdout)
    assert (said["traces"], said["added"], len(said["runs"])) == (9, 9, 1)
    (run,) = said["runs"]
    shown = {}
    for words in (
        ["report", run],
        ["list"],
        ["status", run],
        ["show", run, "trace@desk"],
        ["logs", run, "trace@desk:2"],
    ):
        result = runner.invoke(app, [*words, "--store", store])
        assert result.exit_code == 0, (words, result.output)
        shown[words[0]] = result.stdout
    assert "pass rate   none: imported traces have no verdict" in shown["report"]
    assert "complete" in shown["list"]
    assert "an imported trace" in shown["show"]
    assert "Where is it?" in shown["logs"]
    for words in (["resume", run, "--yes"], ["rerun", run, "--yes"]):
        assert run_command([*words, "--store", store]) == RefusedError.exit_code


def test_a_file_of_tools_that_has_none_is_refused(world, monkeypatch, capsys):
    monkeypatch.chdir(world.folder)
    path, tools = write(world.folder, "a.jsonl", lines(conversation())), write(world.folder, "tools.json", "[]")
    assert run_command(["import", "traces", str(path), "--tools", str(tools)]) == 2
    assert "has no tools" in capsys.readouterr().err
