"""The table of trials: what a filter means, what is counted beside it, and how rows are ordered."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from view_world import demo, many

from orchestrator.errors import SpecError
from orchestrator.report.jsonform import as_json
from orchestrator.report.summary import summarise
from orchestrator.view.filter import KEYS, hay_of, parse
from orchestrator.view.trials import SORTS, neighbours, row_json, trial_table

RUN = demo()
HAYS = [hay_of(row) for row in RUN.rows]


def table(query="", sort="", begin=0, count=500):
    return trial_table(RUN, HAYS, query, sort, begin, count)


def names(query="", sort=""):
    return [row["trial"] for row in table(query, sort)["rows"]]


def test_without_a_filter_every_trial_is_there_in_the_order_of_the_run():
    assert names() == [str(row.trial) for row in RUN.rows]


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("agent:careful result:failed", lambda row: row.trial.agent == "careful" and row.result == "failed"),
        ("agent:careful agent:oracle", lambda row: row.trial.agent in {"careful", "oracle"}),
        ("-agent:careful", lambda row: row.trial.agent != "careful"),
        ("task:fix-*", lambda row: row.trial.task.startswith("fix-")),
        ("ending:step_cap", lambda row: row.outcome.termination_reason == "step_cap"),
        ("check:blast_radius", lambda row: "blast_radius" in row.failed_checks),
        ("finding:special_file", lambda row: any(one.type == "special_file" for one in row.outcome.findings)),
        ("lost:*", lambda row: any(one.outcome_class == "infra" for one in row.launches)),
        ("workspace/PIPE", lambda row: any("pipe" in one.detail for one in row.outcome.findings)),
        ('-"fix-rounding@" tier:1', lambda row: row.task.tier == 1 and row.trial.task != "fix-rounding"),
    ],
)
def test_a_filter_leaves_the_trials_that_it_says(query, fits):
    wanted = [str(row.trial) for row in RUN.rows if fits(row)]
    assert wanted
    assert names(query) == wanted


@pytest.mark.parametrize("query", ["agnt:careful", "http://x", "x " * 60, "x" * 3000])
def test_a_filter_that_cannot_be_meant_is_refused(query):
    with pytest.raises(SpecError):
        parse(query)


def test_a_key_that_is_nearly_right_is_named():
    with pytest.raises(SpecError, match="'agent'"):
        parse("agnt:x")


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_is_refused(text):
    try:
        found = parse(text)
    except SpecError:
        return
    assert all(word.key is None or word.key in KEYS for word in found.words)
    trial_table(RUN, HAYS, text, "", 0, 3)


def test_facets_say_what_one_more_word_would_leave():
    found = table("agent:careful")["facets"]
    for key in ("result", "task", "ending", "check"):
        for value, count in found[key].items():
            assert len(names(f"agent:careful {key}:{value}")) == count
    assert found["agent"] == {"careful": 60, "oracle": 60, "sloppy": 60}  # another agent instead


def test_rates_of_a_selection_by_design_are_those_of_the_report():
    assert table("task:*")["agents"] == as_json(summarise(RUN))["agents"]
    assert table()["agents"] is None  # the run itself has them
    (careful,) = table("agent:careful")["agents"]
    assert careful == next(one for one in as_json(summarise(RUN))["agents"] if one["agent"] == "careful")
    (tier,) = table("agent:careful tier:1")["agents"]
    assert tier["counts"]["planned"] == 10
    assert tier["pass_rate"]["denominator"] == 10


@pytest.mark.parametrize("query", ["result:passed", "ending:completed", "some text", "-check:answer"])
def test_a_selection_by_what_came_of_the_trials_has_no_rate(query):
    found = table(query)
    assert found["agents"] is None
    assert sum(found["counts"].values()) == 2 * found["total"]


@pytest.mark.parametrize("sort", [*SORTS, *(f"-{name}" for name in SORTS)])
def test_sorting_loses_nothing_and_puts_what_is_unknown_last(sort):
    assert sorted(names(sort=sort)) == sorted(names())
    values = [SORTS[sort.removeprefix("-")](row) for row in _rows(names(sort=sort))]
    known = [value for value in values if value is not None]
    assert values[: len(known)] == sorted(known, reverse=sort[0] == "-")


def _rows(trials):
    every = {str(row.trial): row for row in RUN.rows}
    return [every[name] for name in trials]


def test_an_unknown_column_is_refused():
    with pytest.raises(SpecError, match="columns: result"):
        table(sort="colour")


def test_neighbours_are_those_of_the_table():
    shown = names("agent:careful", "-worked")
    beside = neighbours(RUN, HAYS, "agent:careful", "-worked", shown[3])
    assert beside == {"total": 60, "place": 4, "previous": shown[2], "next": shown[4]}
    assert neighbours(RUN, HAYS, "agent:oracle", "", shown[3])["place"] is None
    assert neighbours(RUN, HAYS, "agent:careful", "-worked", shown[0])["previous"] is None
    assert neighbours(RUN, HAYS, "agent:careful", "-worked", shown[-1])["next"] is None


def test_a_piece_of_a_large_table_holds_its_rows_alone():
    data = many()
    hays = [hay_of(row) for row in data.rows]
    found = trial_table(data, hays, "result:failed", "-cost", 100, 50)
    assert found["of"] == 5000
    assert len(found["rows"]) == 50
    costs = [row["cost_nano_usd"] for row in found["rows"]]
    assert costs == sorted(costs, reverse=True)


def test_what_nobody_recorded_is_unknown_and_not_zero():
    first = RUN.rows[0]
    imported = first.outcome.model_copy(update={"unrecorded": ("tokens", "times", "waiting")})
    row = row_json(replace(first, outcome=imported))
    assert [row[name] for name in ("tokens", "worked_s", "waited_s", "ended")] == [None] * 4
    assert row_json(first)["worked_s"] is not None
