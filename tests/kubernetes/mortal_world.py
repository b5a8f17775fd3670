"""Drivers that die at every moment that has a name, around pods that live on.

The code under test is the real one: spine, backend, reflectors, creator, Lease, what is left of a run. Played are the store (a dictionary),
the gateway with its relay, the grader, and the programs of pods, none of which dies with a driver. A killed driver is one whose every later
step raises: nothing that follows a kill has an effect, except for what had already been sent. One that is told to leave cleans up.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from fault_kubelet import Play
from fault_server import FaultServer
from launch_world import QUICK, Life, PlayedGateway
from made import Silent, made_run, made_task
from memory_store import Memory, kind
from pod_world import DIGEST, RUN, SETTINGS

from orchestrator.driver.committed import Committed, load_committed
from orchestrator.errors import OrchestrateError
from orchestrator.interfaces import AgentProgram
from orchestrator.plan.trials import all_trials, remaining
from orchestrator.records import keys
from orchestrator.records.ids import TrialId, launch_id
from orchestrator.records.manifest import ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.records.verdict import Verdict
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.backend import KubernetesBackend
from orchestrator.sandbox.kubernetes.connect import Connection
from orchestrator.sandbox.kubernetes.lease import Beat
from orchestrator.trial.allowance import Unlimited
from orchestrator.trial.crew import Crew
from orchestrator.trial.run import grade, run_trial

SHARDS = SETTINGS.model_copy(update={"creates_per_second": 1000.0})


class Killed(BaseException):
    """The process is gone."""


class WatchedServer(FaultServer):
    """Tells a driver's life when one of its requests has been answered."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lives: dict[str, Driver] = {}
        self.made: Counter[str] = Counter()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        life = self.lives.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        response = await super()._handle(request)
        if life is not None and request.query.get("watch") is None:
            life.passed(f"after {request.method} {'pod' if 'pods' in request.path else 'lease'}")
        return response

    async def create(self, request: web.Request, asked: Any) -> web.Response:
        response = await super().create(request, asked)
        if asked.resource == "pods" and response.status == 201:
            self.made[asked.namespace] += 1
        return response


@dataclass
class World:
    server: WatchedServer
    gateway: PlayedGateway
    store: Memory
    manifest: RunManifest
    dice: random.Random
    started: Counter[str]
    """Agents that began, by launch."""
    graded: Counter[str]
    seen: Counter[str]
    """Moments that were passed, by name."""


class MortalLife(Life):
    """A pod's programs, which note each agent that begins."""

    started: Counter[str]

    async def _agent(self, play: Play, name: str) -> Any:
        self.started[play.annotation(names.LAUNCH_ID)] += 1
        return await super()._agent(play, name)


class Driver:
    """One driver process."""

    def __init__(self, world: World, number: int, dies_at: int | None, *, leaves: bool = False) -> None:
        self.world, self.number = world, number
        self.dead = self.left = False
        self._leaves = leaves
        self._left = dies_at
        self._main: asyncio.Task[Any] | None = None

    def passed(self, moment: str) -> None:
        """Count a moment; the driver may not survive it."""
        if self.dead:
            return
        self.world.seen[moment] += 1
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self.dead, self.left, self._left = not self._leaves, True, None
                if self._main is not None:
                    self._main.cancel()

    async def at(self, moment: str) -> None:
        """Pass a moment. Raises Killed when the driver does not survive it, or has not survived an earlier one."""
        self.passed(moment)
        if self.dead:
            raise Killed(moment)

    async def header(self) -> str | None:
        """Return the credentials of this driver for the API server, which each request needs."""
        await self.at("before a request")
        return f"Bearer driver-{self.number}"

    async def refresh(self) -> None:
        """Nothing to refresh."""

    def tls(self) -> None:
        """No TLS."""

    async def drive(self) -> bool:
        """Go on with the run and return whether nothing is left; a death ends it."""
        self._main = asyncio.ensure_future(self._drive())
        self.world.server.lives[f"driver-{self.number}"] = self
        try:
            return await self._main
        except (Killed, asyncio.CancelledError, OrchestrateError):
            if not self.left:
                raise
            return False

    async def _drive(self) -> bool:
        async def connecting() -> Connection:
            return Connection(server=self.world.server.url, credentials=self, where="here")

        backend = KubernetesBackend(SHARDS, connecting, pace=QUICK, beat=Beat(renew=0.01))
        gateway = cast("Any", Guarded(self, self.world.gateway, "gateway"))
        store = cast("Any", Guarded(self, self.world.store, "store"))
        async with (
            backend.claiming(RUN, self.number),
            backend.driving(RUN, self.number, gateway) as pods,
        ):
            crew = Crew(
                store=store,
                bundles=cast("Any", None),
                sandboxes=pods,
                gateway=gateway,
                grader=cast("Any", Grader(self)),
                render=_render,
                observer=Silent(),
                writer_id=f"driver-{self.number}",
                ready=_at_once,
                hold=_at_once,
                allowance=Unlimited(),
                epoch=self.number,
            )
            committed = await load_committed(store, RUN)
            left = remaining(self.world.manifest, committed.outcomes, committed.graded)
            stop = asyncio.Event()
            await asyncio.gather(
                *(run_trial(RUN, planned, crew, stop) for planned in left.to_run),
                *(grade(RUN, planned, outcome, crew) for planned, outcome in left.to_grade),
            )
        return True


