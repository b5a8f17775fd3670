"""A launch with a world: its tools by HTTP and MCP, its database in the seal, and what a killed gateway leaves of both."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tcp_world import Pod
from test_service_processes import Served
from world_world import CANCEL, GET, SEED, tool

from orchestrator.records.outcome import Seal
from orchestrator.sandbox.world.command import COMMAND
from orchestrator.spec.bundle import Bundle, Item, task_json
from orchestrator.spec.task import Task
from orchestrator.spec.world import World
from orchestrator.storage.bundles import publish
from orchestrator.trace.read import read_events

NUMBERS = "with recursive r(n) as (select 1 union all select n + 1 from r where n < 30000)"
MOVE = tool(
    "move",
    sql=[
        "update orders set cents = cents - 100 where id = 'o1'",
        f"{NUMBERS} update orders set status = (select max(n) from r) where id = 'o3'",
        "update orders set cents = cents + 100 where id = 'o2'",
    ],
)


def bundle(*tools: Any, now: str | None = None, functions: str = "", **more: Any) -> Bundle:
    world = World.model_validate_json(json.dumps({"tools": tools, **more}))
    task = Task.model_validate_json(
        json.dumps(
            {
                "id": "task-1",
                "instruction": "x",
                "world": "world/",
                "checks": [{"id": "d", "type": "diff", "allow": []}],
            }
        )
    )
    shown = json.loads(task_json(task)) | {"now": now}
    return Bundle.of(
        [
            Item("task.json", data=json.dumps(shown).encode()),
            Item("world.json", data=world.model_dump_json().encode()),
            Item("world/seed.sql", data=SEED.encode()),
            Item("world/tools.py", data=functions.encode()),
        ]
    )


def rows(data: bytes, sql: str) -> list[Any]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def world_of(store: Any, seal: Seal) -> bytes:
    assert seal.world is not None
    return bytes(await store.get(seal.world.key))


def lay(here: Any, digest: str, made: Bundle) -> None:
    here.scripts._folder.mkdir(exist_ok=True)
    made.write(here.scripts._folder / digest)


def test_tools_of_a_world_are_called_recorded_and_sealed(world: Any) -> None:
    async def live() -> tuple[list[Any], Seal, list[Any], bytes]:
        async with world(world_program=COMMAND).running() as here:
            lay(
                here, "w1", bundle(GET, CANCEL | {"rate": {"calls": 1, "seconds": 60}}, now="2026-03-02T09:00:00+01:00")
            )
            inside = await here.launch(world="w1", scripts=None, models={})
            listed = (await inside.ask("GET", "/tools"))[1]["tools"]
            assert [each["function"]["name"] for each in listed] == ["finish", "get_order", "cancel_order"]
            answers = [
                await inside.ask("POST", "/tools/get_order", {"order_id": "o1"}),
                await inside.ask("POST", "/tools/cancel_order", {"order_id": "o9"}),
                await inside.ask("POST", "/tools/cancel_order", {"order_id": "o9"}),
                await inside.ask("POST", "/tools/get_order", {"order": "o1"}),
                await inside.ask("POST", "/tools/get_order", {"order_id": 1}),
            ]
            folder = here.config.folder / "worlds" / inside.launch
            assert folder.is_dir()
            seal = await here.client.seal(inside.launch)
            assert not folder.exists()
            events = list(read_events(await here.store.get(seal.trajectory.key)))
            return answers, seal, events, await world_of(here.store, seal)

    answers, seal, events, data = asyncio.run(live())
    assert [status for status, *_ in answers] == [200, 409, 429, 400, 400]
    assert answers[0][1]["order"]["customer"] == "Ada"
    assert answers[1][1]["error"]["type"] == "not_found"
    assert int(answers[2][2]["Retry-After"]) > 50
    assert "order: is no argument of get_order" in answers[3][1]["error"]["message"]
    assert seal.tool_calls == 5
    outcomes = [event.data["outcome"] for event in events if event.type == "tool_result"]
    assert outcomes == ["ok", "error", "error", "invalid", "invalid"]
    assert {event.source for event in events if event.type in {"tool_call", "tool_result"}} == {"gateway"}
    assert rows(data, "select tool, outcome, error, at from _calls") == [
        ("get_order", "ok", None, "2026-03-02T08:00:00Z"),
        ("cancel_order", "error", "not_found", "2026-03-02T08:00:00Z"),
        ("cancel_order", "error", "rate_limited", "2026-03-02T08:00:00Z"),
    ]


def test_equal_calls_leave_equal_worlds(world: Any) -> None:
    async def live() -> list[str]:
        async with world(world_program=COMMAND).running() as here:
            lay(here, "w1", bundle(GET, CANCEL, MOVE))
            seals = []
            for sample in (1, 2):
                inside = await here.launch(sample, world="w1", seed=5, scripts=None, models={})
                for path in ("move", "get_order", "cancel_order"):
                    await inside.ask("POST", f"/tools/{path}", {} if path == "move" else {"order_id": "o2"})
                seals.append(await here.client.seal(inside.launch))
            return [seal.world.sha256 for seal in seals if seal.world is not None]

    first, second = asyncio.run(live())
    assert first == second


def test_a_world_that_cannot_be_made_refuses_the_launch(world: Any) -> None:
    async def live() -> str:
        async with world(world_program=COMMAND).running() as here:
            broken = bundle(GET)
            items = [item for item in broken.items if item.path != "world/seed.sql"]
            lay(here, "w1", Bundle.of([*items, Item("world/seed.sql", data=b"create table\n")]))
            with pytest.raises(Exception, match="the world of task task-1 cannot be made") as caught:
                await here.launch(world="w1", scripts=None, models={})
            return str(caught.value)

    assert "incomplete input" in asyncio.run(live())


async def killed(folder: Path, seed: int) -> tuple[int | None, Seal, list[Any], list[Any]]:
    """Kill the gateway of a cluster at a random moment of a call; return its answer, the seal after a restart, rows and noted calls."""
    here = Served(folder, str(folder / "store"), patience_s=30)
    digest = await publish(here.store, "world", bundle(MOVE, GET))
    async with here.client:
        async with here.service("gateway") as gateway:
            pod = Pod(await here.client.register(here.request(1, world=digest, scripts=None, models={})))
            await pod.begin()
            assert (await pod.ask("POST", "/tools/get_order", {"order_id": "o1"}))[0] == 200
            call = asyncio.create_task(pod.ask("POST", "/tools/move", {}))
            await asyncio.sleep(random.Random(seed).uniform(0, 0.03))
            gateway.send_signal(signal.SIGKILL)
            status = None
            with contextlib.suppress(aiohttp.ClientError):
                status = (await call)[0]
            await gateway.wait()
        async with here.service("gateway"):
            again = None
            with contextlib.suppress(aiohttp.ClientError):
                again = (await pod.ask("POST", "/tools/move", {}))[0]
            seal = await here.client.seal(pod.launch)
            data = await world_of(here.store, seal)
    assert (again == 200) == (seal.stopped is None), again
    moved = rows(data, "select cents from orders where id in ('o1', 'o2') order by id")
    return status, seal, moved, rows(data, "select outcome from _calls where tool = 'move'")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 50))])
@pytest.mark.timeout(120)
def test_a_killed_gateway_leaves_whole_effects_once(short_folder: Path, seed: int) -> None:
    status, seal, moved, noted = asyncio.run(killed(short_folder, seed))
    done = len(noted)
    assert moved == [(1200 - 100 * done,), (300 + 100 * done,)]
    assert seal.stopped in {None, "infra_lost"}
    if seal.stopped is None:  # it went on: the call had not come, or its answer was written down; and one came after it
        assert done in ({1, 2} if status is None else {2})
    else:
        assert status is None
        assert done <= 1
