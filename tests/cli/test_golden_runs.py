"""Golden runs: kept beside a task, compared with what trials do; recordings and clocks that make trials the same on any day."""

from __future__ import annotations

import json
import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest
from cli_world import clean_environment

OPS = Path(__file__).resolve().parents[2] / "tasks/ops"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Some tasks of ``ops``, under ``tasks/ops`` of the current folder."""
    folder = tmp_path / "tasks/ops"
    folder.mkdir(parents=True)
    shutil.copy(OPS / "suite.yaml", folder)
    for task in ("refund-lost-answer", "invoices-overdue", "vendor-research"):
        shutil.copytree(OPS / task, folder / task)
    return folder


def submitted(orchestrate, name: str, *more: str, samples: int = 1) -> None:
    words = ["--agent", "oracle", "--samples", str(samples), "--run-id", name, *more]
    done = orchestrate("submit", "tasks/ops", *words, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.timeout(200)
def test_what_a_person_accepted_is_kept_and_compared(orchestrate, suite: Path) -> None:
    submitted(orchestrate, "first", "--agent", "nop", "--tasks", "refund-lost-answer")
    none = orchestrate("golden", "diff", "first")
    assert none.returncode == 2
    assert "keep one with `orchestrate golden accept`" in none.stderr
    kept = orchestrate(
        "golden", "accept", "first", "refund-lost-answer@oracle", "--reason", "as the policy says", "--by", "ann"
    )
    assert kept.returncode == 0, kept.stderr
    file = suite / "refund-lost-answer/golden/accepted.json"
    golden = json.loads(file.read_text())
    assert (golden["by"], golden["reason"], [move["outcome"] for move in golden["moves"]]) == (
        "ann", "as the policy says", ["ok", "gateway_timeout", "ok"],
    )  # fmt: skip
    again = orchestrate("golden", "accept", "first", "refund-lost-answer@oracle")
    assert again.returncode == 2
    assert "is there already" in again.stderr
    submitted(orchestrate, "second", "--tasks", "refund-lost-answer")  # the task is still the same one
    same = orchestrate("golden", "diff", "second", "--json")
    [told] = json.loads(same.stdout)["trials"]
    assert (told["same_trajectory"], told["comparable"], told["departure"]) == (True, True, None)
    lines = orchestrate("golden", "diff", "first").stdout
    assert "refund-lost-answer@nop:1     leaves accepted at move 1 of 3: ended early; did not come back" in lines, lines
    file.write_text("{}")
    broken = orchestrate("golden", "diff", "second")
    assert broken.returncode == 2
    assert "golden/accepted.json: is no golden run" in broken.stderr


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_recorded_task_is_the_same_twenty_times(orchestrate, suite: Path) -> None:
    task = suite / "refund-lost-answer"
    raw = (task / "task.yaml").read_text()
    (task / "task.yaml").write_text(
        raw + "fixtures: {cassette: fixtures/calls.jsonl, tools: [get_order], volatile: [asked_at]}\n"
    )
    recorded = orchestrate("record", "tasks/ops/refund-lost-answer")
    assert recorded.returncode == 0, recorded.stderr
    submitted(orchestrate, "replayed", "--tasks", "refund-lost-answer", samples=20)
    assert orchestrate("golden", "accept", "replayed", "refund-lost-answer@oracle:1").returncode == 0
    told = json.loads(orchestrate("golden", "diff", "replayed", "--json").stdout)["trials"]
    assert [trial["same_trajectory"] for trial in told] == [True] * 20
    solve = task / "solution/solve.sh"
    solve.write_text(solve.read_text().replace('"order_id": "O-7719"}\'', '"order_id": "O-7712"}\'', 1))
    submitted(orchestrate, "changed", "--tasks", "refund-lost-answer")
    shown = orchestrate("show", "changed", "refund-lost-answer@oracle:1").stdout
    assert "fixture_miss" in shown
    assert "O-7719" in shown.split("fixture_miss", 1)[1], shown
    assert (
        "leaves accepted" in (lines := orchestrate("golden", "diff", "changed").stdout) or "single difference" in lines
    )


@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.skipif(find_spec("libfaketime") is None, reason="the extra clock is not installed")
def test_a_task_with_a_clock_is_the_same_on_another_day(orchestrate, suite: Path, tmp_path: Path) -> None:
    from orchestrator.sandbox.clock import library, shown

    found = library(time.time())
    assert found is not None
    submitted(orchestrate, "today", "--tasks", "invoices-overdue")
    assert orchestrate("golden", "accept", "today", "invoices-overdue").returncode == 0
    later = {**clean_environment(), **shown(200 * 86_400, str(found))}
    words = [
        "submit",
        "tasks/ops",
        "--agent",
        "oracle",
        "--samples",
        "1",
        "--run-id",
        "later",
        "--tasks",
        "invoices-overdue",
    ]
    done: CompletedProcess[str] = run(
        [sys.executable, "-m", "orchestrator", *words], cwd=tmp_path, env=later, capture_output=True, text=True, timeout=100, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [told] = json.loads(orchestrate("golden", "diff", "later", "--json").stdout)["trials"]
    assert told["same_trajectory"] is True, told
    manifests = [json.loads(path.read_text()) for path in sorted(tmp_path.rglob("manifest.json"))]
    days = {each["created_at"][:10] for each in manifests}
    assert len(days) == 2
    [remembered] = {task["memory"] for each in manifests for task in each["tasks"]}
    assert remembered.startswith("sha256:")
    assert "memory: watched" in orchestrate("show", "later", "invoices-overdue").stdout
