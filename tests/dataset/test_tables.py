"""What the rows of the tables say, and what no column takes."""

import asyncio
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_world import ask, commit, event_reader, lay_run
from run_builder import agent, manifest, outcome, task, verdict

from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.parts import encode
from orchestrator.dataset.rows import assemble, collect
from orchestrator.dataset.schema import SQL_TYPES
from orchestrator.dataset.steps import step_rows
from orchestrator.dataset.tables import arrow_tables
from orchestrator.errors import StoreError
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId
from orchestrator.records.state import FinalAnswer
from orchestrator.records.usage import Usage
from orchestrator.report.jsonform import as_json
from orchestrator.report.summary import summarise
from orchestrator.storage.file import FileStore

ROOT = Path(__file__).parents[2]
FIX = TrialId("fix", "careful", 1)


def tables(outcomes, verdicts=(), steps=None, **more):
    made = manifest([task("fix", samples=1)], [agent("careful")], **more)
    return arrow_tables(assemble(made, outcomes, verdicts), steps or {})


def only(table):
    (row,) = table.to_pylist()
    return row


def test_numbers_of_a_query_are_those_of_the_report(folder):
    async def story():
        store = FileStore(folder / "store")
        for seed in (1, 2):
            await lay_run(store, f"r{seed}", seed, tasks=4, samples=4, complete=False)
            await commit(store, f"r{seed}", folder)
            report = as_json(summarise(await collect(store, f"r{seed}")))
            for each in report["agents"]:
                where = f"run = 'r{seed}' AND agent = '{each['agent']}'"
                words = ", ".join(f"count(*) FILTER (result = '{word}')" for word in list(each["counts"])[1:])
                (counts,) = await ask(store, f"SELECT count(*), {words} FROM trials WHERE {where}", folder)
                assert counts == tuple(each["counts"].values())
                for name, value in (
                    ("cost_usd", "cost_nano_usd / 1e9"),
                    ("latency_s", "working_s"),
                    ("waiting_s", "waiting_s"),
                    ("steps", "steps"),
                ):
                    graded = f"SELECT {value} AS x FROM trials WHERE {where} AND passed IS NOT NULL"
                    sql = f"SELECT count(x), count(*) - count(x), p50(x), p95(x), p99(x), avg(x) FROM ({graded})"
                    (found,) = await ask(store, sql, folder)
                    dist = each[name]
                    wanted = [dist[key] for key in ("n", "missing", "p50", "p95", "p99", "mean")]
                    assert list(found) == pytest.approx(wanted, rel=1e-12)
                rate = "SELECT avg(r), sum(n) FROM (SELECT avg(passed::INT) AS r, count(passed) AS n FROM trials"
                (found,) = await ask(store, f"{rate} WHERE {where} GROUP BY task)", folder)
                rated = each["pass_rate"]
                assert found[1] == rated["denominator"]
                if rated["value"] is not None:
                    assert found[0] == pytest.approx(rated["value"], rel=1e-12)
            (of_run,) = await ask(store, f"SELECT planned, passed, missing FROM runs WHERE run = 'r{seed}'", folder)
            sums = [sum(each["counts"][word] for each in report["agents"]) for word in ("planned", "passed", "missing")]
            assert list(of_run) == sums

    asyncio.run(story())


