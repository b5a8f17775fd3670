"""One run whose surroundings are in memory and whose processes can be killed at every moment that has a name.

The code under test is the real one: lease, spine, pool, purse, ``Local.run``, the grader's search for its evidence, the dataset. What is
played is the store (a dictionary), the gateway with its relay, the sandboxes and the grader's checks; they write the records that the real
ones write, in their order. A killed driver is one whose every later step raises: nothing that follows a kill has an effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import orjson
import pytest
from made import Silent, made_agent, made_run, made_task
from memory_store import Memory, kind

from grader_service.evidence import NothingToGradeError, find_trial
from orchestrator import wiring
from orchestrator.dataset.commits import CHECKPOINT_EVERY, Commit, RunEntry, load_snapshot
from orchestrator.dataset.write import commit_run
from orchestrator.driver import lease
from orchestrator.driver.committed import Committed, load_committed, load_manifest
from orchestrator.driver.execute import Execution, nothing_left, what_is_left
from orchestrator.driver.local import Local
from orchestrator.errors import GatewayError, GraderError, SandboxError, StoreError
from orchestrator.interfaces import Door, Ending, Frozen, LaunchRequest, Registration, RelaySink, SandboxSpec, TrialPool
from orchestrator.plan.trials import all_trials
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId, launch_id
from orchestrator.records.lease import Process
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Exit, Seal
from orchestrator.records.state import FrozenState
from orchestrator.records.usage import Usage
from orchestrator.records.verdict import CheckResult, Verdict
from orchestrator.sandbox.kept import OnThisMachine
from orchestrator.settings import Price, Settings
from orchestrator.spec.agent import Agent
from orchestrator.spec.task import Budgets

RUN = "r"
_DIGEST = "sha256:" + "d" * 64
NANO = 10**9
LIMIT_USD = 4.0
"""Where the run's limit begins; whoever drives it raises it by this much when it is reached."""
DEAREST = 0.9
"""US dollars that a launch costs at most; one is set aside for each."""


class Killed(BaseException):
    """The process is gone."""


class GuardedStore:
    """The store as one process sees it: each call may be its last, and may be one that the store does not answer."""

    def __init__(self, life: Life, process: Callable[[], object]) -> None:
        self._life, self._process, self._raw = life, process, life.world.store
        self._mine = process()

    async def _call(self, verb: str, key: str, call: Callable[[], Any]) -> Any:
        name = f"{verb} {kind(key)}"
        await self._moment(f"before {name}")
        found = await call()
        await self._moment(f"after {name}")
        return found

    async def _moment(self, name: str) -> None:
        if await self._life.at(name) == "store":
            msg = "503"
            raise StoreError(msg, cause="store_unavailable")
        if self._process() is not self._mine:
            raise _ProcessGoneError

    async def put_blob(self, key: str, data: bytes | AsyncIterator[bytes]) -> BlobRef:
        return cast("BlobRef", await self._call("put", key, lambda: self._raw.put_blob(key, data)))

    async def create(self, key: str, data: bytes) -> bool:
        return bool(await self._call("create", key, lambda: self._raw.create(key, data)))

    async def get(self, key: str) -> bytes:
        return cast("bytes", await self._call("get", key, lambda: self._raw.get(key)))

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        yield await self.get(key)

    async def exists(self, key: str) -> bool:
        return bool(await self._call("look at", key, lambda: self._raw.exists(key)))

    async def list(self, prefix: str) -> list[str]:
        return cast("list[str]", await self._call("list", prefix, lambda: self._raw.list(prefix)))


class _ProcessGoneError(Exception):
    """The service that was at work was killed."""


