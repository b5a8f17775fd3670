"""Worlds for tests: a bundle on the disk and an engine over it."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orchestrator.gateway.worlds.engine import LaunchWorld, WorldAnswer, WorldEngine
from orchestrator.sandbox.world.command import COMMAND
from orchestrator.spec.world import World

SEED = """\
create table orders (id text primary key, customer text not null, cents integer not null check (cents >= 0), status text not null);
insert into orders values ('o1', 'Ada', 1200, 'open'), ('o2', 'Bob', 300, 'open'), ('o3', 'Cyd', 50, 'shipped');
"""
ORDER = {"type": "object", "required": ["order_id"], "properties": {"order_id": {"type": "string"}}}
FOUND = {"sql": "select 1 from orders where id = :order_id", "error": "not_found", "message": "no order {order_id}"}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", **more}


GET = tool(
    "get_order",
    arguments=ORDER,
    requires=[FOUND],
    result={"order": {"row": "select * from orders where id = :order_id"}},
)
CANCEL = tool(
    "cancel_order",
    arguments=ORDER,
    requires=[FOUND],
    sql=["update orders set status = 'cancelled' where id = :order_id"],
    irreversible=True,
    message={"to": "orders", "text": "{order_id} is cancelled"},
)
ADD = tool(
    "add_cents",
    arguments={"type": "object", "properties": {"order_id": {"type": "string"}, "cents": {"type": "integer"}}},
    sql=["update orders set cents = cents + :cents where id = :order_id"],
    result={"cents": {"value": "select cents from orders where id = :order_id"}},
)


def bundle(
    folder: Path, *tools: Mapping[str, Any], seed: str = SEED, functions: str = "", **more: Any
) -> tuple[Path, World]:
    world = World.model_validate_json(json.dumps({"tools": tools, **more}))
    (folder / "world").mkdir(parents=True)
    (folder / "world.json").write_text(world.model_dump_json())
    (folder / "world/seed.sql").write_text(seed)
    (folder / "world/tools.py").write_text(functions)
    return folder, world


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


@asynccontextmanager
async def engine(folder: Path, **more: Any) -> AsyncIterator[WorldEngine]:
    made = WorldEngine(COMMAND, folder, **more)
    try:
        yield made
    finally:
        await made.close()


class Played:
    """One launch's world, with requests that count by themselves."""

    def __init__(self, world: LaunchWorld) -> None:
        self.world = world
        self._last = 0

    async def __call__(self, name: str, **arguments: Any) -> WorldAnswer:
        self._last += 1
        return await self.world.call(name, arguments, request=f"r{self._last}")


@asynccontextmanager
async def played(folder: Path, *tools: Mapping[str, Any], now: str | None = None, **more: Any) -> AsyncIterator[Played]:
    made, spec = bundle(folder / "bundle", *tools, **more)
    async with engine(folder / "worlds") as running:
        yield Played(await running.open("launch", made, spec, now=now, seed=7))