def test_every_launch_and_every_check_of_every_grader_is_a_row(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1", 4)
        await commit(store, "r1", folder)
        data = await collect(store, "r1")
        launches = sum(len(row.launches) for row in data.rows)
        checks = sum(len(v.checks) + len(v.invariants) for row in data.rows for v in row.verdicts)
        assert await ask(store, "SELECT count(*) FROM launches", folder) == [(launches,)]
        assert await ask(store, "SELECT count(*) FROM grades", folder) == [(checks,)]
        ended = sum(row.outcome is not None for row in data.rows)
        assert await ask(store, "SELECT count(*) FROM launches WHERE counts", folder) == [(ended,)]
        sql = "SELECT count(*) FROM (SELECT trial_id FROM grades WHERE counts GROUP BY trial_id, grader_digest)"
        assert await ask(store, sql, folder) == [(sum(row.verdict is not None for row in data.rows),)]
        reader = event_reader(store)
        wanted = 0
        for row in data.rows:
            for launch in row.launches:
                if launch.trajectory:
                    wanted += len(step_rows(await reader(launch.trajectory)))
        assert await ask(store, "SELECT count(*) FROM steps", folder) == [(wanted,)]
        joined = "SELECT count(*) FROM steps SEMI JOIN trials USING (trial_id)"
        assert await ask(store, joined, folder) == [(wanted,)]

    asyncio.run(story())


def test_a_trial_without_any_launch_is_a_row_of_nulls_not_of_zeros():
    row = only(tables([])["trials"])
    assert (row["result"], row["passed"], row["launch"], row["steps"], row["cost_nano_usd"]) == (
        "missing",
        None,
        None,
        None,
        None,
    )
    assert (row["launches"], row["spent_nano_usd"], row["models"]) == (0, None, [])


def test_an_unknown_price_is_null_and_never_zero():
    lost = outcome("run-1", FIX, reason="infra_lost", cost=5)
    known = only(tables([lost, outcome("run-1", FIX, launch=2, cost=7)])["trials"])
    assert (known["cost_nano_usd"], known["spent_nano_usd"]) == (7, 12)
    unknown = only(tables([lost, outcome("run-1", FIX, launch=2, cost=None)])["trials"])
    assert (unknown["cost_nano_usd"], unknown["spent_nano_usd"]) == (None, None)


def test_what_users_and_judges_cost_is_in_columns_of_its_own():
    used = outcome("run-1", FIX, cost=7, user_usage=Usage(cost_nano_usd=3))
    found = tables([used], [verdict("run-1", FIX, judge_usage=Usage(cost_nano_usd=5))])
    row, launch = only(found["trials"]), only(found["launches"])
    assert (row["cost_nano_usd"], row["user_cost_nano_usd"], row["judge_cost_nano_usd"]) == (7, 3, 5)
    assert (row["spent_nano_usd"], launch["user_cost_nano_usd"]) == (7, 3)
    unknown = only(tables([outcome("run-1", FIX, cost=1 << 63)], [verdict("run-1", FIX)])["trials"])
    assert [unknown[f"{who}cost_nano_usd"] for who in ("", "user_", "judge_")] == [None, None, None]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("low", ("low", None)), (0.25, (None, 0.25)), (7.5, (None, None)), (float("nan"), (None, None))],
)
def test_a_confidence_that_is_none_is_null(given, wanted):
    final = FinalAnswer(status="completed", confidence=given)
    row = only(tables([outcome("run-1", FIX, ended_as="completed", final=final)])["trials"])
    assert (row["confidence_word"], row["confidence"]) == wanted


def test_a_verdict_without_checks_has_a_row():
    found = tables([outcome("run-1", FIX)], [verdict("run-1", FIX, "grader_error", checks=())])["grades"]
    row = only(found)
    assert (row["verdict"], row["check"], row["position"]) == ("grader_error", None, 0)


def events(*found):
    return [
        Event(seq=seq, t=1000.0 + seq, source=source, type=kind, data=data)
        for seq, (kind, source, data) in enumerate(found)
    ]


def test_calls_belong_to_their_response_and_results_to_their_calls():
    rows = step_rows(
        events(
            ("model_request", "gateway", {"model": "a/b", "conversation": 0}),
            ("model_response", "gateway", {"request": 0, "model": "b-1", "usage": {"completion_tokens": 9}}),
            ("tool_call", "agent", {"request": 0, "id": "x", "name": "shell", "arguments": "{}", "valid": True}),
            ("model_request", "gateway", {"model": "a/b", "conversation": 1}),
            ("model_error", "gateway", {"request": 3, "code": "overloaded"}),
            ("tool_result", "agent", {"id": "x", "content": [{"text": "é"}]}),
            ("tool_result", "agent", {"id": "never asked", "content": "?"}),
            ("finding", "gateway", {}),
        )
    )
    assert [row["type"] for row in rows] == ["model_response", "tool_call", "model_error"]
    answer, call, error = rows
    assert (answer["step"], answer["model"], answer["output"], answer["conversation"]) == (1, "b-1", 9, 0)
    assert (call["step"], call["conversation"], call["result_chars"], call["valid"]) == (1, 0, 14, True)
    assert (error["model"], error["code"], error["conversation"]) == ("a/b", "overloaded", 1)


