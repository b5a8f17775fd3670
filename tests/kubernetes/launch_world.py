"""A gateway, and what runs inside of pods, played in this process around the real backend and a fault server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fault_kubelet import Behaviour, End, Play, Script
from fault_server import FaultServer
from pod_world import RUN, SETTINGS, spec_of

from orchestrator.errors import GatewayError
from orchestrator.interfaces import (
    Delivery,
    Ending,
    Frozen,
    LaunchRequest,
    PodDoor,
    PodSink,
    Registration,
    Sandbox,
    SandboxBackend,
    SandboxSpec,
)
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import launch_id
from orchestrator.records.outcome import Exit, Seal
from orchestrator.records.state import FrozenState
from orchestrator.records.usage import NOTHING_USED
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.backend import KubernetesBackend
from orchestrator.sandbox.kubernetes.pod import Pace
from orchestrator.settings import Kubernetes

QUICK = Pace(settle=0.1, stop=0.1, linger=0.3, overdue=0.5, deliver=0.2, away=0.02)


@dataclass
class Known:
    """One launch at the gateway."""

    request: LaunchRequest | None
    epoch: int = 1
    pod: str = ""
    """uid of the pod that has begun."""
    sealed: asyncio.Event = field(default_factory=asyncio.Event)
    halted: asyncio.Event = field(default_factory=asyncio.Event)
    spent: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    delivery: Delivery | None = None


class PlayedGateway:
    """A gateway and a relay that live on when drivers die. Implements Gateway."""

    def __init__(self) -> None:
        self.instance = "gateway-a"
        self.launches: dict[str, Known] = {}
        self.refused: Counter[str] = Counter()

    def restart(self, instance: str) -> None:
        """Forget everything."""
        self.instance, self.launches = instance, {}

    def know(self, name: str) -> Known:
        """Let a launch be known without a registration."""
        return self.launches.setdefault(name, Known(None))

    def door(self, name: str, *, known: bool) -> PodDoor:
        launch = self.launches[name]
        return PodDoor(
            address="http://198.18.96.7:8080",
            relay="http://198.18.96.8:8080",
            index=0,
            instance=self.instance,
            agent_token=f"agent-{name}",
            prepare_token=f"prepare-{name}",
            token=f"freezer-{name}",
            known=known,
            begun=bool(launch.pod),
            sealed=launch.sealed.is_set(),
        )

    # --- the driver's side

    async def register(self, request: LaunchRequest) -> Registration:
        name = launch_id(request.run, request.trial, request.launch)
        known = name in self.launches
        launch = self.launches.setdefault(name, Known(request))
        if request.epoch < launch.epoch:
            raise GatewayError(f"epoch {request.epoch} is over", cause="stale_epoch")
        launch.epoch, launch.request = request.epoch, request
        door = self.door(name, known=known)
        return Registration(
            launch=name, agent_token=door.agent_token, door=door, sink=PodSink(launch=name, token=door.token)
        )

    def _of(self, name: str) -> Known:
        if name not in self.launches:
            raise GatewayError(f"unknown launch {name}", cause="gateway_restarted")
        return self.launches[name]

    async def stop_reason(self, launch: str) -> Any:
        known = self._of(launch)
        word = await first(spent=known.spent, sealed=known.sealed)
        if word == "sealed":
            raise GatewayError(f"launch {launch} was sealed", cause="launch_sealed")
        return "cost_budget"

    async def seal(self, launch: str) -> Seal:
        known = self._of(launch)
        known.sealed.set()
        request = known.request
        return Seal(
            run=RUN if request is None else request.run,
            trial="t@a:1" if request is None else str(request.trial),
            launch=1 if request is None else request.launch,
            trajectory=blob(f"trajectory of {launch}"),
            usage=NOTHING_USED,
            steps=0,
            tool_calls=0,
            waiting_s=0,
            stopped="cost_budget" if known.spent.is_set() else None,
        )

    async def stop(self, launch: str) -> None:
        self._of(launch).halted.set()

    async def delivered(self, launch: str) -> Delivery:
        known = self._of(launch)
        await known.done.wait()
        assert known.delivery is not None
        return replace(known.delivery, cancelled=known.halted.is_set() and not known.spent.is_set())

    async def probe(self, model: str) -> Any:
        raise NotImplementedError

    async def spending(self, run: str) -> Any:
        raise NotImplementedError

    async def seal_lost(self, run: str, trial: Any, launch: int, epoch: int) -> Seal | None:
        name = launch_id(run, trial, launch)
        return await self.seal(name) if name in self.launches else None

    # --- the pods' side

    def prepared(self, name: str, uid: str) -> bool:
        launch = self.launches.get(name)
        if launch is None or launch.pod not in ("", uid):
            self.refused[name] += 1
            return False
        launch.pod = uid
        return True

    def frozen(self, name: str, delivery: Delivery) -> None:
        launch = self.launches.get(name)
        if launch is None or not launch.sealed.is_set():
            self.refused[name] += 1
        elif launch.delivery is None:
            launch.delivery = delivery
            launch.done.set()


async def first(**events: asyncio.Event) -> str:
    """Wait for the first of some events and return its name."""
    tasks = {asyncio.ensure_future(event.wait()): name for name, event in events.items()}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(name for task, name in tasks.items() if task in done)
    finally:
        for task in tasks:
            task.cancel()


def blob(text: str) -> BlobRef:
    return BlobRef(key=f"blobs/{text}", sha256=hashlib.sha256(text.encode()).hexdigest(), size=len(text))


def delivery_of(name: str, code: int = 0, *, interrupted: bool = False, disk_bytes: int = 100, **more: Any) -> Delivery:
    state = FrozenState(entries=blob(f"entries of {name}"), changes=blob(f"changes of {name}"))
    frozen = Frozen(state=state, output=b"said\n", output_blob=blob(f"output of {name}"), final=None)
    return Delivery(
        frozen=frozen,
        exit=Exit(code=code),
        started=1.0,
        ended=2.0,
        disk_bytes=disk_bytes,
        interrupted=interrupted,
        **more,
    )


@dataclass
class Life:
    """What happens in a pod whose programs work."""

    gateway: PlayedGateway
    prepare: float = 0.005
    agent: float = 0.01
    """Seconds of work; the agent ends by itself with ``code``."""
    code: int = 0
    freeze: float = 0.005
    absent: float = 60.0
    """Seconds after the agent's end after which the freezer seals by itself."""
    delivers: bool = True
    disk_bytes: int = 100
    heeds_stop: bool = True
    term: int = 143
    """The agent's code when its pod has to go; 125 when the freezer's stop file comes first."""

    def script(self, **fields: Any) -> Script:
        behaviours: dict[str, Behaviour] = {
            names.PREPARE: self._prepare,
            names.AGENT: self._agent,
            names.FREEZER: self._freezer,
        }
        return Script(behaviours=behaviours | fields.pop("behaviours", {}), **fields)

    async def _prepare(self, play: Play, name: str) -> End:
        if await play.termed(self.prepare):
            return End(143)
        if not self.gateway.prepared(play.annotation(names.LAUNCH_ID), play.uid):
            return End(46, message=json.dumps({"cause": "already_begun", "message": "another pod has it"}))
        return End(0)

    async def _agent(self, play: Play, name: str) -> End:
        launch = self.gateway.launches[play.annotation(names.LAUNCH_ID)]
        done = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(self.agent, done.set)
        halted = {"halted": launch.halted, "spent": launch.spent} if self.heeds_stop else {}
        word = await first(done=done, term=play.term, **halted)
        timer.cancel()
        return {"done": End(self.code), "term": End(self.term)}.get(word, End(125))

    async def _freezer(self, play: Play, name: str) -> End:
        launch_name = play.annotation(names.LAUNCH_ID)
        launch = self.gateway.launches.get(launch_name)
        if launch is None:
            return End(52)
        alive = await self._until_dead(play, launch)
        await asyncio.sleep(self.freeze)
        if not self.delivers:
            return End(51, message=json.dumps({"cause": "relay", "message": "nobody answers"}))
        code = play.states[names.AGENT].get("terminated", {}).get("exitCode", 0)
        delivery = delivery_of(launch_name, code, interrupted=alive, disk_bytes=self.disk_bytes)
        self.gateway.frozen(launch_name, delivery)
        return End(0)

    async def _until_dead(self, play: Play, launch: Known) -> bool:
        """Wait until the launch is sealed, by the driver or by this freezer; return whether the agent was alive when the pod had to go."""
        absent = asyncio.Event()

        async def count() -> None:
            await play.ended[names.AGENT].wait()
            await asyncio.sleep(self.absent)
            absent.set()

        counting = asyncio.ensure_future(count())
        try:
            word = await first(sealed=launch.sealed, term=play.term, absent=absent)
            alive = word == "term" and not play.ended[names.AGENT].is_set()
            await play.ended[names.AGENT].wait()
        finally:
            counting.cancel()
        launch.sealed.set()
        return alive


