"""Worlds as their gateway sees them: what a call does, once, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world_world import ADD, CANCEL, GET, ORDER, SEED, bundle, engine, in_a_loop, played, tool

from orchestrator.gateway.worlds.engine import WorldError


def rows(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@in_a_loop
async def test_a_call_reads_changes_tells_and_is_written_down(tmp_path: Path) -> None:
    async with played(tmp_path, GET, CANCEL, now="2026-03-02T09:00:00Z") as call:
        assert (await call("get_order", order_id="o1")).data == {
            "order": {"id": "o1", "customer": "Ada", "cents": 1200, "status": "open"}
        }
        missing = await call("cancel_order", order_id="o9")
        assert (missing.outcome, missing.kind, missing.message, missing.status) == (
            "error",
            "not_found",
            "no order o9",
            409,
        )
        assert (await call("cancel_order", order_id="o1")).data == {"done": True}
        file = await call.world.snapshot()
        assert rows(file, "select id from orders where status = 'cancelled'") == [("o1",)]
        assert rows(file, "select tool, recipient, text, at from _outbox") == [
            ("cancel_order", "orders", "o1 is cancelled", "2026-03-02T09:00:00Z")
        ]
        assert rows(file, "select tool, number, outcome, error, irreversible, approved from _calls order by id") == [
            ("get_order", 1, "ok", None, 0, 0),
            ("cancel_order", 1, "error", "not_found", 1, 0),
            ("cancel_order", 2, "ok", None, 1, 0),
        ]
        assert (await call("get_order", order_id="o1")).kind == "world_closed"


@in_a_loop
async def test_a_request_has_one_effect_and_one_answer(tmp_path: Path) -> None:
    async with played(tmp_path, ADD) as call:
        first = await call.world.call("add_cents", {"order_id": "o2", "cents": 5}, request="same")
        second = await call.world.call("add_cents", {"order_id": "o2", "cents": 5}, request="same")
        assert first == second
        assert first.data == {"cents": 305}


@in_a_loop
async def test_planted_failures_come_by_number_and_by_seed(tmp_path: Path) -> None:
    faults = [{"calls": [1], "message": "try again"}, {"calls": [3], "effect": "done", "status": 504, "error": "lost"}]
    async with played(tmp_path, ADD | {"faults": faults}) as call:
        answers = [await call("add_cents", order_id="o2", cents=1) for _ in range(4)]
    assert [(each.kind, each.status) for each in answers] == [
        ("unavailable", 500),
        (None, 200),
        ("lost", 504),
        (None, 200),
    ]
    assert answers[3].data == {"cents": 303}  # the third has happened, the first has not
    kinds = []
    for name in ("one", "two"):
        async with played(tmp_path / name, ADD | {"faults": [{"share": 0.5}]}) as call:
            kinds.append([(await call("add_cents", order_id="o2", cents=1)).kind for _ in range(12)])
    assert kinds[0] == kinds[1]
    assert {None, "unavailable"} == set(kinds[0])


@in_a_loop
async def test_an_approval_is_for_one_call_with_these_arguments(tmp_path: Path) -> None:
    guarded = CANCEL | {"requires_approval": {"when": "select :order_id <> 'o3'"}}
    rules = [{"tool": "cancel_order", "when": "select :order_id = 'o1'", "say": "granted", "message": "for {order_id}"}]
    async with played(tmp_path, guarded, approvals=rules) as call:
        ask = {"tool": "cancel_order", "reason": "the customer says so"}
        assert (await call("cancel_order", order_id="o3")).outcome == "ok"
        assert (await call("cancel_order", order_id="o1")).kind == "approval_required"
        assert (await call("request_approval", **ask, arguments={"order_id": "o2"})).data["decision"] == "denied"
        assert (await call("request_approval", **ask, arguments={"order_id": "o1"})).data == {
            "decision": "granted",
            "message": "for o1",
        }
        assert (await call("cancel_order", order_id="o2")).kind == "approval_required"
        assert (await call("cancel_order", order_id="o1")).outcome == "ok"
        assert (await call("cancel_order", order_id="o1")).kind == "approval_required"
        assert (await call("request_approval", tool="nothing", reason="", arguments={})).kind == "no_approval_needed"
        file = await call.world.snapshot()
        assert rows(file, "select number from _calls where approved = 1") == [(4,)]


@in_a_loop
async def test_lists_come_in_pages_and_calls_within_a_rate(tmp_path: Path) -> None:
    listing = tool(
        "list_orders",
        result={"orders": {"rows": "select id from orders order by id;"}},
        page={"of": "orders", "size": 2},
    )
    paced = GET | {"rate": {"calls": 2, "seconds": 600}}
    async with played(tmp_path, listing, paced) as call:
        first = (await call("list_orders")).data
        assert [each["id"] for each in first["orders"]] == ["o1", "o2"]
        last = (await call("list_orders", page_token=first["next_page_token"])).data
        assert last == {"orders": [{"id": "o3"}], "next_page_token": None}
        assert (await call("list_orders", page_token="page-x")).kind == "invalid_page_token"
        answers = [await call("get_order", order_id="o1") for _ in range(3)]
        assert [each.kind for each in answers] == [None, None, "rate_limited"]
        assert answers[2].status == 429
        assert 590 < (answers[2].retry_after or 0) <= 600


@in_a_loop
async def test_it_is_always_the_same_time_there(tmp_path: Path) -> None:
    told = "date('now') d, datetime('NOW', '+1 day') t, current_timestamp c, strftime('%Y') y, unixepoch() u, :now n"
    times = tool("times", result={"now": {"row": f"select {told}, date('2001-01-01') other"}})
    async with played(tmp_path, times, now="2026-03-02T09:00:00Z") as call:
        assert (await call("times")).data["now"] == {
            "d": "2026-03-02", "t": "2026-03-03 09:00:00", "c": "2026-03-02 09:00:00", "y": "2026",
            "u": 1772442000, "n": "2026-03-02T09:00:00Z", "other": "2001-01-01",
        }  # fmt: skip


FUNCTIONS = """
def score(world, arguments):
    if not world.query("select 1 from orders where id = :id", id=arguments["order_id"]):
        raise world.error("not_found", "no such order", 404)
    world.execute("update orders set cents = 1 where id = :id", id=arguments["order_id"])
    if arguments["order_id"] == "o2":
        raise RuntimeError("a bug")
    return {"chance": world.random.random(), "call": world.call, "now": world.now}
