"""Pools over fakes at the edges: sandboxes, gateway and grader that do nothing, actors that are killed when a test says so.

Coordinator, supervisors and the pool itself are the real ones; Ray's processes and calls are stood in for. What a real Ray does with them
is tested in ``tests/cli/test_ray.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from made import DIGEST, made_run, made_task
from ray.exceptions import RayActorError

from orchestrator.driver.breaker import Breaker
from orchestrator.driver.inline import InlinePool
from orchestrator.driver.ray.actors import ActorLine, CoordinatorActor, SupervisorActor
from orchestrator.driver.ray.cluster import Cluster
from orchestrator.driver.ray.coordinator import Coordinator
from orchestrator.driver.ray.pool import Actors, RayPool
from orchestrator.driver.ray.supervisor import Supervisor
from orchestrator.driver.single import Collector
from orchestrator.errors import SandboxError
from orchestrator.interfaces import AgentProgram, Allowance, Door, Ending, Frozen, Registration, RelaySink
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import launch_id
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Exit, Seal
from orchestrator.records.usage import NOTHING_USED
from orchestrator.records.verdict import Verdict
from orchestrator.sandbox.kept import OnThisMachine
from orchestrator.storage.file import FileStore
from orchestrator.trial.allowance import Unlimited
from orchestrator.trial.crew import Crew
from orchestrator.trial.lost import Undertaker

RUN = "r1"


def manifest_of(trials: int, max_launches: int = 3) -> RunManifest:
    return made_run(made_task(samples=trials), run=RUN, backend="fake", max_launches=max_launches)


async def at_once() -> None: ...


@dataclass
class World:
    """What a test sets, and what it sees afterwards."""

    folder: Path
    seconds: float = 0.0
    """How long an agent runs."""
    fail: Callable[[str, int], str | None] = lambda trial, launch: None
    """Cause by which a launch fails on our side."""
    hold: Callable[[], Any] = at_once
    allowance: Allowance = field(default_factory=Unlimited)
    adopts: bool = False
    """Whether sandboxes outlive who made them, as far as coordinators know."""
    running: int = 0
    most: int = 0
    """Most sandboxes at one time."""
    launched: Counter[tuple[str, int]] = field(default_factory=Counter)
    known: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Launches by short name that the gateway knows."""
    sealed: set[str] = field(default_factory=set)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.store: Any = FileStore(self.folder / "store")

    def crew(self, observer: Any, allowance: Allowance, name: str) -> Crew:
        return Crew(
            store=self.store,
            bundles=_Bundles(self.folder),
            sandboxes=_Sandboxes(self),  # type: ignore[arg-type]
            gateway=_Gateway(self),
            grader=_Grader(self),
            render=lambda *_: AgentProgram(command=("true",)),
            observer=observer,
            writer_id=name,
            ready=at_once,
            hold=self.hold,
            allowance=allowance,
        )


class _Bundles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def fetch(self, *_: object) -> Path:
        return self.folder

    async def listing(self, *_: object) -> None:
        return None


class _Gateway:
    def __init__(self, world: World) -> None:
        self.world = world

    async def register(self, request: Any) -> Registration:
        name = launch_id(request.run, request.trial, request.launch)
        assert name not in self.world.sealed, "a launch that was sealed is started again"
        self.world.known[name] = (str(request.trial), request.launch)
        sink = RelaySink(socket="", token="")
        return Registration(launch=name, agent_token="", door=Door(socket="", token=""), sink=sink)

    async def stop_reason(self, launch: str) -> Any:
        await asyncio.Event().wait()

    async def seal(self, launch: str) -> Seal:
        self.world.sealed.add(launch)
        trial, number = self.world.known[launch]
        blob = BlobRef(key="k", sha256="0" * 64, size=0)
        return Seal(
            run=RUN,
            trial=trial,
            launch=number,
            trajectory=blob,
            usage=NOTHING_USED,
            steps=0,
            tool_calls=0,
            waiting_s=0,
        )

    async def seal_lost(self, run: str, trial: Any, launch: int, epoch: int) -> Seal | None:
        name = launch_id(run, trial, launch)
        return await self.seal(name) if name in self.world.known else None


class _Sandboxes(OnThisMachine):
    name = "fake"

    def __init__(self, world: World) -> None:
        self.world = world

    @contextlib.asynccontextmanager
    async def open(self, spec: Any):
        world = self.world
        trial, launch = world.known[spec.name]
        world.launched[trial, launch] += 1
        cause = world.fail(trial, launch)
        if cause is not None:
            raise SandboxError("made to fail", cause=cause)
        world.running += 1
        world.most = max(world.most, world.running)
        world.started.set()
        try:
            yield _Sandbox(world.seconds)
        finally:
            world.running -= 1