class PlayedGateway:
    """Gateway and relay. A crash forgets every launch and every token."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.process = object()
        self._names: dict[str, LaunchRequest] = {}
        self._seals: dict[str, Seal] = {}

    def crash(self) -> None:
        self.process, self._names, self._seals = object(), {}, {}

    async def __aenter__(self) -> PlayedGateway:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    @contextlib.asynccontextmanager
    async def _working(self, what: str, launch: str | None = None) -> AsyncIterator[GuardedStore]:
        mine = self.process
        try:
            await self.life.at(f"before {what}")
            if launch is not None and launch not in self._names:
                raise GatewayError(launch, cause="gateway_restarted")
            if self.process is not mine:
                raise _ProcessGoneError
            yield GuardedStore(self.life, lambda: self.process)
            await self.life.at(f"after {what}")
            if self.process is not mine:
                raise _ProcessGoneError
        except _ProcessGoneError:
            raise GatewayError(what, cause="gateway_lost") from None

    async def register(self, request: LaunchRequest) -> Registration:
        async with self._working("register"):
            self.life.world.note_launch(request)
            name = launch_id(request.run, request.trial, request.launch)
            self._names[name] = request
            token = f"secret-{self.life.number}-{name}"
        door, sink = Door(socket="/d", token=token), RelaySink(socket="/g", token=token)
        return Registration(launch=name, agent_token=token, door=door, sink=sink)

    async def stop_reason(self, launch: str) -> Any:
        await asyncio.Event().wait()

    async def seal(self, launch: str) -> Seal:
        async with self._working("seal", launch) as store:
            if launch not in self._seals:
                self._seals[launch] = await self._seal(self._names[launch], store)
            return self._seals[launch]

    async def _seal(self, request: LaunchRequest, store: GuardedStore) -> Seal:
        facts: list[dict[str, Any]] = [{"type": "launch", "run": RUN}, {"type": "seal", "steps": 1}]
        lines = [
            orjson.dumps({"v": 1, "seq": n, "t": 1.0, "source": "gateway", **each}) for n, each in enumerate(facts)
        ]
        trajectory = await store.put_blob(keys.blob(RUN, uuid.uuid4().hex), b"\n".join([*lines, b""]))
        seal = Seal(
            run=RUN,
            trial=str(request.trial),
            launch=request.launch,
            trajectory=trajectory,
            usage=Usage(uncached_input=10, output=1, cost_nano_usd=self.life.world.charge(request)),
            steps=1,
            tool_calls=0,
            waiting_s=0,
        )
        await store.create(keys.record(RUN, request.trial, request.launch, request.epoch, "seal.json"), seal.to_bytes())
        return seal

    async def take_state(self, launch: str) -> FrozenState:
        """Play the relay."""
        async with self._working("relay", launch) as store:
            request = self._names[launch]
            parts = [f"{name} of {request.trial}".encode() for name in ("entries", "changes")]
            blobs = [await store.put_blob(keys.blob(RUN, uuid.uuid4().hex), part) for part in parts]
            state = FrozenState(entries=blobs[0], changes=blobs[1])
            await store.create(
                keys.record(RUN, request.trial, request.launch, request.epoch, "state.json"), state.to_bytes()
            )
            return state


class PlayedSandboxes(OnThisMachine):
    """Sandboxes whose agent works for a moment and ends. A crash kills the keepers of all that are open."""

    name = "played"

    def __init__(self, life: Life) -> None:
        self.life = life
        self.keepers = object()
        self.open_now = 0

    def crash(self) -> None:
        self.keepers = object()

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[_PlayedSandbox]:
        await self.life.at("before open")
        self.open_now += 1
        try:
            sandbox = _PlayedSandbox(self, spec.name)
            await sandbox.moment("after open")
            yield sandbox
        finally:
            self.open_now -= 1


class _PlayedSandbox:
    def __init__(self, here: PlayedSandboxes, name: str) -> None:
        self.labels = {"limits": "played"}
        self._here, self._name, self._keeper = here, name, here.keepers

    async def moment(self, name: str) -> None:
        await self._here.life.at(name)
        if self._here.keepers is not self._keeper:
            raise SandboxError(self._name, cause="sandbox_keeper")

    async def ended(self) -> Ending:
        await self.moment("before ended")
        await self.moment("after ended")
        return Ending(exit=Exit(code=0), cause="exited", started=1.0, ended=2.0)

    async def stop(self) -> None:
        await self.moment("stop")

    async def freeze(self) -> Frozen:
        await self.moment("before freeze")
        state = await self._here.life.gateway.take_state(self._name)
        await self.moment("after freeze")
        return Frozen(state=state, output=b"", output_blob=None, final=None)


class PlayedGrader:
    """The grader's real way to its evidence and to its marker; the check itself is the toss of a coin that always falls alike."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.process = object()

    def crash(self) -> None:
        self.process = object()

    async def __aenter__(self) -> PlayedGrader:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def grade(self, run: str, trial: TrialId, waits: object = None) -> Verdict:
        await self.life.at("before grade")
        store = GuardedStore(self.life, lambda: self.process)
        try:
            verdict = await self._grade(store, run, trial)
        except (_ProcessGoneError, StoreError) as error:
            raise GraderError(str(trial), cause="grader_unreachable") from error
        except NothingToGradeError as error:
            raise GraderError(str(error), cause="grader_refused") from error
        await self.life.at("after grade")
        return verdict

    async def _grade(self, store: GuardedStore, run: str, trial: TrialId) -> Verdict:
        committed = await find_trial(store, run, trial)
        assert committed.problem is None, committed.problem
        key = keys.verdict(run, trial, _DIGEST)
        if not await store.exists(key):
            passed = passes(trial)
            made = Verdict(
                run=run,
                trial=str(trial),
                launch=committed.outcome.launch,
                state_sha256=committed.outcome.state.sha256 if committed.outcome.state else None,
                grader_digest=_DIGEST,
                result="passed" if passed else "failed",
                checks=(CheckResult(id="c", type="files", passed=passed),),
            )
            await store.create(key, made.to_bytes())
        return Verdict.from_bytes(await store.get(key), key)


