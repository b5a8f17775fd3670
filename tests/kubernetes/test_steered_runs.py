"""A stop whose driver is killed, and a limit that the next driver meets: what runs is brought to its end, and nothing else begins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fault_server import Room
from mortal_world import SHARDS
from pod_world import RUN
from steered_world import SteeredDriver, World, driven, ends, plays, release, steered, until_started

from orchestrator.driver import lease
from orchestrator.driver.wishes import ask_to_stop

MOMENTS = 24
"""Some of the moments between a wish and the end of the driver that heard it; a beat is seconds away."""


@pytest.fixture(autouse=True)
def _killed_processes_are_known_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "is_gone", lambda process: True)


def course(samples: int, play: Callable[[World], Awaitable[Any]], **life: Any) -> Any:
    async def whole() -> Any:
        async with steered(samples, **life) as world:
            return await play(world)

    return asyncio.run(whole())


async def stopped_and_killed(world: World, moments: int) -> None:
    """Have a driver run two agents, want the run stopped, and kill the driver some moments later."""
    first = SteeredDriver(world, 1, attended=True)
    driving = asyncio.create_task(driven(first))
    await until_started(world, 2)
    await ask_to_stop(world.store, RUN)
    first.dies_in(moments)
    assert await driving is None


@pytest.mark.parametrize(
    "moments", [pytest.param(n, marks=[pytest.mark.slow] if n % 8 else []) for n in range(MOMENTS)]
)
def test_the_next_driver_stops_what_runs_and_begins_nothing(moments: int) -> None:
    async def play(world: World) -> Any:
        await stopped_and_killed(world, moments)
        second = SteeredDriver(world, 2, attended=False)
        execution = await driven(second)
        assert execution is not None
        assert execution.left == 4
        stopped = await ends(world), await release(world), world.started.total(), sum(world.server.made.values())
        plays(world, agent=0.005)
        resumed = await driven(SteeredDriver(world, 3, attended=True))
        assert resumed is not None
        assert resumed.left == 0
        return stopped, await ends(world), world.graded

    stopped, after, graded = course(4, play, agent=60.0)
    assert stopped == ({"t@a:1": ["cancelled"], "t@a:2": ["cancelled"]}, "stopped", 2, 2)
    assert after == {f"t@a:{n}": [*(["cancelled"] if n < 3 else []), "result"] for n in range(1, 5)}
    assert graded == {f"t@a:{n}": 1 for n in range(1, 5)}


@pytest.mark.parametrize("moments", [pytest.param(n, marks=[pytest.mark.slow] if n % 10 else []) for n in range(60)])
def test_the_next_driver_may_die_over_it_as_well(moments: int) -> None:
    async def play(world: World) -> Any:
        await stopped_and_killed(world, 0)
        second = SteeredDriver(world, 2, attended=False)
        second.dies_in(moments)
        await driven(second)
        third = await driven(SteeredDriver(world, 3, attended=False))
        assert third is not None
        return await ends(world), await release(world), world.started.total(), sum(world.server.made.values())

    ended, why, started, made = course(4, play, agent=60.0)
    assert ended == {"t@a:1": ["cancelled"], "t@a:2": ["cancelled"]}
    assert (why, started, made) == ("stopped", 2, 2)


@pytest.mark.parametrize("again", [False, True])
def test_what_had_ended_by_itself_is_a_result_and_graded(again: bool) -> None:
    async def play(world: World) -> Any:
        await stopped_and_killed(world, 0)
        await asyncio.sleep(0.2)
        if again:  # one that has the wish from the store alone is killed, too
            third = SteeredDriver(world, 2, attended=False)
            third.dies_in(20)
            assert await driven(third) is None
        assert await driven(SteeredDriver(world, 3, attended=False)) is not None
        return await ends(world), await release(world), world.started.total(), world.graded

    ended, why, started, graded = course(4, play, agent=0.1, absent=0.0)
    assert ended == {"t@a:1": ["result"], "t@a:2": ["result"]}
    assert (why, started, graded) == ("stopped", 2, {"t@a:1": 1, "t@a:2": 1})


@pytest.mark.parametrize("limit_usd", [0.5, 4.0, 5.5])
def test_a_limit_that_the_next_driver_meets_lets_what_runs_end_and_begins_nothing(limit_usd: float) -> None:
    async def play(world: World) -> Any:
        first = SteeredDriver(world, 1, attended=True, limit_usd=4.0)
        driving = asyncio.create_task(driven(first))
        await until_started(world, 2)
        first.dies_in(0)
        assert await driving is None
        execution = await driven(SteeredDriver(world, 2, attended=False, limit_usd=limit_usd))
        assert execution is not None
        return execution, await ends(world), await release(world), world

    execution, ended, why, world = course(6, play, agent=0.2)
    begun = {0.5: 2, 4.0: 3, 5.5: 4}[limit_usd]  # each costs a dollar of the two that are set aside for it
    assert ended == {f"t@a:{n}": ["result"] for n in range(1, begun + 1)}
    assert (world.started.total(), world.graded.total(), sum(world.server.made.values())) == (begun,) * 3
    assert (execution.limited is not None, execution.left, why) == (True, 6 - begun, "limit")


def test_a_limit_meets_pods_that_were_made_before_there_was_one() -> None:
    async def play(world: World) -> Any:
        first = SteeredDriver(world, 1, attended=True)
        driving = asyncio.create_task(driven(first))
        await until_started(world, 2)
        first.dies_in(0)
        assert await driving is None
        await driven(SteeredDriver(world, 2, attended=False, limit_usd=0.1))
        return await ends(world), await release(world), world.started.total()

    assert course(4, play, agent=0.2) == ({"t@a:1": ["result"], "t@a:2": ["result"]}, "limit", 2)


def test_a_run_says_what_its_trials_wait_for_as_long_as_they_do() -> None:
    async def play(world: World) -> list[str]:
        for each in SHARDS.namespaces:
            world.server.quotas[each] = Room(pods=0)
        driver = SteeredDriver(world, 1, attended=True)
        driving = asyncio.create_task(driven(driver))
        while len(driver.observer.waits_for) < 2:
            await asyncio.sleep(0.002)
        world.server.quotas.clear()
        execution = await driving
        assert execution is not None
        assert execution.left == 0
        return driver.observer.waits_for

    *waited, first, second = course(2, play, agent=0.005)
    assert {each.partition(" in ")[0] for each in waited} == {"exceeded quota pods: pods=0"}
    assert (first, second) == ("", "")
