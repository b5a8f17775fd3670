"""The question before a run that may cost much."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli.confirm import confirm
from orchestrator.driver.estimate import Estimate, PairEstimate
from orchestrator.driver.limits import InForce
from orchestrator.errors import StoppedError
from orchestrator.settings import Settings, load_settings
from orchestrator.spec.submission import RunLimits

PAIR = PairEstimate(
    task="t",
    agent="a",
    trials=1,
    basis="none",
    cost=None,
    working_s=None,
    most=5 * 10**9,
    unpriced=(),
    charged=True,
)
COSTLY = Estimate(pairs=(PAIR,), concurrency=1, in_force=InForce(RunLimits()))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input; what is written to the descriptor is typed."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as file:
        monkeypatch.setattr(sys, "stdin", file)
        yield ours
    os.close(ours)


def settings(folder: Path, over: float) -> Settings:
    return load_settings(folder, environ={}, overrides={"confirm_over_usd": over})


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_a_yes_starts_the_run(terminal: int, tmp_path: Path, capsys, answer: str) -> None:
    os.write(terminal, answer.encode())
    asyncio.run(confirm(COSTLY, settings(tmp_path, 4.99), yes=False))
    assert "may cost $5.00, which is above confirm_over_usd ($4.99). Start it? [y/N] " in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["\n", "n\n", "yesno\n", "\x04"])
def test_anything_else_starts_nothing(terminal: int, tmp_path: Path, answer: str) -> None:
    os.write(terminal, answer.encode())
    with pytest.raises(StoppedError, match="nothing was started"):
        asyncio.run(confirm(COSTLY, settings(tmp_path, 0), yes=False))


def test_the_question_can_be_left(terminal: int, tmp_path: Path) -> None:
    async def live() -> None:
        asked = asyncio.create_task(confirm(COSTLY, settings(tmp_path, 0), yes=False))
        await asyncio.sleep(0)
        asked.cancel()
        await asked

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(live())


@pytest.mark.parametrize(("over", "yes"), [(5, False), (0, True)])
def test_what_is_cheap_or_agreed_to_is_not_asked(tmp_path: Path, capsys, over: float, yes: bool) -> None:
    asyncio.run(confirm(COSTLY, settings(tmp_path, over), yes=yes))
    assert capsys.readouterr().err == ""


def test_without_a_terminal_a_costly_run_needs_yes(in_process, tmp_path: Path) -> None:
    (tmp_path / "suite/one").mkdir(parents=True)
    (tmp_path / "suite/suite.yaml").write_text("id: suite\n")
    (tmp_path / "suite/one/task.yaml").write_text(
        "id: one\ninstruction: Do it.\nbudgets: {max_cost_usd: 6}\n"
        "checks: [{id: done, type: files, path: done, exists: true}]\n"
    )
    (tmp_path / "orchestrate.toml").write_text(
        '[providers.local]\nbase_url = "http://127.0.0.1:1"\n[prices."local/m"]\ninput = 1\noutput = 1000\n'
    )
    words = ("submit", "suite", "--model", "local/m", "--samples", "2")
    done = in_process(*words)
    assert done.returncode == 2
    assert "at most: $12.00 by the budgets of the tasks" in done.stderr
    assert "local/m: $1 in, $1000 out, for a million tokens, by orchestrate.toml" in done.stderr
    assert "may cost $12.00" in done.stderr
    assert "--yes" in done.stderr
    assert not (tmp_path / ".orchestrate/store/runs").exists()
    plan = json.loads(in_process(*words, "--dry-run", "--json").stdout)
    assert plan["planned"][0] == {
        "task": "one",
        "agent": "react",
        "trials": 2,
        "basis": "none",
        "cost_usd": None,
        "working_s": None,
        "at_most_usd": 6.0,
    }
    assert plan["estimate"]["at_most_usd"] == 12.0
    [price] = plan["estimate"]["prices"]
    assert (price["model"], price["price"]["output"], price["source"]) == ("local/m", 1000, "orchestrate.toml")
    assert plan["limits"] == {"trials": None, "cost_usd": None}
    words = ("submit", "suite", "--model", "local/n", "--dry-run")
    assert (
        "agent react: local/n has no known price (genai-prices 0.2.3 knows no provider 'local'), and task one limits it; "
        'give [prices."local/n"] in orchestrate.toml, give prices in the agent file, or take the limit out'
    ) in in_process(*words).stderr