class Guarded:
    """A service as one driver sees it: each call may be its last, done or not."""

    def __init__(self, driver: Driver, service: Any, name: str) -> None:
        self._driver, self._service, self._name = driver, service, name

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def call(*words: Any, **more: Any) -> Any:
            name = f"{self._name} {verb} {kind(words[0]) if self._name == 'store' else ''}".strip()
            await self._driver.at(f"before {name}")
            found = await getattr(self._service, verb)(*words, **more)
            await self._driver.at(f"after {name}")
            return found

        return call


class Grader:
    """Writes one verdict for each trial, however often it is asked."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def grade(self, run: str, trial: TrialId, waits: object = None) -> Verdict:
        await self._driver.at("before grade")
        world = self._driver.world
        outcome = (await load_committed(cast("Any", world.store), RUN, trial)).outcomes[trial][-1]
        verdict = Verdict(
            run=run,
            trial=str(trial),
            launch=outcome.launch,
            state_sha256=None if outcome.state is None else outcome.state.sha256,
            grader_digest=DIGEST,
            result="passed",
        )
        if await world.store.create(keys.verdict(run, trial, DIGEST), verdict.to_bytes()):
            world.graded[str(trial)] += 1
        await self._driver.at("after grade")
        return verdict


async def _at_once() -> None: ...


def _render(agent: ManifestAgent, task: ManifestTask, registration: Any) -> AgentProgram:
    return AgentProgram(command=("true",), env={"ORCHESTRATE_TOKEN": registration.agent_token})


def manifest(samples: int) -> RunManifest:
    return made_run(made_task(samples=samples), run=RUN, backend="kubernetes")


async def live(world: World, deaths: list[int], *, leaving: bool) -> None:
    """Drive the run, life after life; each dies at its moment, the last one does not."""
    for number, dies_at in enumerate([*deaths, None], start=1):
        if await Driver(world, number, dies_at, leaves=leaving).drive():
            return
        await asyncio.sleep(world.dice.choice((0.0, 0.0, 0.005, 0.03)))
    msg = "a driver that nobody killed did not end the run"
    raise AssertionError(msg)


def scenario(deaths: list[int], seed: int, *, samples: int = 1, leaving: bool = False, **life: Any) -> World:
    """Drive a run through these deaths and return what there is then."""

    async def run() -> World:
        async with asyncio.timeout(30), WatchedServer(tick=0.002) as server:
            gateway = PlayedGateway()
            started: Counter[str] = Counter()
            dice = random.Random(seed)
            world = World(server, gateway, Memory(), manifest(samples), dice, started, Counter(), Counter())
            programs = MortalLife(gateway, **({"prepare": 0.003, "agent": 0.005, "freeze": 0.003} | life))
            programs.started = started
            server.kubelet.play("t-*", programs.script())
            await live(world, deaths, leaving=leaving)
        await _buried()
        return world

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        return loop.run_until_complete(run())


async def _buried() -> None:
    """End what the dead drivers had begun: a process takes it along."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def check(world: World) -> None:
    """Nothing is lost, nothing is doubled, and no launch was used up by a death."""
    committed: Committed = asyncio.run(load_committed(cast("Any", world.store), RUN))
    trials = [planned.id for planned in all_trials(world.manifest)]
    assert sorted(committed.outcomes) == sorted(trials)
    for trial in trials:
        launches: list[Outcome] = list(committed.outcomes[trial])
        assert [(each.launch, each.outcome_class) for each in launches] == [(1, "result")], launches
        assert launches[0].state is not None
        assert world.started[launch_id(RUN, trial, 1)] == 1
    assert committed.graded == set(trials)
    assert all(count == 1 for count in world.graded.values())
    assert sum(world.server.made.values()) == len(trials)
    left = {pod["metadata"]["annotations"][names.TRIAL] for pod in world.server.pods()}
    assert left <= {str(trial) for trial in trials}  # the reaper's: their outcomes are committed
