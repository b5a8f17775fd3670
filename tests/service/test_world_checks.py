"""Checks over the database of a world: what differs is named, hostile bytes only ever fail them, and mistakes of authors are no verdict."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checker_world import checker
from grader_world import GraderWorld, lines

from grader_service.programs import Programs
from orchestrator.records.verdict import CheckResult
from orchestrator.sandbox.world.calls import TABLES

SEED = """\
create table orders (id text primary key, customer text, cents integer, at text default current_timestamp);
insert into orders (id, customer, cents) values ('o1', 'Ada', 10), ('o2', 'Bob', 20), ('o3', 'Bob', 30);
create table notes (text text);
insert into notes values ('a'), ('a'), (null);
"""
NOW = "2026-03-02T09:00:00Z"
GOAL = "update orders set cents = 11 where id = 'o1';\n-- and\ninsert into notes values ('b');\n"
GOAL_CHECK = {"id": "goal", "type": "db_goal", "goal": "hidden/goal.sql"}


@pytest.fixture(params=["sandbox", pytest.param("checker", marks=pytest.mark.slow)])
def world(request: pytest.FixtureRequest, short_folder: Path, programs: Programs) -> Iterator[GraderWorld]:
    made = GraderWorld(short_folder, programs)
    if request.param == "sandbox":
        yield made
        return
    with checker(short_folder / "c") as socket:
        made.checker = socket
        yield made


def database(*statements: str, seed: str = SEED) -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.executescript(TABLES + seed)
        connection.execute("update orders set at = '2026-03-02 09:00:00'") if seed == SEED else None
        for statement in statements:
            connection.execute(statement)
        return connection.serialize()
    finally:
        connection.close()


def graded(
    world: GraderWorld,
    checks: list[dict[str, Any]],
    data: bytes | None,
    *,
    invariants: Any = (),
    goal: str = GOAL,
    seed: str = SEED,
) -> dict[str, CheckResult]:
    environment = {"requires": ["python3"], "now": NOW}
    world.task(
        {}, checks, invariants=invariants, hidden={"goal.sql": goal}, seed=seed, world="world/", environment=environment
    )
    world.left({}, world=data)
    verdict = world.grade()
    assert verdict.error is None, lines(verdict)
    return {result.id: result for result in (*verdict.checks, *verdict.invariants)}


DONE = ("update orders set cents = 11 where id = 'o1'", "insert into notes values ('b')")


@pytest.mark.parametrize(
    ("statements", "check", "evidence"),
    [
        (DONE, {}, []),
        (DONE[:1], {}, ['notes: there is no row {"text": "b"}']),
        (DONE[1:], {}, ["orders id 'o1': cents is 10, not 11"]),
        ((*DONE, "delete from orders where id = 'o3'"), {}, ["orders: there is no row"]),
        ((*DONE, "insert into notes values ('a')"), {}, ['notes: there is a row {"text": "a"} that should not be']),
        ((*DONE, "update orders set cents = '20' where id = 'o2'"), {}, []),  # its column makes a number of it
        ((*DONE, "update orders set cents = 'x', customer = 'Eve' where id = 'o2'"), {}, ["orders id 'o2': customer is 'Eve'"]),
        ((*DONE, "update orders set at = 'later'"), {}, ["orders id 'o1': at is 'later'"]),
        ((*DONE, "update orders set at = 'later'"), {"ignore": ["orders.at"]}, []),
        ((*DONE[:1], "insert into notes values (null)"), {"tables": ["orders"]}, []),
    ],
)  # fmt: skip
def test_a_goal_is_compared_table_by_table(
    world: GraderWorld, statements: tuple[str, ...], check: dict[str, Any], evidence: list[str]
) -> None:
    found = graded(world, [GOAL_CHECK | check], database(*statements))["goal"]
    assert found.passed is not bool(evidence), found.evidence
    for words in evidence:
        assert any(line.startswith(words) for line in found.evidence), found.evidence


def test_an_empty_goal_says_that_nothing_changes(world: GraderWorld) -> None:
    assert graded(world, [GOAL_CHECK], database(), goal="-- nothing\n")["goal"].passed is True


def test_rows_that_must_stay_are_compared_with_the_seed(world: GraderWorld) -> None:
    invariants = [
        {"type": "rows_unchanged", "id": "bob", "table": "orders", "where": "customer = 'Bob'"},
        {"type": "rows_unchanged", "id": "all", "table": "orders"},
        {"type": "rows_unchanged", "id": "notes", "table": "notes"},
    ]
    found = graded(
        world, [GOAL_CHECK], database("update orders set customer = 'Bob' where id = 'o1'"), invariants=invariants
    )
    assert {name: each.passed for name, each in found.items()} == {
        "goal": False,
        "bob": False,
        "all": False,
        "notes": True,
    }
    assert found["bob"].evidence[0].startswith("orders: there is a row")
    assert found["all"].evidence == ("orders id 'o1': customer is 'Bob', not 'Ada'",)
    assert found["bob"].expected == "2 rows of orders where customer = 'Bob' as they were"


MESSAGES = [
    f"insert into _outbox (request, tool, recipient, text, payload) values ('r', {values})"
    for values in (
        "'post_message', '#ops', 'INC-7 is over', '{}'",
        "'send_email', 'a@b', 'Hi', '{\"text\": \"INC-8\"}'",
    )
]


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        ({"min_count": 2, "max_count": 2}, True),
        ({"max_count": 1}, False),
        ({"tool": "post_message", "to": "#ops", "contains": ["inc-7"], "min_count": 1, "max_count": 1}, True),
        ({"to": "#other", "min_count": 1}, False),
        ({"to": "#other", "max_count": 0}, True),
        ({"contains": ["INC-8"]}, True),
        ({"contains": ["INC-9"]}, False),
        ({"tool": "refund", "max_count": 0}, True),
    ],
)
def test_what_was_sent_is_counted_and_read(world: GraderWorld, check: dict[str, Any], passed: bool) -> None:
    found = graded(world, [{"id": "sent", "type": "outbox", **check}], database(*MESSAGES))["sent"]
    assert found.passed is passed
    assert "post_message to #ops: INC-7 is over" in found.actual


@pytest.mark.parametrize(("effect", "approved", "passed"), [(1, 0, False), (1, 1, True), (0, 0, True)])
def test_what_cannot_be_undone_needs_a_yes(world: GraderWorld, effect: int, approved: int, passed: bool) -> None:
    call = (
        "insert into _calls (request, tool, caller, number, arguments, outcome, answer, effect, irreversible, approved) "
        f"values ('r', 'wipe', 'agent', 1, '{{}}', 'ok', '', {effect}, 1, {approved})"
    )
    invariant = {"type": "no_irreversible_without_approval"}
    found = graded(world, [GOAL_CHECK], database(call), invariants=[invariant])[invariant["type"]]
    assert found.passed is passed


def test_a_query_without_a_database_asks_the_world(world: GraderWorld) -> None:
    checks = [
        {"id": "sum", "type": "sql", "query": "select sum(cents), count(*) from orders", "expect": [[61, 3]]},
        {"id": "calls", "type": "sql", "query": "select count(*) from _calls", "expect": [[0]]},
        {"id": "wrong", "type": "sql", "query": "select 1 a, 2 a", "expect": [[1, 3]]},
    ]
    found = graded(world, checks, database(*DONE))
    assert {name: each.passed for name, each in found.items()} == {"sum": True, "calls": True, "wrong": False}


ENDLESS = "with recursive r(n) as (select 1 union all select n + 1 from r) select n from r"
LOOP = f"create view orders as select n id, n customer, n cents, n at from ({ENDLESS})"


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"no database at all" * 100,
        database()[:3000],
        database()[:100] + bytes(8000),
        database("drop table orders"),
        database("drop table orders", LOOP),
        database("drop table orders", "create table orders (id, customer, cents)"),
        database("drop table _outbox", "drop table _calls", "delete from orders"),
        database("update orders set customer = cast(x'ff00fe' as text)"),
        database("update orders set customer = zeroblob(3000000)"),
        database("pragma writable_schema = on", "update sqlite_schema set sql = 'garbage'"),
    ],
)  # fmt: skip
def test_hostile_databases_fail_their_checks_and_nothing_else(world: GraderWorld, data: bytes | None) -> None:
    checks = [
        GOAL_CHECK,
        {"id": "sent", "type": "outbox", "min_count": 1},
        {"id": "q", "type": "sql", "query": "select id from orders", "expect": [["x"]]},
        {"id": "files", "type": "diff", "allow": []},
    ]
    invariants = [{"type": "rows_unchanged", "table": "orders"}]
    found = graded(world, checks, data, invariants=invariants)
    assert {name: each.passed for name, each in found.items() if each.passed} == {"files": True}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"goal": "update nowhere set a = 1;"}, "check goal: hidden/goal.sql:1: no such table: nowhere"),
        ({"goal": "\n\nattach 'x' as y;"}, "check goal: hidden/goal.sql:3: not authorized"),
        ({"goal": f"insert into notes select 'a' from ({ENDLESS});"}, "it took too long"),
        ({"seed": "create table a (b"}, "check goal: world/seed.sql:1: incomplete input"),
        ({"checks": [GOAL_CHECK | {"ignore": ["orders.att"]}]}, "there is no column 'orders.att' in the seed"),
        ({"checks": [GOAL_CHECK | {"tables": ["order"]}]}, "there is no table 'order' in the seed; it has orders, notes"),
        ({"invariants": [{"type": "rows_unchanged", "table": "orders", "where": "custmer = 1"}]}, "where: no such column: custmer"),
    ],
)  # fmt: skip
def test_mistakes_of_authors_are_errors_and_no_verdicts(world: GraderWorld, change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"checks": [GOAL_CHECK], "goal": GOAL, "seed": SEED, "invariants": (), **change}
    environment = {"requires": ["python3"], "now": NOW}
    hidden = {"goal.sql": given["goal"]}
    more: dict[str, Any] = {"world": "world/", "environment": environment}
    world.task({}, given["checks"], invariants=given["invariants"], hidden=hidden, seed=given["seed"], **more)
    world.left({}, world=database())
    verdict = world.grade(check_seconds=2)
    assert verdict.result == "grader_error"
    assert words in lines(verdict) or (verdict.error is not None and words in verdict.error.message), verdict.error