@dataclass
class World:
    server: FaultServer
    gateway: PlayedGateway
    backend: KubernetesBackend
    pods: SandboxBackend

    def life(self, **fields: Any) -> Life:
        return Life(self.gateway, **fields)

    def play(self, script: Script | None = None, **fields: Any) -> None:
        self.server.kubelet.play("t-*", script or self.life(**fields).script())

    def spec(self, *command: str, **fields: Any) -> SandboxSpec:
        """Return the launch as it is made after a registration."""
        name = launch_id(RUN, fields.get("trial", "t@a:1"), fields.get("launch", 1))
        known = name in self.gateway.launches
        self.gateway.know(name)
        return spec_of(*command, door=self.gateway.door(name, known=known), **fields)

    def requests(self) -> Mapping[tuple[str, str], int]:
        """Requests about single pods and their events."""
        single = ("create", "get", "delete", "update")
        return {
            key: count
            for key, count in self.server.counts.items()
            if (key[1] == "pods" and key[0] in single) or key[1] == "events"
        }


@contextlib.asynccontextmanager
async def world(
    settings: Kubernetes = SETTINGS, *, pace: Pace = QUICK, epoch: int = 1, **options: Any
) -> AsyncIterator[World]:
    async with FaultServer(**options) as server:
        gateway = PlayedGateway()

        async def connecting() -> Any:
            return server.connection

        backend = KubernetesBackend(settings, connecting, pace=pace)
        async with backend.driving(RUN, epoch, gateway) as pods:
            made = World(server, gateway, backend, pods)
            made.play()
            yield made


async def whole(pods: SandboxBackend, gateway: PlayedGateway, spec: SandboxSpec) -> tuple[Ending, Frozen]:
    """Do as the spine does."""
    async with pods.open(spec) as sandbox:
        ending = await sandbox.ended()
        await gateway.seal(spec.name)
        return ending, await sandbox.freeze()


async def runs(sandbox: Sandbox, server: FaultServer) -> None:
    """Wait until the agent runs."""
    await sandbox.running()
