"""What can be seen of a driver from outside."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator.driver.lease import read_holder
from orchestrator.driver.lookout import Lookout, Sight, by_the_calendar
from orchestrator.driver.process import this_process
from orchestrator.records import keys
from orchestrator.records.lease import Beat, Claim, Release, ReleaseReason
from orchestrator.storage.file import FileStore

TERM = 15.0


class World:
    """A run whose driver is on a machine that we cannot look into, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.store = FileStore(folder)
        self.now = 100.0
        self.lookout = Lookout(self.store, "r", lambda: self.now)

    async def claim(self, epoch: int = 1) -> None:
        process = this_process().model_copy(update={"host": "elsewhere", "boot": "another"})
        claim = Claim(run="r", epoch=epoch, writer_id="w", process=process, at=0, term_s=TERM)
        await self.store.create(keys.claim("r", epoch), claim.to_bytes())

    async def beat(self, number: int, epoch: int = 1) -> None:
        await self.store.create(keys.beat("r", epoch, number), Beat(epoch=epoch, number=number, at=number).to_bytes())

    async def release(self, reason: ReleaseReason = "ended", epoch: int = 1) -> None:
        await self.store.create(keys.release("r", epoch), Release(epoch=epoch, at=0, reason=reason).to_bytes())

    async def state(self) -> str:
        return (await self.lookout.look()).state


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_silence_is_measured_by_our_own_clock(world: World) -> None:
    async def watch() -> list[str]:
        seen = [await world.state()]
        await world.claim()
        seen.append(await world.state())  # its clock says 1970, which proves nothing
        world.now += TERM - 1
        await world.beat(1)
        await world.beat(2)
        seen.append(await world.state())
        world.now += TERM
        seen.append(await world.state())
        await world.beat(3)
        seen.append(await world.state())
        await world.release()
        seen.append(await world.state())
        return seen

    assert asyncio.run(watch()) == ["nobody", "driving", "driving", "silent", "driving", "released"]


def test_the_next_driver_is_followed(world: World) -> None:
    async def watch() -> Sight:
        await world.claim()
        await world.release("failed")
        await world.lookout.look()
        world.now += TERM
        await world.claim(epoch=2)
        await world.beat(1, epoch=2)
        return await world.lookout.look()

    sight = asyncio.run(watch())
    assert sight.state == "driving"
    assert sight.holder is not None
    assert (sight.holder.claim.epoch, sight.holder.beat and sight.holder.beat.number) == (2, 1)


def test_a_glance_believes_the_clocks(world: World) -> None:
    async def look() -> list[str]:
        await world.claim()
        await world.beat(4)
        holder = await read_holder(world.store, "r")
        return [by_the_calendar(holder, now).state for now in (-50, 4, 18.9, 19)]

    assert asyncio.run(look()) == ["driving", "driving", "driving", "silent"]
    assert by_the_calendar(None).state == "nobody"


@pytest.mark.parametrize(
    ("reason", "left", "state"),
    [
        ("ended", 0, "complete"),
        ("stopped", 0, "complete"),
        ("stopped", 1, "stopped"),
        ("paused", 1, "paused"),
        ("limit", 1, "limit"),
        ("failed", 1, "interrupted"),
        ("ended", 1, "interrupted"),
    ],
)
def test_a_run_that_was_let_go(world: World, reason: ReleaseReason, left: int, state: str) -> None:
    async def look() -> Sight:
        await world.claim()
        await world.release(reason)
        return await world.lookout.look()

    assert asyncio.run(look()).run_state(left, 3) == state


def test_a_run_that_nobody_drove() -> None:
    assert [Sight(None).run_state(left, ended) for left, ended in ((3, 0), (2, 1), (0, 3))] == [
        "waiting",
        "interrupted",
        "complete",
    ]
