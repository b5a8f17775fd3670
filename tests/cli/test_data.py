"""``query``, ``rebuild`` and ``export`` as a person uses them, after a run of the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_world import STARTER

RUN = ("submit", STARTER, "--agent", "oracle", "--agent", "nop", "--samples", "1", "--tasks", "config-v2", "--json")


def rows_of(command, sql: str) -> list[dict]:
    done = command("query", sql, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_run_can_be_asked_about_rebuilt_and_exported(orchestrate, in_process, tmp_path: Path) -> None:
    done = orchestrate(*RUN, "--run-id", "r1")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    report = json.loads(done.stdout)

    sql = (
        "SELECT agent, count(*) AS planned, avg(passed::INT) AS rate, p95(working_s) AS p95 FROM trials GROUP BY agent"
    )
    asked = {row.pop("agent"): row for row in rows_of(in_process, sql)}
    for agent in report["agents"]:
        wanted = {"planned": 1, "rate": agent["pass_rate"]["value"], "p95": agent["latency_s"]["p95"]}
        assert asked[agent["agent"]] == pytest.approx(wanted)

    before = rows_of(in_process, "SELECT * FROM trials ORDER BY ALL")
    again = in_process("rebuild", "last")
    assert (again.returncode, "nothing to add" in again.stdout) == (0, True), again.stderr
    shutil.rmtree(tmp_path / ".orchestrate/store/datasets")
    assert rows_of(in_process, "SELECT * FROM trials") == []
    made = json.loads(in_process("rebuild", "r1", "--json").stdout)
    assert (made["added"], made["rows"]["trials"]) == (True, 2)
    assert rows_of(in_process, "SELECT * FROM trials ORDER BY ALL") == before

    exported = in_process("export", "r1", "--format", "csv", "--out", "rows")
    assert exported.returncode == 0, exported.stderr
    assert exported.stdout.splitlines()[:2] == ["rows/runs.csv: 1 row", "rows/trials.csv: 2 rows"]
    assert len((tmp_path / "rows/trials.csv").read_text().splitlines()) == 3
    assert in_process("export", "r1", "--format", "xlsx", "--out", "more").returncode == 2
    assert in_process("export", "r1", "--format", "csv").returncode == 2
    assert "no format 'otle' (did you mean 'otel'?)" in in_process("export", "r1", "--format", "otle").stderr
    for kind, count in (("otel", 2), ("atif", 2), ("inspect", 2)):
        exported = in_process("export", "r1", "--format", kind, "--out", kind)
        assert exported.stdout == f"2 trials of r1 to {kind}\n", exported.stderr
        assert len(list((tmp_path / kind).iterdir())) == count


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_dataset_that_cannot_be_written_is_a_warning_and_the_run_is_kept(
    orchestrate, in_process, tmp_path: Path
) -> None:
    in_the_way = tmp_path / ".orchestrate/store/datasets"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where a folder must be")
    done = orchestrate(*RUN, "--run-id", "r1")
    assert done.returncode == 0
    assert json.loads(done.stdout)["agents"][0]["counts"]["passed"] == 1
    assert "warning: the dataset has no rows of this run yet" in done.stderr
    assert "orchestrate rebuild r1" in done.stderr
    in_the_way.unlink()
    assert in_process("rebuild", "r1").returncode == 0
    assert rows_of(in_process, "SELECT count(*) AS n FROM trials") == [{"n": 2}]


@pytest.mark.timeout(60)
def test_mistakes_in_sql_are_told_and_end_with_2(in_process) -> None:
    for sql, words in (
        ("SELECT", "SQL: "),
        ("SELECT nope FROM trials", 'column "nope" not found'),
        ("COPY trials TO 'x'", "reads the dataset and changes nothing"),
        ("SELECT task, task FROM trials", "two columns are named 'task'"),
    ):
        done = in_process("query", sql, "--json")
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.timeout(60)
def test_values_are_plain_lines_in_a_pipe_and_plain_json(in_process) -> None:
    sql = "SELECT 'a\tb\x1b[31m' AS text, NULL AS n, 'nan'::DOUBLE AS x, '\\x01\\xff'::BLOB AS b, [1, 2] AS l"
    sql += ", TIMESTAMPTZ '2026-03-02 09:00:00Z' AS t"
    lines = in_process("query", sql).stdout.splitlines()
    assert lines[0] == "text\tn\tx\tb\tl\tt"
    assert lines[1] == "a    b\\x1b[31m\tnull\tnull\t01ff\t[1, 2]\t2026-03-02T09:00:00+00:00"
    (row,) = rows_of(in_process, sql)
    assert row == {
        "text": "a\tb\x1b[31m",
        "n": None,
        "x": None,
        "b": "01ff",
        "l": [1, 2],
        "t": "2026-03-02T09:00:00+00:00",
    }


def test_booleans_are_shown_as_sql_writes_them(orchestrate) -> None:
    done = orchestrate("query", "SELECT true AS yes, false AS no, NULL AS unknown")
    assert done.stdout.splitlines() == ["yes\tno\tunknown", "true\tfalse\tnull"], done.stderr


def test_a_list_without_runs_names_the_store(orchestrate, tmp_path: Path) -> None:
    assert f"the store {tmp_path}/elsewhere has no run yet" in orchestrate("list", "--store", "elsewhere").stderr
