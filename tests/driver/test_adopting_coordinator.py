"""A supervisor that dies: where its sandboxes outlive it, the next one goes on with its launches; else they are closed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.driver.ray.coordinator import Coordinator
from orchestrator.driver.ray.messages import LaunchFailed, Orders, Report
from orchestrator.driver.ray.pool import share
from orchestrator.interfaces import PlannedTrial
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome
from orchestrator.trial.allowance import Unlimited

sys.path.insert(0, str(Path(__file__).parent))

from purse_world import MemoryStore, costly_run, costly_task, outcome_of

TRIAL = TrialId("t", "a", 1)


class Undertaker:
    """Commits a tombstone, and notes it."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.buried: list[int] = []

    async def knows(self, planned: PlannedTrial) -> bool:
        return True

    async def bury(self, planned: PlannedTrial, cause: str, message: str) -> Outcome:
        self.buried.append(planned.first_launch)
        lost = outcome_of(str(planned.id), 0, launch=planned.first_launch, reason="infra_lost")
        return await self.store.commit(lost.model_copy(update={"cause": cause}))


def report(name: str, generation: int, number: int, *, holds: tuple[TrialId, ...] = (), free: int = 1) -> Report:
    return Report(index=0, name=name, generation=generation, number=number, holds=holds, free=free, events=())


async def until_jobs(coordinator: Coordinator, name: str, generation: int) -> Orders:
    for number in range(2, 100):
        orders = await coordinator.report(report(name, generation, number))
        if orders.jobs:
            return orders
        await asyncio.sleep(0)
    pytest.fail("nothing was handed out")


async def replaced(*, adopts: bool) -> tuple[int, list[int], list[Any]]:
    """Have a supervisor take the one trial, start its launch and die. Returns the next one's launch, tombstones, and failed launches."""
    store = MemoryStore()
    undertaker = Undertaker(store)
    parts = ("c", costly_run(costly_task("t", 0)), cast("Any", store), cast("Any", undertaker), Unlimited(), 1)
    coordinator = Coordinator(*parts, adopts=adopts)
    beginning = asyncio.create_task(coordinator.begin("run", [TRIAL], again=False))
    await coordinator.report(report("first", 1, 1))
    await beginning
    [job] = (await until_jobs(coordinator, "first", 1)).jobs
    assert await coordinator.reserve(0, "first", TRIAL, job.launch) is None
    await coordinator.report(report("second", 2, 1))
    [again] = (await until_jobs(coordinator, "second", 2)).jobs
    told = (await coordinator.poll(0, stop=False)).events
    return again.launch, undertaker.buried, [each.event for each in told if isinstance(each.event, LaunchFailed)]


def test_a_launch_that_outlives_its_supervisor_is_handed_to_the_next() -> None:
    assert asyncio.run(replaced(adopts=True)) == (1, [], [])


def test_a_launch_that_dies_with_its_supervisor_is_closed_and_followed_by_another() -> None:
    launch, buried, failed = asyncio.run(replaced(adopts=False))
    assert (launch, buried, len(failed)) == (2, [1], 1)


def test_a_coordinator_that_comes_after_a_dead_one_hands_out_what_nobody_holds() -> None:
    async def course() -> tuple[int, list[int]]:
        store = MemoryStore()
        undertaker = Undertaker(store)
        parts = ("c", costly_run(costly_task("t", 0)), cast("Any", store), cast("Any", undertaker), Unlimited(), 1)
        coordinator = Coordinator(*parts, adopts=True)
        beginning = asyncio.create_task(coordinator.begin("run", [TRIAL], again=True))
        await coordinator.report(report("next", 1, 1))
        await beginning
        [job] = (await until_jobs(coordinator, "next", 1)).jobs
        return job.launch, undertaker.buried

    assert asyncio.run(course()) == (1, [])


@pytest.mark.parametrize(
    ("concurrency", "supervisors", "backend", "expected"),
    [
        (20, None, "kubernetes", (20,)),
        (5001, None, "kubernetes", (1667, 1667, 1667)),
        (20, 2, "kubernetes", (10, 10)),
        (20, None, "bubblewrap", (10, 10)),
    ],
)
def test_who_watches_pods_takes_many_of_them(
    concurrency: int, supervisors: int | None, backend: str, expected: tuple[int, ...]
) -> None:
    assert share(concurrency, supervisors, 2, backend) == expected
