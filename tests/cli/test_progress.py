"""What the progress lines count."""

from __future__ import annotations

import pytest

from orchestrator.cli.progress import Progress
from orchestrator.interfaces import TrialEnd
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.usage import Usage


def end(sample: int) -> TrialEnd:
    trial = TrialId("one", "nop", sample)
    outcome = Outcome(
        run="r",
        trial=str(trial),
        launch=1,
        outcome_class="infra",
        termination_reason="infra_lost",
        usage=Usage(),
        times=Times(started=0, ended=1, working_s=1, waiting_s=0),
        writer_id="w",
    )
    return TrialEnd(trial=trial, outcome=outcome, verdict=None)


def test_what_ended_before_counts_and_the_last_line_is_printed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cli.progress._LINE_EVERY_SECONDS", 0)
    with Progress() as progress:
        progress.begins(5, 3)
        assert progress.line().startswith("3/5  3 before  ")
        progress.ended(end(4))
        progress.ended(end(5))
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("4/5  3 before  1 infra  ")
    assert "left" in first
    assert last.startswith("5/5  3 before  2 infra  ")
    assert "left" not in last