def passes(trial: TrialId) -> bool:
    return hashlib.sha256(str(trial).encode()).digest()[0] % 2 == 0


@dataclass(frozen=True)
class Blow:
    """Kill a process at the n-th time that a moment comes; ``any`` is every moment."""

    moment: str
    count: int
    victim: str


@dataclass
class World:
    """A run, its store, and what is to be killed when, in this order."""

    folder: Path
    seed: int = 0
    blows: list[Blow] = field(default_factory=list)
    with_rows: bool = True
    """Whether the dataset is written as well: that takes longer than all else."""
    store: Memory = field(default_factory=Memory)
    seen: Counter[str] = field(default_factory=Counter)
    struck: list[Blow] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Rules that were broken while it ran."""
    gone: set[int] = field(default_factory=set)
    charged: int = 0
    limit: float = LIMIT_USD
    _count: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.life = Life(self, 0)
        self.manifest = _manifest()
        self.store.objects.setdefault(keys.manifest(RUN), self.manifest.to_bytes())

    @property
    def lives(self) -> int:
        """How many drivers there were."""
        return self.life.number

    def strike(self, moment: str) -> str | None:
        """Return who dies now, if anybody."""
        self.seen[moment] += 1
        if not self.blows or self.blows[0].moment not in {"any", moment}:
            return None
        self._count += 1
        if self._count < self.blows[0].count:
            return None
        self._count = 0
        self.struck.append(self.blows.pop(0))
        return self.struck[-1].victim

    def note_launch(self, request: LaunchRequest) -> None:
        """Launch n+1 may begin only when launch n is committed as infra or cancelled."""
        if request.launch == 1:
            return
        before = self.store.objects.get(keys.outcome(RUN, request.trial, request.launch - 1), b"{}")
        if orjson.loads(before).get("outcome_class") not in {"infra", "cancelled"}:
            self.broken.append(f"{request.trial} launch {request.launch} began before the one before it had ended")

    def charge(self, request: LaunchRequest) -> int:
        """Return what a launch cost, committed or not."""
        cost = int(self.dice.uniform(0, DEAREST) * NANO)
        self.charged += cost
        if self.charged > self.limit * NANO:
            self.broken.append(f"{self.charged} nano USD were spent of {self.limit} USD")
        return cost

    def live(self) -> None:
        """Drive the run, life after life, until nothing is left."""
        while self.lives < 60:
            self.life = Life(self, self.lives + 1)
            with contextlib.suppress(Killed, StoreError):
                if asyncio.run(self.life.drive()):
                    return
            self.gone.add(self.lives)
        self.broken.append("the run does not end")


class Life:
    """One driver process with the services that die with it."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.dead = False
        self.gateway = PlayedGateway(self)
        self.sandboxes = PlayedSandboxes(self)
        self.grader = PlayedGrader(self)
        self.pool: TrialPool | None = None

    async def at(self, moment: str) -> str | None:
        """Pass a moment. Raises Killed when the driver does not survive it, or has not survived an earlier one."""
        for _ in range(self.world.dice.randrange(3)):
            await asyncio.sleep(0)
        if self.dead:
            raise Killed(moment)
        victim = self.world.strike(moment)
        if victim == "driver":
            self.dead = True
            raise Killed(moment)
        if victim in {"gateway", "sandboxes", "grader"}:
            getattr(self, victim).crash()
        if victim == "operator" and self.pool is not None:
            await self.pool.stop()
        return victim

    async def drive(self) -> bool:
        """Go on with the run as the command line does. Returns whether nothing is left."""
        store = GuardedStore(self, lambda: self)
        manifest = await load_manifest(store, RUN)
        done = nothing_left(await what_is_left(manifest, store))
        if done is None:
            done = await self._run(manifest, store)
        if self.world.with_rows:
            await commit_run(store, RUN, wiring.event_reader(store), self.world.folder / "cache")
        return not done.left

    async def _run(self, manifest: RunManifest, store: GuardedStore) -> Execution:
        manifest = manifest.model_copy(
            update={"limits": manifest.limits.model_copy(update={"cost_usd": self.world.limit})}
        )
        services = _Services(self)
        settings = Settings(cache=self.world.folder / "cache")
        local = Local(
            settings=settings,
            store=store,
            backend=cast("Any", self.sandboxes),
            scratch=self.world.folder,
            services=cast("Any", services),
            concurrency=2,
            cluster=None,
        )
        execution = await local.run(manifest, Silent(), cast("Any", _Operator(self)))
        if self.sandboxes.open_now:
            self.world.broken.append(f"{self.sandboxes.open_now} sandboxes are left")
        if execution.limited is not None:
            self.world.limit += LIMIT_USD
        return execution

    async def ready(self) -> None:
        await self.at("ready")

    async def fetch(self, audience: str, digest: str) -> Path:
        """Play the source of bundles."""
        await self.at("fetch")
        return self.world.folder / "bundle"

    async def listing(self, digest: str) -> Path:
        """Play the list of a bundle."""
        await self.at("listing")
        return self.world.folder / "listing"


