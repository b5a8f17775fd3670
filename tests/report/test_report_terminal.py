"""What a person sees: endings first, plain in a pipe, fitting on a terminal."""

import re

import pytest
from demo_run import demo, text_of
from rich.cells import cell_len
from run_builder import agent, manifest, outcome, task, verdict

from orchestrator.dataset.rows import assemble
from orchestrator.records.ids import TrialId
from orchestrator.report.jsonform import as_json
from orchestrator.report.summary import summarise

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def test_endings_come_before_any_average():
    text = text_of()
    assert text.index("unhandled_exception") < text.index("pass rate")
    warning = next(line for line in text.split("\n") if "! unhandled_exception" in line)
    assert "5 trials" in warning
    assert "before reading any average" in warning
    assert "config-migration@sloppy:1" in warning


def test_no_warning_when_nothing_is_wrong():
    data = demo()
    quiet = [row.outcome for row in data.rows if row.agent.name == "oracle"]
    made = manifest(data.manifest.tasks, [agent("oracle")], run="demo-1")
    text = text_of(data=assemble(made, quiet, []))
    assert "!" not in text


def test_a_pipe_gets_no_colour_and_whole_lines():
    text = text_of(width=40)
    assert "\x1b" not in text
    assert "…" not in text
    assert "fix-empty-password" in text


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_is_never_overrun(width):
    text = text_of(width=width, terminal=True)
    assert ANSI.search(text)
    lines = ANSI.sub("", text).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert "fix-empty-password" in ANSI.sub("", text)


def test_the_demo_fits_on_one_screen():
    assert len(text_of(width=120, terminal=True).split("\n")) <= 56


def test_many_agents_get_one_column():
    agents = [agent(f"agent-{n}") for n in range(9)]
    outcomes = [outcome("run-1", TrialId("fix", one.name, 1)) for one in agents]
    text = text_of(data=assemble(manifest([task("fix", samples=1)], agents), outcomes, []))
    assert "agent-8 0/0 of 1" in text


def test_the_check_that_fails_most_is_named():
    line = next(line for line in text_of().split("\n") if "config-migration  " in line)
    assert "0/5" in line
    assert "blast_radius (5)" in line


def test_a_refusal_that_was_lost_is_called_by_its_name():
    line = next(line for line in text_of().split("\n") if "decline-refund  " in line)
    assert "(wrong ending) (5)" in line


@pytest.mark.parametrize(
    ("said", "of_verdicts", "told"),
    [
        ("", ("",), "not graded yet"),
        ("0.1.0+a", ("",), "grader 0.1.0+a"),
        ("", ("0.1.0+b",), "grader 0.1.0+b"),
        ("0.1.0+a", ("0.1.0+b", "", "0.1.0+c"), "grader 0.1.0+b | 0.1.0+c"),
    ],
    ids=["nobody says", "before any verdict says", "on a cluster", "upgraded meanwhile"],
)
def test_the_grader_is_named_by_those_who_graded(said, of_verdicts, told):
    made = manifest([task("fix", samples=3)], [agent("a")]).model_copy(update={"grader_version": said})
    trials = [TrialId("fix", "a", n + 1) for n in range(len(of_verdicts))]
    verdicts = [verdict(made.run, t, grader_version=v) for t, v in zip(trials, of_verdicts, strict=True)]
    data = assemble(made, [outcome(made.run, t) for t in trials], verdicts)
    assert f"{told}   " in text_of(data=data, width=400)
    version = as_json(summarise(data))["manifest"]["grader_version"]
    assert (f"grader {version}" if version else "not graded yet") == told
