"""All launches that this process knows: registration, tokens, the door's hand-over."""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
import time
from weakref import WeakValueDictionary

import aiohttp

from orchestrator.gateway.agent import AgentSide
from orchestrator.gateway.ask import Talk, ask_tool, task_user
from orchestrator.gateway.body import Pool
from orchestrator.gateway.config import CommonConfig
from orchestrator.gateway.door import DoorError
from orchestrator.gateway.egress import Egress, Resolve, SystemResolver
from orchestrator.gateway.finish import finish_tool
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.listener import LaunchListener
from orchestrator.gateway.models import Models
from orchestrator.gateway.news import RunNews
from orchestrator.gateway.past import restore
from orchestrator.gateway.pod import Begun
from orchestrator.gateway.real_dates import KnownDays
from orchestrator.gateway.recall import card_of
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.serving import room_for_requests
from orchestrator.gateway.tokens import Claim, Role, TokenMint
from orchestrator.gateway.volume import Volume
from orchestrator.gateway.wire import LaunchBody, Registered
from orchestrator.gateway.worlds.engine import WorldEngine
from orchestrator.gateway.worlds.replay import Recordings, replayed
from orchestrator.gateway.worlds.tools import open_world, world_tools
from orchestrator.gateway.worlds.upstreams import Upstreams
from orchestrator.interfaces import BundleSource, ObjectStore, Trajectory, TrajectoryFactory
from orchestrator.records.usage import Spending

_LOOK_SECONDS = 0.05
_REMEMBERED = 4096
"""Sealed launches with a committed state that are kept in memory."""

_SLACK_SECONDS = 3600
"""A token outlives its launch's hard deadline by this: laying inputs, freezing, a slow store."""
_POD_SLACK_SECONDS = 48 * 3600
"""The same for pods that have begun: their driver may be absent for long."""
_POD_WAIT_SECONDS = 14 * 24 * 3600
"""How long a pod may wait until it begins: for a queue, a quota, a node."""

_NEEDED: dict[Role, str] = {
    "agent": "the token is for something else",
    "prepare": "the token of a launch's prepare is needed",
    "freezer": "a freezer's token is needed, of the launch's last registration",
}


