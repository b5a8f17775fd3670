"""The suite over worlds: every task has a goal for its database, rows that stay, mistakes that are caught, and hides what it must hide."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.spec.load import load_suite
from orchestrator.spec.loaded import LoadedSuite
from orchestrator.spec.task import flat_checks

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tasks" / "ops"
TASKS = sorted(path.parent.name for path in SUITE.glob("*/task.yaml"))


@pytest.fixture(scope="module")
def suite() -> LoadedSuite:
    return load_suite(SUITE)


def test_every_folder_is_a_task(suite: LoadedSuite) -> None:
    assert [task.task.id for task in suite.tasks] == TASKS
    assert len(TASKS) >= 12


def test_what_the_suite_is_about(suite: LoadedSuite) -> None:
    tasks = [task.task for task in suite.tasks]
    assert {task.expect for task in tasks} == {"complete", "decline", "ask_then_complete"}
    assert {task.tier for task in tasks} == {2, 3, 4}
    assert any(task.fixtures for task in tasks)
    assert any(task.environment.now and task.environment.memory for task in tasks)
    assert all(task.origin is not None for task in tasks)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_goal_rows_that_stay_and_two_mistakes(suite: LoadedSuite, name: str) -> None:
    [task] = [each for each in suite.tasks if each.task.id == name]
    assert "db_goal" in {check.type for check in flat_checks(task.task.checks)}
    assert "rows_unchanged" in {invariant.type for invariant in task.task.invariants}
    assert len(task.wrong) >= 2
    assert {"policy", "README.md"} & {path.name for path in (task.folder / "workspace").iterdir()}


def test_faults_approvals_and_messages_are_among_the_tools() -> None:
    tools = "\n".join(path.read_text() for path in SUITE.glob("*/world/tools.yaml"))
    for word in ("effect: done", "status: 500", "requires_approval", "irreversible: true", "outbox:", "page:", "message: {to:"):
        assert word in tools, word
