"""Whole drivers of a run of pods, one after the other, that people stop and limits end while drivers die.

All is real from the claim to the outcome (``Local.run``); played are what ``mortal_world`` plays.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from launch_world import QUICK, PlayedGateway
from made import Silent, made_prices
from memory_store import Memory
from mortal_world import SHARDS, Driver, Grader, Guarded, MortalLife, WatchedServer, World, manifest
from pod_world import RUN

from orchestrator.cli.signals import Stop
from orchestrator.driver.committed import load_committed
from orchestrator.driver.execute import Execution
from orchestrator.driver.lease import read_holder
from orchestrator.driver.local import Local
from orchestrator.errors import OrchestrateError
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Seal
from orchestrator.records.usage import Usage
from orchestrator.sandbox.kubernetes.backend import KubernetesBackend
from orchestrator.sandbox.kubernetes.connect import Connection
from orchestrator.sandbox.kubernetes.lease import Beat
from orchestrator.settings import Price, Settings
from orchestrator.spec.agent import Agent
from orchestrator.spec.submission import RunLimits
from orchestrator.spec.task import Budgets

USD = 10**9


class CostlyGateway(PlayedGateway):
    """Each launch costs a dollar."""

    async def seal(self, launch: str) -> Seal:
        return (await super().seal(launch)).model_copy(update={"usage": Usage(cost_nano_usd=USD)})


class _Services:
    def __init__(self, driver: SteeredDriver) -> None:
        self._driver = driver

    @contextlib.asynccontextmanager
    async def open_gateway(self) -> AsyncIterator[Any]:
        yield Guarded(self._driver, self._driver.world.gateway, "gateway")

    @contextlib.asynccontextmanager
    async def open_grader(self) -> AsyncIterator[Any]:
        yield Grader(self._driver)

    async def ready(self) -> None: ...


class _Hears(Silent):
    def __init__(self) -> None:
        self.waits_for: list[str] = []

    def waits(self, trial: TrialId, why: str) -> None:
        self.waits_for.append(why)


class SteeredDriver(Driver):
    """One driver process, all of it. ``attended``: a person has started it."""

    def __init__(self, world: World, number: int, *, attended: bool, limit_usd: float | None = None) -> None:
        super().__init__(world, number, None)
        self.execution: Execution | None = None
        self.observer = _Hears()
        self._attended, self._limit = attended, limit_usd

    def dies_in(self, moments: int) -> None:
        """Be killed after so many more moments."""
        self._left = moments

    async def _drive(self) -> bool:
        async def connecting() -> Connection:
            return Connection(server=self.world.server.url, credentials=self, where="here")

        local = Local(
            settings=Settings(),
            store=cast("Any", Guarded(self, self.world.store, "store")),
            backend=KubernetesBackend(SHARDS, connecting, pace=QUICK, beat=Beat(renew=0.01)),
            scratch=Path("/nowhere"),
            services=cast("Any", _Services(self)),
            concurrency=2,
            cluster=None,
        )
        limited = self.world.manifest.model_copy(update={"limits": RunLimits(cost_usd=self._limit)})
        self.execution = await local.run(limited, self.observer, Stop(""), attended=self._attended)
        return self.execution.left == 0


def costly(samples: int) -> RunManifest:
    """Return a run in which a launch may cost two dollars."""
    plain = manifest(samples)
    task = plain.tasks[0].model_copy(update={"budgets": Budgets(max_cost_usd=2.0)})
    price = Price(input=1000.0, output=1000.0)
    agent = Agent(type="react", models={"main": "x/m"}, prices={"x/m": price})
    costly = plain.agents[0].model_copy(update={"agent": agent, "prices": made_prices(agent)})
    return plain.model_copy(update={"tasks": (task,), "agents": (costly,)})


@contextlib.asynccontextmanager
async def steered(samples: int, **life: Any) -> AsyncIterator[World]:
    """Give a run of so many trials and a cluster; ``life`` is that of its pods."""
    async with asyncio.timeout(30), WatchedServer(tick=0.002) as server:
        gateway = CostlyGateway()
        world = World(server, gateway, Memory(), costly(samples), random.Random(0), Counter(), Counter(), Counter())
        plays(world, **life)
        yield world


def plays(world: World, **life: Any) -> None:
    """Have the pods that are made from now on live like that."""
    programs = MortalLife(world.gateway, **({"prepare": 0.003, "freeze": 0.003} | life))
    programs.started = world.started
    world.server.kubelet.play("t-*", programs.script())


async def until_started(world: World, agents: int) -> None:
    """Wait until so many agents have begun."""
    while world.started.total() < agents:
        await asyncio.sleep(0.002)


async def driven(driver: SteeredDriver) -> Execution | None:
    """Drive to the end of the run or of the driver. Returns what it did, None when it was killed."""
    try:
        await driver.drive()
    except OrchestrateError:
        if not driver.left:
            raise
    return driver.execution


async def ends(world: World) -> dict[str, list[str]]:
    """Return how the launches of each trial ended."""
    committed = await load_committed(cast("Any", world.store), RUN)
    return {
        str(trial): [f"{each.outcome_class}{'' if each.state else ' without state'}" for each in launches]
        for trial, launches in sorted(committed.outcomes.items(), key=lambda item: str(item[0]))
    }


async def release(world: World) -> str | None:
    """Return why the last driver let the run go."""
    holder = await read_holder(cast("Any", world.store), RUN)
    return holder.release.reason if holder and holder.release else None
