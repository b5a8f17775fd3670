"""Two ids for one model are said, since then the trials are no samples of one thing."""

from __future__ import annotations

import pytest
from run_builder import agent, outcome, task

from orchestrator.dataset.rows import TrialRow
from orchestrator.records.ids import TrialId
from orchestrator.report.model_ids import about_models

ONE = agent("one", models={"main": "p/m"})
TWO = agent("two", models={"main": "p/m", "small": "p/s"})


def rows(who, *ids):
    """Trials of an agent, each answered by these models."""
    made = []
    for number, models in enumerate(ids, 1):
        trial = TrialId("t", who.name, number)
        ended = outcome("run-1", trial).model_copy(update={"models": models})
        made.append(
            TrialRow(
                trial=trial, task=task("t"), agent=who, result="passed", graded_as="passed", outcome=ended, verdict=None
            )
        )
    return made


@pytest.mark.parametrize(
    "found", [rows(ONE, ("m-1",), ("m-1",)), rows(TWO, ("m-1", "s-1"), ("m-1",)), rows(ONE, (), ("m-1",))]
)
def test_one_id_for_each_model_is_nothing_to_say(found):
    assert list(about_models(found)) == []


def test_two_ids_for_one_model_are_said_with_their_trials():
    [said] = about_models([*rows(ONE, ("m-1",), ("m-2",), ("m-2",)), *rows(TWO, ("m-1", "s-1"))])
    assert said.startswith("agent one: 2 model ids came back for 1 model (m-1 in 1 trial, m-2 in 2 trials); compare")


def test_many_ids_are_cut():
    [said] = about_models(rows(ONE, *((f"m-{n:02}",) for n in range(12))))
    assert "m-07 in 1 trial, and 4 others)" in said