"""


@in_a_loop
async def test_functions_share_the_transaction_of_their_call(tmp_path: Path) -> None:
    async with played(tmp_path, tool("score", arguments=ORDER, function="score"), GET, functions=FUNCTIONS) as call:
        first = await call("score", order_id="o1")
        assert first.data == {"chance": pytest.approx(first.data["chance"]), "call": 1, "now": None}
        assert ((await call("score", order_id="o9")).status) == 404
        broken = await call("score", order_id="o2")
        assert (broken.kind, broken.message) == ("tool_failed", "the tool failed")
        assert broken.detail == "BrokenError: score ended with RuntimeError: a bug"
        assert (await call("get_order", order_id="o2")).data["order"]["cents"] == 300


@in_a_loop
async def test_a_world_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    made, spec = bundle(tmp_path / "b", GET, seed="create table a (b);\n\n-- rows\ninsert into nowhere\nvalues (1);\n")
    async with engine(tmp_path / "w") as running:
        with pytest.raises(WorldError) as caught:
            await running.open("launch", made, spec, now=None, seed=1)
        assert caught.value.problems == [{"file": "seed.sql", "line": 3, "message": "no such table: nowhere"}]
        assert not (tmp_path / "w/launch").exists()


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"requires": [{"sql": "select 1 from ordres", "error": "e", "message": "m"}]}, ["requires", 0, "sql"], "no such table: ordres"),
        ({"result": {"a": {"row": "delete from orders"}}}, ["result", "a", "row"], "this may only read"),
        ({"sql": ["delete from _calls"]}, ["sql", 0], "not those of _calls"),
        ({"sql": ["drop table orders"]}, ["sql", 0], "change rows"),
        ({"sql": ["attach 'x' as y"]}, ["sql", 0], "change rows"),
        ({"sql": ["pragma writable_schema = on"]}, ["sql", 0], "change rows"),
        ({"sql": ["select 1; select 2"]}, ["sql", 0], "one statement at a time"),
    ],
)  # fmt: skip
@in_a_loop
async def test_mistakes_in_statements_are_found_before_a_run(
    tmp_path: Path, change: dict[str, Any], place: list[Any], words: str
) -> None:
    made, _ = bundle(tmp_path / "b", GET | {"requires": [], **change})
    async with engine(tmp_path / "w") as running:
        (problem,) = await running.prove(made)
    assert problem["path"] == ["tools", 0, *place]
    assert words in problem["message"]


@in_a_loop
async def test_functions_that_cannot_be_loaded_are_found_before_a_run(tmp_path: Path) -> None:
    made, _ = bundle(
        tmp_path / "b", tool("score", function="score"), functions="import requests\ndef score(w, a): ...\n"
    )
    async with engine(tmp_path / "w") as running:
        (problem,) = await running.prove(made)
    assert problem["file"] == "tools.py"
    assert "No module named 'requests'" in problem["message"]


@in_a_loop
async def test_idle_children_are_ended_and_begin_again_where_they_were(tmp_path: Path) -> None:
    made, spec = bundle(tmp_path / "b", ADD)
    async with engine(tmp_path / "w", live=2) as running:
        worlds = [await running.open(f"l{number}", made, spec, now=None, seed=1) for number in range(5)]
        for turn in range(3):
            for world in worlds:
                await world.call("add_cents", {"order_id": "o2", "cents": 1}, request=f"t{turn}")
        answers = [await world.call("add_cents", {"order_id": "o2", "cents": 1}, request="last") for world in worlds]
        assert [each.data["cents"] for each in answers] == [304] * 5
    async with engine(tmp_path / "w") as running:  # after its gateway has died
        again = await running.open("l3", made, spec, now=None, seed=1)
        known = await again.call("add_cents", {"order_id": "o2", "cents": 1}, request="last")
        assert known.data == {"cents": 304}


@in_a_loop
async def test_a_database_that_is_there_outlives_a_gateway_that_is_stopped_while_it_goes_on(tmp_path: Path) -> None:
    made, spec = bundle(tmp_path / "b", ADD)
    more = {"order_id": "o2", "cents": 1}
    async with engine(tmp_path / "w") as running:
        await (await running.open("l", made, spec, now=None, seed=1)).call("add_cents", more, request="r")
    async with engine(tmp_path / "w") as running:
        asked = asyncio.Event()

        async def takes_long(_place: Any) -> None:
            asked.set()
            await asyncio.Event().wait()

        running._start = takes_long
        opening = asyncio.create_task(running.open("l", made, spec, now=None, seed=1))
        await asked.wait()
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
    async with engine(tmp_path / "w") as running:
        again = await running.open("l", made, spec, now=None, seed=1)
        assert (await again.call("add_cents", more, request="next")).data == {"cents": 302}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["o1", "o2", "o9"]), st.integers(-2000, 2000)), max_size=12)
)
def test_repeated_requests_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[int, str, int]]
) -> None:
    async def play(folder: Path, told: list[tuple[int, str, int]]) -> list[Any]:
        async with played(folder, ADD) as call:
            for number, order, cents in told:
                await call.world.call("add_cents", {"order_id": order, "cents": cents}, request=str(number))
            return rows(await call.world.snapshot(), "select * from orders")

    seen: set[int] = set()
    first = [each for each in calls if each[0] not in seen and not seen.add(each[0])]  # type: ignore[func-returns-value]
    folder = tmp_path_factory.mktemp("twice")
    assert asyncio.run(play(folder / "a", calls)) == asyncio.run(play(folder / "b", first))


NUMBERS = "with recursive r(n) as (select 1 union all select n + 1 from r where n < 30000)"
MOVE = tool(
    "move",
    arguments={"type": "object", "properties": {"cents": {"type": "integer"}}},
    sql=[
        "update orders set cents = cents - :cents where id = 'o1'",
        f"{NUMBERS} update orders set status = (select max(n) from r) where id = 'o3'",
        "update orders set cents = cents + :cents where id = 'o2'",
    ],
)


async def killed_in_mid_call(folder: Path, seed: int) -> tuple[list[Any], list[Any]]:
    """Kill the child at a random moment of a call that changes two rows; return the rows, and the calls that were noted."""
    async with played(folder, MOVE) as call:
        parent = call.world._engine._process.pid
        (child,) = [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(int(name)) == parent]
        asked = asyncio.create_task(call("move", cents=100))
        await asyncio.sleep(random.Random(seed).uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        answer = await asked
        file = await call.world.snapshot()
        moved = rows(file, "select cents from orders where id in ('o1', 'o2') order by id")
        noted = rows(file, "select outcome from _calls")
        assert (answer.outcome == "ok") == (noted == [("ok",)])
        return moved, noted


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 50))])
@in_a_loop
async def test_a_killed_child_leaves_one_whole_effect(tmp_path: Path, seed: int) -> None:
    moved, noted = await killed_in_mid_call(tmp_path, seed)
    assert (moved, noted) == ([(1100,), (400,)], [("ok",)])  # once, whether it died before or after


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (SEED, [1, 2]),
        ("create trigger t after insert on a begin\n  update a set b = 1;\nend;\nselect ';';\n-- the end", [1, 4]),
        ("insert into a values (1); insert into a values (2);\nselect 1", [1, 1, 2]),
        ("\n-- what; it\n/* is; */ select ';', \"a;b\", [c;d], `e;f`;\n\n select 2;", [2, 5]),
        ("select 'it''s; one';\nselect 'never closed; select 1;\n;", [1, 2]),
        ("-- nothing;\n/* at; all", []),
        ("", []),
    ],
)
def test_files_are_read_by_statements(text: str, lines: list[int]) -> None:
    from orchestrator.sandbox.world.statements import statements

    found = list(statements(text))
    assert [line for line, _ in found] == lines
    assert "".join(held for _, held in found) == text[: len("".join(held for _, held in found))]
