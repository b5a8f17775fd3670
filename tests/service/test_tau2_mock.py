"""The domain "mock" of tau2 as a world: the gold actions of its tasks make the goal state, and wrong actions do not."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from grader_world import GraderWorld, lines

from grader_service.programs import Programs
from orchestrator.gateway.worlds.engine import WorldEngine
from orchestrator.sandbox.world.command import COMMAND
from orchestrator.spec.world import World

sys.path.append(str(Path(__file__).parents[1] / "gateway/worlds"))

from world_world import bundle

HERE = Path(__file__).parent / "tau2_mock"
SEED = (HERE / "world/seed.sql").read_text()
TOOLS = yaml.safe_load((HERE / "world/tools.yaml").read_text())["tools"]
TASKS = {task["id"]: task for task in json.loads((HERE / "tasks.json").read_text())}

MEETING = "insert into tasks values ('task_2', 'Important Meeting', null, 'pending'); insert into user_tasks values ('user_1', 'task_2');"
REVIEW = """
insert into tasks values ('task_2', 'Project Review', 'Review Q4 project status', 'pending');
insert into user_tasks values ('user_1', 'task_2');
"""
NOTIFIED = (
    "insert into notifications values ('notif_1', 'Task ''Test task'' has been assigned to you.', 'task_1', 'unread');"
)
DONE = "update tasks set status = 'completed' where task_id = '{}';"
GOALS = {
    # What is there before, and the goal.
    "create_task_1": ("", MEETING),
    "create_task_1_with_env_assertions": ("", MEETING),
    "update_task_1": ("", DONE.format("task_1")),
    "update_task_with_message_history": (REVIEW, DONE.format("task_2")),
    "update_task_with_initialization_data": (REVIEW, DONE.format("task_2")),
    "update_task_with_initialization_actions": (REVIEW, DONE.format("task_2")),
    "update_task_with_user_tools": (NOTIFIED, DONE.format("task_1") + "update notifications set status = 'read';"),
    "impossible_task_1": ("", "-- nothing changes"),
}
HANDED_OVER = {"id": "handed_over", "type": "outbox", "to": "human_agents", "min_count": 1, "max_count": 1}

Call = tuple[str, dict[str, Any]]
DISMISS: Call = ("dismiss_notification", {"notification_id": "notif_1"})


def gold(task: str) -> list[Call]:
    return [(each["name"], each["arguments"]) for each in TASKS[task]["evaluation_criteria"].get("actions", ())]


def of_the_user(task: str) -> list[Call]:
    return [DISMISS] if "notif_1" in json.dumps(TASKS[task]) else []


def left_by(folder: Path, seed: str, calls: list[Call]) -> bytes:
    """Make the calls in the world as a gateway would; return the database that is left."""

    async def live() -> bytes:
        made, world = bundle(folder / "bundle", *TOOLS, seed=seed)
        engine = WorldEngine(COMMAND, folder / "worlds")
        try:
            launch = await engine.open("launch", made, world, now=None, seed=1)
            for number, (name, arguments) in enumerate(calls):
                await launch.call(name, arguments, request=str(number), caller=_caller(world, name))
            return (await launch.snapshot()).read_bytes()
        finally:
            await engine.close()

    return asyncio.run(live())


def _caller(world: World, name: str) -> str:
    return next((tool.caller for tool in world.tools if tool.name == name), "agent")


def passes(folder: Path, programs: Programs, task: str, calls: list[Call]) -> bool:
    """Whether the calls, and what the user does then, leave what the task wants."""
    before, goal = GOALS[task]
    seed = SEED + before
    data = left_by(folder / "calls", seed, [*calls, *of_the_user(task)])
    world = GraderWorld(folder / "g", programs)
    checks = [
        {"id": "goal", "type": "db_goal", "goal": "hidden/goal.sql"},
        *[HANDED_OVER] * (task == "impossible_task_1"),
    ]
    users = {"type": "rows_unchanged", "id": "users", "table": "users"}
    world.task({}, checks, invariants=[users], hidden={"goal.sql": goal}, seed=seed, world="world/")
    world.left({}, world=data)
    verdict = world.grade()
    assert verdict.error is None, lines(verdict)
    return all(result.passed for result in (*verdict.checks, *verdict.invariants))


def test_the_seed_is_the_domains_database() -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    connection.executescript(SEED)
    theirs = json.loads((HERE / "db.json").read_text())
    tasks = {row["task_id"]: dict(row) for row in connection.execute("select * from tasks")}
    users = {row["user_id"]: dict(row) for row in connection.execute("select * from users")}
    for name, user in users.items():
        held = connection.execute("select task_id from user_tasks where user_id = ?", (name,))
        user["tasks"] = [task for (task,) in held]
    connection.close()
    assert {"tasks": tasks, "users": users} == theirs


def test_every_task_whose_database_counts_is_here() -> None:
    assert set(GOALS) == {name for name in TASKS if gold(name)}


@pytest.mark.parametrize("task", GOALS)
def test_gold_actions_make_the_goal(short_folder: Path, programs: Programs, task: str) -> None:
    assert passes(short_folder, programs, task, gold(task))


CREATE: Call = gold("create_task_1")[0]
FIRST_DONE: Call = ("update_task_status", {"task_id": "task_1", "status": "completed"})
WRONG: dict[str, tuple[str, list[Call]]] = {
    "nothing is done": ("create_task_1", []),
    "done twice": ("create_task_1", [CREATE, CREATE]),
    "another title": ("create_task_1", [("create_task", CREATE[1] | {"title": "important meeting"})]),
    "a description of its own": ("create_task_1", [("create_task", CREATE[1] | {"description": "soon"})]),
    "for nobody": ("create_task_1", [("create_task", CREATE[1] | {"user_id": "user_2"})]),
    "another task": ("update_task_with_message_history", [FIRST_DONE]),
    "one task too many": ("update_task_with_message_history", [*gold("update_task_with_message_history"), FIRST_DONE]),
    "a status of its own": ("update_task_1", [("update_task_status", {"task_id": "task_1", "status": "deleted"})]),
    "the agent does what is the user's": ("update_task_with_user_tools", [DISMISS]),
    "nobody is told": ("impossible_task_1", []),
    "told, and done something": ("impossible_task_1", [*gold("impossible_task_1"), FIRST_DONE]),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_actions_do_not(short_folder: Path, programs: Programs, wrong: str) -> None:
    task, calls = WRONG[wrong]
    assert not passes(short_folder, programs, task, calls)