class _Services:
    def __init__(self, life: Life) -> None:
        self.ready = life.ready
        self.open_gateway = lambda: life.gateway
        self.open_grader = lambda: life.grader


class _Operator:
    asked_by = None
    lets_go = False

    def __init__(self, life: Life) -> None:
        self._life = life

    def use(self, pool: TrialPool) -> None:
        self._life.pool = pool

    async def requested(self, request: object) -> None: ...


def _manifest() -> RunManifest:
    tasks = [made_task(name, budgets=Budgets(max_cost_usd=DEAREST)) for name in ("one", "two")]
    model = "local/played"
    agent = Agent(type="react", models={"main": model}, prices={model: Price(input=10, output=10)})
    agents = tuple(made_agent(name, agent) for name in ("a", "b"))
    return made_run(*tasks, agents=agents, run=RUN, suite="played", backend="played", max_launches=6)


def play(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[..., World]:
    """Put played parts in the place of the real ones; returns what makes worlds, of which the last one made is on the stage.

    Nothing runs in threads, so that a seed is a course of events.
    """

    async def at_once(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    for name in ("workspace", "task"):
        (folder / "bundle" / name).mkdir(parents=True)
    stage: list[World] = []

    def world(
        seed: int, *blows: Blow, with_rows: bool = True, objects: Mapping[str, bytes] = MappingProxyType({})
    ) -> World:
        stage[:] = [World(folder, seed, list(blows), with_rows, Memory(dict(objects)))]
        return stage[0]

    monkeypatch.setattr(wiring, "bundle_source", lambda *_: stage[0].life)
    monkeypatch.setattr(lease, "this_process", lambda: Process(host="here", pid=stage[0].life.number))
    monkeypatch.setattr(lease, "is_gone", lambda process: process.pid in stage[0].gone)
    return world


def check(world: World) -> None:
    """Whatever was killed: the same trials, one result each, the same verdicts, the same rows, no money too much, nothing left over."""
    told = f"seed {world.seed}, struck: {world.struck}, lives: {world.lives}"
    assert not world.broken, (world.broken, told)
    committed, verdicts = asyncio.run(_read(world))
    planned = [trial.id for trial in all_trials(world.manifest)]
    assert sorted(committed.outcomes) == sorted(planned), told
    for trial, launches in committed.outcomes.items():
        assert [each.launch for each in launches] == list(range(1, len(launches) + 1)), (trial, told)
        assert [each.outcome_class == "result" for each in launches] == [False] * (len(launches) - 1) + [True], (
            trial,
            told,
        )
    assert len(verdicts) == len(planned), told
    assert {each.trial: each.result for each in verdicts} == {
        str(trial): "passed" if passes(trial) else "failed" for trial in planned
    }, told
    assert not [key for key, data in world.store.objects.items() if b"secret-" in data], told
    if world.with_rows:
        kept, made = asyncio.run(_rows(world))
        assert kept == made, told
    assert not list(world.folder.rglob("*.tmp")), told


async def _read(world: World) -> tuple[Committed, list[Verdict]]:
    store = world.store
    verdicts = [Verdict.from_bytes(await store.get(key)) for key in await store.list(keys.verdicts(RUN))]
    return await load_committed(store, RUN), verdicts


def ended_run(world: Callable[..., World]) -> Mapping[str, bytes]:
    """Return the store of a run that has ended, whose dataset has 99 commits, the last of them from when the run was half done."""
    half = world(0, Blow("after create grade", 2, "driver"))
    half.life = Life(half, 1)
    with contextlib.suppress(Killed):
        asyncio.run(half.life.drive())
    objects = half.store.objects
    for number in range(1, CHECKPOINT_EVERY - 1):
        commit = Commit(number=number, id=str(number), type="compaction", created_at=half.manifest.created_at)
        objects[keys.dataset_commit(number)] = commit.to_bytes()
    asyncio.run(commit_run(half.store, RUN, wiring.event_reader(half.store), half.folder / "cache"))
    rest = world(0, with_rows=False, objects=objects)
    rest.life, rest.gone = half.life, {half.life.number}
    rest.live()
    return MappingProxyType(rest.store.objects)


async def _rows(world: World) -> list[RunEntry]:
    """Return what the dataset says of the run: as it is, and as it is when made anew from the records."""
    anew = Memory({key: data for key, data in world.store.objects.items() if not key.startswith(keys.DATASETS)})
    await commit_run(anew, RUN, wiring.event_reader(anew), world.folder / "cache")
    return [(await load_snapshot(each)).runs[RUN] for each in (world.store, anew)]
