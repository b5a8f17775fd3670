"""A fail after a tool call without a recorded answer says nothing about the agent, wherever results are read."""

import asyncio
import io

import pytest
from demo_run import text_of
from hostile_state import bundle
from rich.console import Console
from run_builder import agent, manifest, outcome, task, verdict

from orchestrator.dataset.rows import assemble
from orchestrator.dataset.tables import arrow_tables
from orchestrator.records.ids import TrialId
from orchestrator.records.verdict import has_left_recording
from orchestrator.report.jsonform import as_json
from orchestrator.report.show import show_trial
from orchestrator.report.summary import summarise
from orchestrator.storage.file import FileStore
from orchestrator.wiring import event_reader


def run_of(*trials):
    """Return a run of one task from pairs: what the grader said, calls without a recorded answer."""
    names = [TrialId("t", "a", sample) for sample in range(1, len(trials) + 1)]
    outcomes = [
        outcome("r", name, ended_as="completed", fixture_misses=misses)
        for name, (_, misses) in zip(names, trials, strict=True)
    ]
    verdicts = [verdict("r", name, result) for name, (result, _) in zip(names, trials, strict=True)]
    return assemble(manifest([task("t", samples=len(trials))], [agent("a")], run="r"), outcomes, verdicts)


@pytest.mark.parametrize(
    ("result", "misses", "left"),
    [("failed", 1, True), ("failed", 0, False), ("passed", 1, False), ("abstained", 1, False), ("infra", 1, False)],
)
def test_only_a_fail_after_a_miss_cannot_be_judged(result, misses, left):
    assert has_left_recording(result, outcome("r", TrialId("t", "a", 1), fixture_misses=misses)) is left
    assert not has_left_recording(result, None)


def test_a_report_counts_them():
    data = run_of(("failed", 2), ("failed", 0), ("passed", 3), ("failed", 1))
    found = as_json(summarise(data))
    assert found["agents"][0]["left_recording"] == 2
    assert found["tasks"][0]["left_recording"] == 2
    assert found["tasks"][0]["counts"]["failed"] == 3
    assert "a: 2 failed trials cannot be judged: a tool call had no recorded answer" in text_of(data=data)
    assert "cannot be judged" not in text_of(data=run_of(("failed", 0), ("passed", 1)))


def test_rows_and_show_say_it(tmp_path):
    data = run_of(("failed", 2), ("passed", 1))
    rows = arrow_tables(data, {})["trials"].to_pylist()
    assert [(row["fixture_misses"], row["left_recording"]) for row in rows] == [(2, True), (1, False)]
    out, store = io.StringIO(), FileStore(tmp_path / "store")
    show = show_trial(
        store, bundle(tmp_path), event_reader(store), data, TrialId("t", "a", 1), Console(file=out, width=200)
    )
    assert asyncio.run(show)["left_recording"] is True
    assert "recording  left by 2 tool calls without a recorded answer" in out.getvalue()
    assert "it cannot be judged" in out.getvalue()