class Registry:
    """Launches by short name."""

    def __init__(
        self,
        config: CommonConfig,
        store: ObjectStore,
        trajectories: TrajectoryFactory,
        bundles: BundleSource,
        session: aiohttp.ClientSession,
        volume: Volume | None = None,
    ) -> None:
        """``volume``: what an earlier process has left, and one after this is left; None: nothing is."""
        self._config = config
        self._store = store
        self._trajectories = trajectories
        self._bundles = bundles
        self._volume = volume
        self._mint = TokenMint(None if self._volume is None else self._volume.key())
        self.agents = AgentSide(self._mint)
        """Who answers agents."""
        self.instance = self._mint.name
        """Name of this process, and of those before and after it on the same volume: no other one knows its launches."""
        self.process = secrets.token_hex(8)
        """Name of this process, whose news begin with it."""
        self._launches: dict[str, Launch] = {}
        self._at: dict[str, str] = {}
        """Launches by the address of their pod."""
        self._forgotten: dict[str, Spending] = {}
        """What launches have used that are no longer in memory, by run."""
        self._news: dict[str, RunNews] = {}
        self._epochs: dict[str, int] = {} if self._volume is None else self._volume.epochs()
        self._lost: set[str] = set()
        """Launches of earlier processes that nothing is known of any more: they must not begin anew."""
        self.draining = False
        """Nothing new is begun: what comes waits for the process after this one."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._pool = Pool(room_for_requests())
        self.models = Models(config.providers, bundles, session)
        """Where calls to models go."""
        self._worlds = WorldEngine(config.world_program, config.folder / "worlds") if config.world_program else None
        self._recordings = Recordings(bundles)
        self._upstreams = Upstreams(config.providers, bundles, session)
        self._days = KnownDays(bundles)
        self.resolve: Resolve = SystemResolver()
        """How names of hosts outside are found."""

    @property
    def serves_pods(self) -> bool:
        """Whether launches are pods, which outlive their drivers."""
        return self._config.serves_pods

    def find(self, launch: str) -> Launch:
        """Return a launch by short name. Raises Refusal 404 ``unknown_launch``."""
        found = self._launches.get(launch)
        if found is None:
            raise unknown_launch(launch)
        return found

    def news(self, run: str) -> RunNews:
        """Return what happens to the launches of a run."""
        return self._news.setdefault(run, RunNews())

    def spending(self, run: str) -> Spending:
        """Return what all launches of a run have used here; a cost that is not known counts as nothing."""
        found = self._forgotten.get(run, Spending())
        for launch in self._launches.values():
            if launch.body.run == run:
                found = _plus(found, launch)
        return found

    def check_epoch(self, run: str, epoch: int) -> None:
        """Refuse a driver that was replaced. Raises Refusal 409 ``stale_epoch``."""
        seen = self._epochs.get(run, self._config.epoch)
        if epoch < seen:
            msg = f"epoch {epoch} of run {run} is over: a driver of epoch {seen} has taken the run"
            raise Refusal(409, "stale_epoch", msg)
        if self._epochs.get(run) == epoch:
            return
        self._epochs[run] = epoch
        if self._volume is not None:
            self._volume.keep_epochs(self._epochs)
        if epoch > seen:
            self.news(run).wake()  # a driver that was replaced hears of it

    def unsealed(self) -> list[Launch]:
        """Return the launches that are not being sealed yet."""
        return [each for each in self._launches.values() if not each.sealing]

    def expired(self) -> list[Launch]:
        """Return the launches whose tokens are too old and that nobody has sealed: their driver is gone for good."""
        now = time.time()
        return [each for each in self._launches.values() if each.seal is None and 0 < each.expires < now]

    async def abandon(self) -> None:
        """Let nothing go on in this process."""
        for launch in list(self._launches.values()):
            launch.stop_clock()
            calls = set(launch.calls)
            for call in calls:
                call.cancel()
            if calls:
                await asyncio.wait(calls)
            if launch.listener is not None and launch.seal is None:
                await launch.listener.close()
        if self._worlds is not None:
            await self._worlds.close()

    async def register(self, body: LaunchBody) -> Registered:
        """Make a launch known. Raises Refusal, StoreError.

        One that is known gets fresh tokens, since its sandbox died with whoever registered it; where pods are served it gets the tokens
        that it has, since its pod goes on.
        """
        await self.parked()
        self.check_epoch(body.run, body.epoch)
        if body.id in self._lost:
            raise unknown_launch(body.id)
        async with self._locks.setdefault(body.id, asyncio.Lock()):
            launch = self._launches.get(body.id)
            if launch is None and self._config.serves_pods:
                launch = await self.restored(body)
            elif launch is not None:
                self._check_known(launch, body)
            known = launch is not None
            if launch is None:
                launch = await self._begin(body)
        if self._config.serves_pods:
            launch.generation = 1
            if not launch.minted_until:
                launch.expires = int(time.time()) + _POD_WAIT_SECONDS
                launch.minted_until = launch.expires + _pod_seconds(body)
        else:
            launch.generation += 1
            launch.minted_until = launch.expires = int(time.time() + body.budgets.hard_seconds) + _SLACK_SECONDS
        launch.keep()
        launch.trajectory.hand_over()
        return self._registered(launch, known)

    def _registered(self, launch: Launch, known: bool) -> Registered:
        def make(role: Role) -> str:
            return self._mint.make(role, launch.id, launch.generation, launch.minted_until)

        return Registered(
            launch=launch.id,
            agent_token=make("agent"),
            freezer_token=make("freezer"),
            prepare_token=make("prepare") if self._config.serves_pods else None,
            instance=self.instance,
            process=self.process,
            known=known,
            begun=launch.pod.begun is not None or launch.pod.delivered.is_set(),
            sealed=launch.sealing,
        )

    def _check_known(self, launch: Launch, body: LaunchBody) -> None:
        if self._config.serves_pods and launch.pod.delivered.is_set():
            return
        if launch.sealing and not self._config.serves_pods:
            raise Refusal(409, "already_sealed", f"launch {body.id} is sealed; start another launch")
        if launch.body.model_copy(update={"epoch": body.epoch}) != body:
            raise Refusal(409, "launch_differs", f"launch {body.id} was registered with other budgets or models")

    def bearer_of(self, token: str, role: Role, peer: str | None = None) -> Launch:
        """Return the launch that a token of a role is for, shown by who has the address ``peer``. Raises Refusal."""
        claim: Claim | None = self._mint.read(token)
        launch = None if claim is None else self.find(claim.launch)
        if claim is None or launch is None or launch.expires < time.time():
            msg = "the token is not one of this gateway's or is too old"
            raise Refusal(401, "bad_token", msg, finding=True, close=True)
        if claim.role != role or claim.generation != launch.generation:
            msg = _NEEDED[role]
            raise Refusal(403, "wrong_token", msg, finding=True, close=True)
        if self._config.serves_pods:
            _check_pod(launch, role, peer)
        return launch

    def is_own(self, token: str) -> bool:
        """Return whether a token is one that this process gave to a pod's own programs, and not to an agent."""
        claim = self._mint.read(token)
        return claim is not None and claim.role != "agent"

    def begin(self, launch: Launch, pod: Begun) -> None:
        """Note the pod that runs a launch: from now on the launch's tokens are good from there alone. Raises Refusal."""
        begins = launch.pod.begun is None
        launch.pod.begin(pod)
        if begins:  # counted from when its pod was made, its time might be over before its agent's
            launch.expires = int(time.time()) + _pod_seconds(launch.body)
        launch.keep()
        if pod.address is not None:
            self._at[pod.address] = launch.id

    def at(self, address: str | None) -> Launch | None:
        """Return the launch whose pod has an address, as far as that is known: the last that began there."""
        return None if address is None else self._launches.get(self._at.get(address, ""))

    def opened(self, token: str, listening: socket.socket) -> None:
        """Take a sandbox's listening socket: the start of the working clock. Raises DoorError."""
        try:
            launch = self.bearer_of(token, "freezer")
        except Refusal as refusal:
            raise DoorError(refusal.message) from None
        if launch.sealing:
            msg = "the launch is sealed"
            raise DoorError(msg)
        if launch.listener is not None:
            msg = "the launch has a listening socket already"
            raise DoorError(msg)
        launch.listener = LaunchListener(listening, self.agents.handler(launch), self._config.limits)
        launch.start_clock()

    async def restored(self, body: LaunchBody) -> Launch | None:
        """Return a launch that an earlier process sealed, from the store: it is over, and must not begin anew."""
        launch = await restore(body, self._config, self._pool, self._store)
        if launch is not None:
            self.take_up(launch)
        return launch

    async def keep_worlds(self, launches: set[str]) -> None:
        """Remove the databases of all other launches."""
        if self._worlds is not None:
            await self._worlds.keep_only(launches)

    def take_up(self, launch: Launch) -> None:
        """Know a launch of an earlier process."""
        self._keep(launch)
        begun = launch.pod.begun
        if begun is not None and begun.address is not None:
            self._at[begun.address] = launch.id
        self.news(launch.body.run).note(launch.id)

    def give_up(self, launch: str) -> None:
        """Let a launch of an earlier process, of which nothing is known any more, not begin anew."""
        self._lost.add(launch)

    async def _begin(self, body: LaunchBody) -> Launch:
        if body.egress and not self._config.egress.enabled:
            msg = f"task {body.task} needs a network (environment.network), and this gateway may reach nothing outside"
            raise Refusal(400, "egress_disabled", msg)
        launch = await self.made(body)
        launch.record_beginning()
        self._keep(launch)
        return launch

    async def made(self, body: LaunchBody, trajectory: Trajectory | None = None) -> Launch:
        """Return a launch with all that it offers, and with a fresh trajectory unless there is one.

        Raises Refusal and StoreError.
        """
        routes = await self.models.routes(body)
        world = await open_world(body, self._bundles, self._worlds)
        user = await task_user(body, self._bundles, self.models, world)
        recording = await self._recordings.open(body)
        trajectory = trajectory or await self._trajectories.open(body.id)
        launch = Launch(body, trajectory, routes, self._config, self._pool)
        launch.dates = await self._days.dates(body)
        launch.tools.add(finish_tool(launch))
        if user is not None and body.user is not None:
            launch.talk = Talk(launch, user, body.user.max_turns)
            launch.tools.add(ask_tool(launch.talk))
        launch.world = world
        live = [] if world is None else list(world_tools(launch, world))
        live += await self._upstreams.tools(launch, body, recording)
        for tool in replayed(launch, recording, live):
            launch.tools.add(tool)
        launch.egress = Egress(launch, self._config.egress, self.resolve) if body.egress else None
        return launch

    async def parked(self) -> None:
        """Wait for the process after this one, if this one begins nothing any more: connections break then, and are made again."""
        if self.draining:
            await asyncio.Event().wait()

    async def drain(self, seconds: float) -> None:
        """Begin nothing any more, and wait at most so long for what is under way."""
        self.draining = True
        end = time.monotonic() + seconds
        while any(_is_busy(each) for each in self._launches.values()) and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    async def leave(self) -> None:
        """End in order: what is under way is lost, and all is on the disk for the process that comes."""
        for launch in self._launches.values():
            launch.mark = _nothing  # what is cut off now was open
        await self.abandon()
        if self._volume is not None:
            open_ones = [launch for launch in self._launches.values() if launch.seal is None]
            await asyncio.gather(*(launch.trajectory.flush() for launch in open_ones))
            await asyncio.to_thread(self._volume.leave)

    def _keep(self, launch: Launch) -> None:
        volume = self._volume
        if volume is not None:
            launch.keep = lambda: volume.keep(card_of(launch))
            launch.mark = lambda is_open: volume.mark(launch.id, is_open=is_open)
        news = self.news(launch.body.run)

        def changed() -> None:
            # A pod's own freezer has it sealed, and delivers then, for which its driver waits.
            soon = self.serves_pods and launch.seal is not None and not launch.pod.delivered.is_set()
            if volume is not None and launch.pod.delivered.is_set():
                volume.drop(launch.id)
            news.note(launch.id, soon=soon)

        launch.changed = changed
        self._launches[launch.id] = launch
        self._forget()

    def _never_begins(self, launch: Launch) -> bool:
        return self._config.serves_pods and launch.sealing and launch.pod.begun is None

    def _forget(self) -> None:
        if len(self._launches) <= _REMEMBERED:
            return
        now = time.time()
        done = [
            name
            for name, launch in self._launches.items()
            if launch.over or (launch.seal is not None and (launch.expires < now or self._never_begins(launch)))
        ]
        for name in done[: len(self._launches) - _REMEMBERED]:
            launch = self._launches.pop(name)
            if self._volume is not None:
                self._volume.drop(name)
            self.news(launch.body.run).forget(name)
            begun = launch.pod.begun
            if begun is not None and begun.address is not None and self._at.get(begun.address) == name:
                del self._at[begun.address]
            before = self._forgotten.get(launch.body.run, Spending())
            self._forgotten[launch.body.run] = _plus(before, launch)


