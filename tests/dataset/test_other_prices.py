"""A run counted again at other prices."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from run_builder import Finding, agent, manifest, outcome, put, save, task, verdict

from orchestrator.dataset.measured import read_metrics
from orchestrator.dataset.repriced import read_responses, reprice
from orchestrator.dataset.rows import assemble, collect
from orchestrator.dataset.write import commit_run
from orchestrator.records.ids import TrialId
from orchestrator.records.prices import KnownPrice
from orchestrator.records.usage import Usage
from orchestrator.settings import Price, PriceTier
from orchestrator.storage.file import FileStore
from orchestrator.wiring import event_reader

TRIAL = TrialId("t", "a", 1)
SMALL = {"uncached_input": 100, "cache_read": 10, "cache_write": 6, "cache_write_1h": 2, "output": 5, "reasoning": 4}
LARGE = {**SMALL, "uncached_input": 1000}
NEW = Price(
    input=1,
    output=3,
    cache_read=0.1,
    cache_write=2,
    cache_write_1h=4,
    tiers=(PriceTier(above=1000, input=10, output=30),),
)
KNOWN = {("a", "x/m"): KnownPrice(price=NEW, source="elsewhere")}
COST_SMALL = 100 * 1000 + 10 * 100 + 4 * 2000 + 2 * 4000 + 5 * 3000
COST_LARGE = 1016 * 10_000 + 5 * 30_000


def response(tokens, cost=7, **more):
    return {"type": "model_response", "asked": "x/m", "cost_nano_usd": cost, "estimated": False, **tokens, **more}


def launched(rows, cost=7, **more):
    used = Usage()
    for row in rows:
        used = used.plus(Usage(**{name: row[name] or 0 for name in SMALL}))
    return outcome("run-1", TRIAL, steps=more.pop("steps", len(rows)), cost=cost, **more).model_copy(
        update={"usage": used.model_copy(update={"cost_nano_usd": cost})}
    )


def cost_of(rows, known=KNOWN, **more):
    data = assemble(manifest([task("t", samples=1)], [agent("a", models={"m": "x/m"})]), [launched(rows, **more)], [])
    found = reprice(data, {(TRIAL, 1): rows}, lambda *asked: known.get(asked), "test prices").data
    [row] = found.rows
    assert row.outcome is row.launches[0]
    assert found.notes[-1] == "costs are at test prices, not at those of the run"
    return row.outcome.usage.cost_nano_usd


def test_every_response_is_priced_by_its_own_size():
    assert cost_of([response(SMALL), response(LARGE)]) == COST_SMALL + COST_LARGE


def test_what_had_no_price_gets_one():
    assert cost_of([response(SMALL, cost=None)], cost=None) == COST_SMALL


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ([response(SMALL, cost=None, estimated=True)], {"cost": None}),
        ([response({**SMALL, "cache_read": None})], {}),
        ([response(SMALL, asked="x/other")], {}),
        ([response(SMALL, asked=None)], {}),
        ([response(SMALL)], {"steps": 2}),
        ([response(SMALL)], {"cost": None}),
        ([response(SMALL)], {"findings": (Finding(type="call_aborted"),)}),
        ([response(SMALL, cost=None)], {"cost": None, "findings": (Finding(type="price_unknown"),)}),
    ],
)
def test_what_was_never_known_stays_unknown(rows, more):
    assert cost_of(rows, **more) is None


def test_a_model_that_the_other_prices_lack_has_an_unknown_cost():
    assert cost_of([response(SMALL)], known={}) is None


def test_a_launch_that_asked_nothing_costs_what_it_did():
    assert cost_of([], cost=0) == 0
    assert cost_of([], cost=None) is None


@pytest.mark.parametrize("kept", [False, True])
def test_rows_come_from_the_dataset_or_from_the_trajectories(tmp_path, kept):
    facts = [
        ("model_request", {"model": "x/m", "conversation": 0}),
        ("model_response", {"request": 0, "tokens": {**SMALL, "cost_nano_usd": 7}, "estimated": False}),
        ("tool_call", {"request": 0, "id": "c", "name": "n", "arguments": "{}"}),
        ("model_request", {"model": "x/m", "conversation": 0}),
        ("model_response", {"request": 3, "tokens": {**LARGE, "cost_nano_usd": 7}, "estimated": False}),
        ("seal", {}),
    ]
    lines = [
        orjson.dumps({"v": 1, "seq": n, "t": 1000.0 + n, "source": "gateway", "type": kind, **fields}) + b"\n"
        for n, (kind, fields) in enumerate(facts)
    ]

    async def live():
        store = FileStore(tmp_path / "store")
        blob = await put(store, "run-1", "traj", b"".join(lines))
        done = launched([response(SMALL), response(LARGE)], cost=14, trajectory=blob)
        made = manifest([task("t", samples=1)], [agent("a", models={"m": "x/m"})])
        await save(store, made, [done], [verdict("run-1", TRIAL)])
        events = event_reader(store)
        if kept:
            await commit_run(store, "run-1", events, tmp_path / "cache")
        data = await collect(store, "run-1")
        responses = await read_responses(store, tmp_path / "cache", events, data)
        repriced = reprice(data, responses, lambda *asked: KNOWN.get(asked), "test prices")
        metrics = repriced.metrics(await read_metrics(store, tmp_path / "cache", events, data))
        return repriced.data.rows[0].outcome.usage.cost_nano_usd, metrics.trials[TRIAL]

    cost, metrics = asyncio.run(live())
    assert cost == COST_SMALL + COST_LARGE
    assert {found.form: found.cost_nano_usd for found in metrics} == {"gateway": cost, "agent": None}
