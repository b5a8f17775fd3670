"""What the progress lines count."""

from __future__ import annotations

import pytest

from orchestrator.cli.progress import Progress
from orchestrator.driver.tally import Tally
from orchestrator.interfaces import Spending, TrialEnd
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.usage import Usage


def end(sample: int, cost: int | None = None) -> TrialEnd:
    trial = TrialId("one", "nop", sample)
    outcome = Outcome(
        run="r",
        trial=str(trial),
        launch=1,
        outcome_class="infra",
        termination_reason="infra_lost",
        usage=Usage(cost_nano_usd=cost),
        times=Times(started=0, ended=1, working_s=1, waiting_s=0),
        writer_id="w",
    )
    return TrialEnd(trial=trial, outcome=outcome, verdict=None)


def test_what_ended_before_counts_and_the_last_line_is_printed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cli.screen._LINE_EVERY_SECONDS", 0)
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


def test_spend_counts_what_runs_and_what_was_spent_before(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(spent=200_000_000, limit=1_000_000_000)
    progress.begins(5, 3)
    assert "$0.20 of $1.00" in progress.line()
    progress.spending(Spending(running=2, steps=7, cost_nano_usd=30_000_000))
    assert "7 model responses  $0.23 of $1.00" in progress.line()
    progress.ended(end(4, cost=40_000_000))  # the gateway is asked now and then only, or was started anew
    assert "$0.24 of $1.00" in progress.line()
    assert "$" not in Progress().line()


def test_a_long_trial_shows_its_spend_when_piped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cli.screen._LINE_EVERY_SECONDS", 0)
    progress = Progress()
    progress.begins(1, 0)
    for steps in (0, 3, 3):
        progress.spending(Spending(running=1, steps=steps, cost_nano_usd=steps * 10_000_000))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("0/1  3 model responses  $0.03")


@pytest.mark.parametrize(("passed", "shown"), [(0, "0 s"), (119, "119 s"), (120, "2 min 00 s"), (3725, "62 min 05 s")])
def test_the_time_that_passed(monkeypatch: pytest.MonkeyPatch, passed: int, shown: str) -> None:
    monkeypatch.setattr("orchestrator.cli.progress.time.monotonic", lambda: 1000.0)
    progress = Progress()
    monkeypatch.setattr("orchestrator.cli.progress.time.monotonic", lambda: 1000.0 + passed)
    assert progress.line() == f"0/0  {shown}"


def test_what_trials_wait_for_is_in_the_line_and_in_the_sign_of_life(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cli.screen._LINE_EVERY_SECONDS", 0)
    progress = Progress()
    tally = Tally(progress)
    tally.begins(4, 0)
    tally.ended(end(1))
    capsys.readouterr()
    for sample in (2, 3, 4):
        tally.phase(TrialId("one", "nop", sample), "starting")
        tally.waits(TrialId("one", "nop", sample), "no room" if sample > 2 else "a slow pull")
    assert tally.status().waits == {"no room": 2, "a slow pull": 1}
    said = "2 trials wait: no room; 1 trial waits: a slow pull"
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(said)
    assert "left" not in line
    tally.phase(TrialId("one", "nop", 2), "running")
    tally.waits(TrialId("one", "nop", 3), "")
    assert tally.status().waits == {"no room": 1}
    assert "left" in progress.line()
    assert progress.line().endswith("1 trial waits: no room")