@pytest.mark.parametrize(
    "data",
    [
        {"request": "0", "id": ["x"], "name": {"a": 1}, "arguments": {"b": [1]}, "valid": "yes"},
        {"request": True, "id": "x" * 10_000, "name": "\x00\u202e" * 500, "arguments": None},
        {"request": 10**30, "model": 7, "usage": [], "seconds": -1, "code": None, "conversation": -4},
        {"usage": {"completion_tokens": 10**40}, "seconds": 1e300, "finish_reason": ["stop"]},
        {},
    ],
)
@pytest.mark.parametrize(
    "kind", ["model_response", "model_error", "tool_call", "refusal", "tool_result", "model_request"]
)
def test_nothing_that_an_agent_or_provider_says_breaks_the_rows(kind, data):
    rows = step_rows(events(("model_request", "gateway", {"conversation": 2**40}), (kind, "gateway", data)))
    launch = outcome("run-1", FIX)
    found = tables([launch], steps={(FIX, 1): rows})["steps"]
    if rows:
        encode(TABLES["steps"], found, "s", "2026-03")
    assert all(len(row["tool"] or "") <= 200 for row in found.to_pylist())


def bad(column, value):
    rows = tables([outcome("run-1", FIX)])["trials"]
    position = rows.column_names.index(column)
    return rows.set_column(position, rows.field(position), pa.array([value], rows.field(position).type))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("result", "won", r"trials\.result: 'won' is none of passed, failed"),
        ("termination_reason", "tired", r"trials\.termination_reason: 'tired' is none of"),
        ("working_s", float("nan"), r"trials\.working_s: a value is NaN or infinite"),
        ("working_s", float("inf"), r"trials\.working_s: a value is NaN or infinite"),
        ("task", None, r"trials\.task: 1 values are missing"),
    ],
)
def test_a_value_outside_of_its_column_is_refused(column, value, message):
    with pytest.raises(StoreError, match=message):
        encode(TABLES["trials"], bad(column, value), "s", "2026-03")


def test_a_number_that_no_column_holds_is_refused_by_name():
    with pytest.raises(StoreError, match="rows of table trials cannot be written"):
        tables([outcome("run-1", FIX, steps=2**63)])


def test_equal_rows_are_equal_bytes_in_whatever_order_they_came():
    made = manifest([task("fix", samples=40)], [agent("careful"), agent("sloppy")])
    rows = arrow_tables(assemble(made, [], []), {})["trials"]
    first = encode(TABLES["trials"], rows, "starter", "2026-03")
    mixed = encode(TABLES["trials"], rows.take(list(range(79, -1, -1))), "starter", "2026-03")
    assert first == mixed
    assert first.part.key == f"datasets/trials/suite=starter/month=2026-03/part-{first.part.sha256}.parquet"


def test_a_part_tells_its_schema_and_what_its_columns_mean():
    part = encode(TABLES["trials"], tables([outcome("run-1", FIX)])["trials"], "starter", "2026-03")
    file = pq.ParquetFile(pa.BufferReader(part.data))
    facts = file.schema_arrow.metadata
    assert facts[b"orchestrate.schema_digest"].decode() == TABLES["trials"].digest() == part.part.schema_digest
    schema = file.schema_arrow
    assert schema.field("result").type == pa.dictionary(pa.int32(), pa.string())
    assert schema.field("created_at").type == pa.timestamp("us", tz="UTC")
    assert schema.field("cost_nano_usd").type == pa.int64()
    assert schema.field("trial_id").type == pa.binary(16)
    assert all(field.metadata[b"doc"] for field in schema)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("name", TABLES)
def test_tables_keep_their_rules(name):
    table = TABLES[name]
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert set(table.sort) <= set(names)
    assert all(column.doc.endswith(".") and column.type in SQL_TYPES for column in table.columns)
    assert all(column.nullable for column in table.columns if column.since > 1), "older parts do not have it"
    assert all(column.since <= table.version for column in table.columns)


@pytest.mark.parametrize("name", TABLES)
def test_the_readme_lists_every_column(name):
    text = (ROOT / "orchestrator/dataset/README.md").read_text()
    section = re.search(rf"(?ms)^### {name}$(.*?)(?=^###? |\Z)", text)
    assert section, f"no section about {name}"
    listed = re.findall(r"(?m)^\| `(\w+)` \| (\w+)(?:, null)? \| (.*?) \|$", section[1])
    wanted = [(column.name, column.type, column.doc.replace("|", "\\|")) for column in TABLES[name].columns]
    assert listed == wanted