class _Sandbox:
    labels: dict[str, str] = {}

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.stopped = asyncio.Event()

    async def ended(self) -> Ending:
        started = time.time()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), self.seconds)
        cause: Any = "stopped" if self.stopped.is_set() else "exited"
        return Ending(exit=Exit(code=0), cause=cause, started=started, ended=time.time())

    async def stop(self) -> None:
        self.stopped.set()

    async def freeze(self) -> Frozen:
        return Frozen(state=None, output=b"", output_blob=None, final=None)


class _Grader:
    def __init__(self, world: World) -> None:
        self.world = world

    async def grade(self, run: str, trial: Any, waits: object = None) -> Verdict:
        launch = max(number for name, number in self.world.known.values() if name == str(trial))
        verdict = Verdict(
            run=run, trial=str(trial), launch=launch, state_sha256=None, grader_digest=DIGEST, result="failed"
        )
        await self.world.store.create(keys.verdict(run, trial, DIGEST), verdict.to_bytes())
        return verdict


class Handle:
    """An actor's handle: the actor is made anew, by the same arguments, after it was killed. Calls under way are lost."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._instance: Any = None
        self._calls: set[asyncio.Task[Any]] = set()
        self.deaths = 0
        self.away = 0
        """Calls that find nobody there, after it was killed."""

    def __getattr__(self, name: str) -> Any:
        return _Method(self, name)

    async def call(self, name: str, arguments: tuple[object, ...]) -> Any:
        await asyncio.sleep(0)
        if self._instance is None:
            if self.away:
                self.away -= 1
                raise RayActorError()
            self._instance = self._make()
        task = asyncio.create_task(getattr(self._instance, name)(*arguments))
        self._calls.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise RayActorError() from None
            raise
        finally:
            self._calls.discard(task)

    def instance(self) -> Any:
        """Return the actor itself, when it lives."""
        return self._instance

    async def kill(self) -> None:
        self.deaths += 1
        instance, self._instance = self._instance, None
        ended = [*self._calls]
        for task in ended:
            task.cancel()
        working = getattr(instance, "_working", None)
        if working is not None:
            working.cancel()
            ended.append(working)
        await asyncio.gather(*ended, return_exceptions=True)


class _Method:
    def __init__(self, handle: Handle, name: str) -> None:
        self.handle, self.name = handle, name

    def remote(self, *arguments: object) -> Any:
        return self.handle.call(self.name, arguments)


class FakeCoordinator(CoordinatorActor):
    """A coordinator over the world's store and gateway."""

    def __init__(self, world: World, manifest: RunManifest, supervisors: int) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._parts = (world, manifest, supervisors)

    async def _make(self) -> Coordinator:
        world, manifest, supervisors = self._parts
        undertaker = Undertaker(
            run=RUN, store=world.store, gateway=_Gateway(world), hold=world.hold, writer_id="undertaker", epoch=1
        )
        parts = (uuid.uuid4().hex, manifest, world.store, undertaker, world.allowance, supervisors)
        return Coordinator(*parts, adopts=world.adopts)


class FakeSupervisor(SupervisorActor):
    """A supervisor with the world's crew."""

    def __init__(self, world: World, manifest: RunManifest, index: int, slots: int) -> None:
        super().__init__(None, index)  # type: ignore[arg-type]
        self._parts = (world, manifest, slots)

    async def _work(self, line: ActorLine, generation: int) -> None:
        world, manifest, slots = self._parts
        supervisor = Supervisor(self._index, generation, line, slots)
        await supervisor.work(manifest, world.crew(supervisor, supervisor, supervisor.name))


@dataclass
class Driven:
    """A pool and what its observer heard."""

    pool: Any
    breaker: Breaker
    heard: Collector
    actors: Actors | None


@contextlib.asynccontextmanager
async def open_pool(kind: str, world: World, manifest: RunManifest, slots: tuple[int, ...] = (2, 2)):
    """A pool of one kind; together as many trials at one time."""
    heard = Collector()
    breaker = Breaker(heard)
    if kind == "inline":
        crew = world.crew(breaker, world.allowance, "w")
        yield Driven(InlinePool(crew, breaker, sum(slots)), breaker, heard, None)
        return
    coordinator = Handle(lambda: FakeCoordinator(world, manifest, len(slots)))
    supervisors = [
        Handle(lambda index=index, count=count: FakeSupervisor(world, manifest, index, count))
        for index, count in enumerate(slots)
    ]
    actors = Actors(coordinator, tuple(supervisors), lambda: None)
    cluster = Cluster("in this test", 2, asyncio.get_running_loop().create_future())
    pool = RayPool(cluster, actors, breaker)
    try:
        yield Driven(pool, breaker, heard, actors)
    finally:
        await pool.close()
        for handle in (*supervisors, coordinator):
            await handle.kill()
