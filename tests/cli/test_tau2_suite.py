"""Tasks of tau2's domain "mock" as a suite: validated, run and told as any other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

MOCK = Path(__file__).parents[1] / "service/tau2_mock"
SOLVE = """\
#!/bin/sh
# fails: {fails}
set -e
{calls}
"""
CALL = """\
curl -sS --fail-with-body -H "Authorization: Bearer $ORCHESTRATE_TOKEN" -d '{arguments}' "$ORCHESTRATE_GATEWAY/tools/{name}"
"""
GOALS = {
    "create_task_1": (
        "insert into tasks values ('task_2', 'Important Meeting', null, 'pending');\n"
        "insert into user_tasks values ('user_1', 'task_2');\n"
    ),
    "update_task_1": "update tasks set status = 'completed' where task_id = 'task_1';\n",
}

Call = tuple[str, dict[str, Any]]


def script(calls: list[Call], fails: str = "") -> str:
    made = "".join(CALL.format(name=name, arguments=json.dumps(arguments)) for name, arguments in calls)
    return SOLVE.format(fails=fails, calls=made)


def suite(folder: Path) -> Path:
    folder.mkdir()
    (folder / "suite.yaml").write_text("id: mock\ndefaults:\n  environment: {requires: [sh, curl]}\n  world: world/\n")
    for task in json.loads((MOCK / "tasks.json").read_text()):
        if task["id"] in GOALS:
            lay(folder / task["id"].replace("_", "-"), task)
    return folder


def lay(folder: Path, task: dict[str, Any]) -> None:
    gold: list[Call] = [(each["name"], each["arguments"]) for each in task["evaluation_criteria"]["actions"]]
    shutil.copytree(MOCK / "world", folder / "world")
    (folder / "hidden").mkdir()
    (folder / "hidden/goal.sql").write_text(GOALS[task["id"]])
    checks = [{"id": "goal", "type": "db_goal", "goal": "hidden/goal.sql"}]
    invariants = [{"type": "rows_unchanged", "table": "users"}, {"type": "no_irreversible_without_approval"}]
    spec = {"id": folder.name, "instruction": task["ticket"], "checks": checks, "invariants": invariants}
    (folder / "task.yaml").write_text(json.dumps(spec))
    another = [*gold, ("create_task", {"user_id": "user_1", "title": "What nobody asked for"})]
    for name, calls in {"": gold, "wrong-too-much": another}.items():
        (folder / "solution" / name).mkdir(parents=True, exist_ok=True)
        (folder / "solution" / name / "solve.sh").write_text(script(calls, "goal"))


@pytest.mark.long
@pytest.mark.timeout(120)
def test_gold_actions_pass_and_others_fail_through_the_whole_product(orchestrate, tmp_path: Path) -> None:
    made = suite(tmp_path / "mock")
    validated = orchestrate("validate", made)
    assert validated.returncode == 0, validated.stdout + validated.stderr
    ran = orchestrate("submit", made, "--agent", "oracle", "--agent", "nop", "--run-id", "mock1")
    assert ran.returncode == 0, ran.stderr
    passed, failed = (orchestrate("show", "mock1", f"create-task-1@{agent}:1").stdout for agent in ("oracle", "nop"))
    assert "verdict    passed" in passed, passed
    assert 'tasks: there is no row {"task_id": "task_2", "title": "Important Meeting"' in failed, failed