def _is_busy(launch: Launch) -> bool:
    return bool(launch.calls) or (launch.egress is not None and launch.egress.is_open)


def _nothing(_is_open: bool) -> None: ...


def _pod_seconds(body: LaunchBody) -> int:
    """Return how long the tokens of a pod are good once it has begun."""
    return math.ceil(body.budgets.hard_seconds) + _POD_SLACK_SECONDS


def unknown_launch(launch: str) -> Refusal:
    """Return what is said of a launch that this process does not know."""
    msg = f"launch {launch[:64]} is not known here: it was never registered, or the gateway was started anew since"
    return Refusal(404, "unknown_launch", msg)


def _check_pod(launch: Launch, role: Role, peer: str | None) -> None:
    """Refuse whoever is not in the launch's pod. Before one has begun there is only a prepare, and any pod may be the launch's."""
    begun = launch.pod.begun
    if begun is None:
        if role != "prepare":
            msg = "no pod of this launch has begun: `prepare` comes first"
            raise Refusal(403, "not_begun", msg, finding=True, close=True)
    elif begun.address is not None and begun.address != peer:
        if role == "prepare":
            raise launch.pod.already_begun()
        msg = "the token belongs to another pod"
        raise Refusal(403, "wrong_token", msg, finding=True, close=True)


def _plus(counted: Spending, launch: Launch) -> Spending:
    return Spending(
        running=counted.running + (launch.seal is None),
        steps=counted.steps + launch.meter.steps,
        cost_nano_usd=counted.cost_nano_usd + (launch.meter.usage.cost_nano_usd or 0),
    )
