"""States that agents left have room one after the other, and one that never has any is said to be too large."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from grader_world import RUN, TRIAL, GraderWorld

from grader_service.grade import grade
from grader_service.room import Room
from orchestrator.errors import StoreError


def test_states_together_are_never_more_than_the_limit() -> None:
    held: list[int] = []
    most: list[int] = []

    async def one(room: Room, size: int) -> None:
        async with room.taken(size):
            held.append(size)
            most.append(sum(held))
            await asyncio.sleep(0)
            held.remove(size)

    async def scene() -> None:
        room = Room(100)
        await asyncio.wait_for(asyncio.gather(*(one(room, size) for size in (60, 50, 100, 0, 10, 90, 40) * 5)), 10)

    asyncio.run(scene())
    assert len(most) == 35
    assert 50 < max(most) <= 100


def test_a_large_one_is_not_overtaken_for_ever() -> None:
    order: list[int] = []

    async def one(room: Room, size: int) -> None:
        async with room.taken(size):
            order.append(size)
            await asyncio.sleep(0.001)

    async def scene() -> None:
        room = Room(100)
        await asyncio.wait_for(asyncio.gather(*(one(room, size) for size in (60, 100, 10, 10))), 10)

    asyncio.run(scene())
    assert order == [60, 100, 10, 10]


def test_who_gives_up_waiting_keeps_nobody_else_waiting() -> None:
    async def scene() -> None:
        room = Room(100)
        async with room.taken(80):
            waiting = asyncio.create_task(room.taken(50).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            async with asyncio.timeout(5), room.taken(20):
                pass

    asyncio.run(scene())


def test_a_state_that_never_has_room_is_no_verdict(world: GraderWorld) -> None:
    world.task({"a.txt": "x"}, [{"id": "a", "type": "files", "path": "a.txt", "exists": True}])
    world.left({"a.txt": "y" * 5000})
    with pytest.raises(StoreError, match="give the grader a larger folder") as caught:
        asyncio.run(grade(replace(world.grading(), room=Room(100)), RUN, TRIAL))
    assert caught.value.cause == "grader_scratch"
