"""The pool whose trials run in processes of a Ray cluster, as this process sees it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from orchestrator import __version__
from orchestrator.dataset.staging import FINISH_SECONDS
from orchestrator.driver.breaker import Breaker
from orchestrator.driver.lease import LeaseView
from orchestrator.driver.place import KUBERNETES
from orchestrator.driver.ray.cluster import Cluster
from orchestrator.driver.ray.coordinator import Kind
from orchestrator.driver.ray.messages import (
    Aborted,
    Assignment,
    Batch,
    Ended,
    Event,
    Failure,
    LaunchFailed,
    Numbered,
    PhaseEntered,
    Waits,
)
from orchestrator.driver.ray.pulse import UP_SECONDS, awaited, end_when_silent, first_answer
from orchestrator.driver.services import Addresses, Services
from orchestrator.errors import InfrastructureError
from orchestrator.interfaces import ObjectStore, PlannedTrial, TrialEnd
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.lease import Process
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.settings import Settings

_DEATHS = 20
"""Deaths of one supervisor, or of the coordinator, without a trial that ended between them, after which the pool gives up."""
_FINISH_MARGIN_SECONDS = 5.0
"""For the answer of a supervisor that has given up writing."""
_PODS = 2500
"""Pods that one supervisor watches."""
_PAUSE_SECONDS = 0.2
_END_SECONDS = 10.0
"""How long supervisors have for tidying up at the end, before they are killed."""
_Answer = TypeVar("_Answer")


async def assign(
    store: ObjectStore,
    lease: LeaseView,
    manifest: RunManifest,
    settings: Settings,
    scratch: Path,
    slots: tuple[int, ...],
) -> Assignment:
    """Return what the actors of a run are made from. Raises StoreError."""
    on_cluster = manifest.backend == KUBERNETES
    if on_cluster:  # each supervisor has a limiter of its own
        each = settings.kubernetes.creates_per_second / len(slots)
        settings = settings.model_copy(
            update={"kubernetes": settings.kubernetes.model_copy(update={"creates_per_second": each})}
        )
    data = await store.get(keys.manifest(manifest.run))
    return Assignment(
        run=manifest.run,
        manifest_sha256=hashlib.sha256(data).hexdigest(),
        version=__version__,
        epoch=lease.epoch,
        term_s=lease.term_s,
        settings=settings.model_copy(update={"providers": {}, "key_problems": {}}),  # no key travels
        services=None if on_cluster else scratch / "services",
        scratch=scratch,
        slots=slots,
        limit_usd=manifest.limits.cost_usd,
    )


def share(concurrency: int, supervisors: int | None, processors: int, backend: str = "") -> tuple[int, ...]:
    """Return how many trials each supervisor runs at one time; together exactly ``concurrency``.

    A supervisor whose trials are pods only watches them, so by default there is one for each ``_PODS`` of them.
    """
    usual = -(-concurrency // _PODS) if backend == KUBERNETES else max(2, processors // 4)
    count = min(concurrency, supervisors or usual)
    return tuple(concurrency // count + (index < concurrency % count) for index in range(count))


@contextlib.asynccontextmanager
async def ray_pool(
    cluster: Cluster,
    assignment: Assignment,
    services: Services,
    breaker: Breaker,
    not_staged: Callable[[str], None] | None = None,
) -> AsyncIterator[RayPool]:
    """Start coordinator and supervisors, and end them afterwards with all that still runs there; ``not_staged``: see ``Local.run``."""
    if assignment.services is not None and isinstance(services, Addresses):
        services.write(assignment.services)
    pool = RayPool(cluster, start_actors(assignment), breaker)
    try:
        yield pool
        if not_staged is not None and (problem := await pool.finish()) is not None:
            not_staged(problem)
    finally:
        await pool.close()
        if assignment.services is not None:
            assignment.services.unlink(missing_ok=True)


class RayPool:
    """Implements TrialPool. Made by ``ray_pool``."""

    def __init__(self, cluster: Cluster, actors: Actors, breaker: Breaker) -> None:
        self._cluster = cluster
        self._breaker = breaker
        self._actors = actors
        self._stopping = False
        self._met = ""
        """Name of the coordinator that knows what is to be done."""
        self._after = 0
        self._heard: dict[str, int] = {}
        """Number of the last event by its origin."""
        self._deaths: Counter[str] = Counter()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done with an error when the pool cannot go on."""
        self._keepers = [
            asyncio.create_task(self._keep(f"supervisor {index}", each))
            for index, each in enumerate(self._actors.supervisors)
        ]
        self._keepers.append(asyncio.create_task(self._feel("the coordinator", self._actors.coordinator)))
        for keeper in self._keepers:
            keeper.add_done_callback(self._keeper_ended)
        cluster.lost.add_done_callback(self._cluster_lost)

    async def run(self, manifest: RunManifest, trials: list[PlannedTrial]) -> AsyncIterator[TrialEnd]:
        """Yield each trial as it ends. Raises as ``TrialPool`` says, and InfrastructureError when the cluster is lost."""
        async for end in self._each("run", [planned.id for planned in trials]):
            yield end

    async def grade(self, manifest: RunManifest, trials: list[tuple[PlannedTrial, Outcome]]) -> AsyncIterator[TrialEnd]:
        """Ask for the verdicts of committed results that have none yet."""
        async for end in self._each("grade", [planned.id for planned, _ in trials]):
            yield end

    async def take_over(self, manifest: RunManifest, trials: list[PlannedTrial]) -> AsyncIterator[TrialEnd]:
        """Bring launches that were left to their end, whatever keeps others from starting."""
        async for end in self._each("left", [planned.id for planned in trials]):
            yield end

    async def stop(self) -> None:
        """Start no more trials; what runs is stopped, frozen and committed."""
        self._stopping = True

    async def finish(self) -> str | None:
        """Have each supervisor write ahead what waits for it, and return the first reason why one could not."""
        if self._broken.done() or self._cluster.lost.done():
            return None
        asked = [asyncio.ensure_future(awaited(each.finish.remote())) for each in self._actors.supervisors]
        done, late = await asyncio.wait(asked, timeout=FINISH_SECONDS + _FINISH_MARGIN_SECONDS)
        for call in late:
            call.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        problems = [call.result() for call in done if call.exception() is None]
        return next((problem for problem in problems if problem is not None), None)

    async def close(self) -> None:
        """End all actors, and all that runs in them."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if not self._broken.cancel() and not self._broken.cancelled():
            self._broken.exception()  # it was raised, or nobody waits for it any more
        if not self._cluster.lost.done():
            await self._end_supervisors()
            await asyncio.to_thread(self._actors.kill)

    async def _end_supervisors(self) -> None:
        """Let each one that lives remove what it made on its machine; a killed one leaves it to the next run there."""
        calls = (awaited(each.end.remote()) for each in self._actors.supervisors)
        ended = asyncio.gather(*calls, return_exceptions=True)
        either: set[asyncio.Future[Any]] = {ended, self._cluster.lost}
        await asyncio.wait(either, timeout=_END_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)

    async def _each(self, kind: Kind, trials: list[TrialId]) -> AsyncIterator[TrialEnd]:
        pending = set(trials)
        if not pending:
            return
        await self._begin(kind, pending, again=False)
        while True:
            batch: Batch | Failure = await self._ask(self._actors.coordinator.poll, self._after, self._stopping)
            if isinstance(batch, Failure):
                raise batch.error()
            if batch.coordinator != self._met:
                await self._begin(kind, pending, again=True)
                continue
            self._after = batch.last
            for event in self._unheard(batch.events):
                end = self._tell(event, pending)
                if end is not None:
                    yield end
            if batch.over:
                break
        if batch.failure is not None:
            raise batch.failure.error()

    async def _begin(self, kind: Kind, pending: Iterable[TrialId], *, again: bool) -> None:
        trials = list(pending)
        repeated = (kind, trials, True, self._stopping)  # one that died over it may have handed out some already
        answer = await self._ask(self._actors.coordinator.begin, kind, trials, again, self._stopping, repeated=repeated)
        if isinstance(answer, Failure):
            raise answer.error()
        if answer != self._met:
            self._met, self._after = answer, 0

    def _unheard(self, events: Iterable[Numbered]) -> Iterable[Event]:
        """Yield what was not heard before: after a restart of the coordinator supervisors tell again what it may not have passed on."""
        for each in events:
            if each.number > self._heard.get(each.origin, 0):
                self._heard[each.origin] = each.number
                yield each.event

    def _tell(self, event: Event, pending: set[TrialId]) -> TrialEnd | None:
        """Pass an event on to the observers; return the end of a trial."""
        match event:
            case PhaseEntered(trial, phase):
                self._breaker.phase(trial, phase)
            case Waits(trial, why):
                self._breaker.waits(trial, why)
            case LaunchFailed(trial, launch, cause, message):
                self._breaker.launch_failed(trial, launch, cause, message)
            case Ended(trial) if trial in pending:
                pending.discard(trial)
                self._deaths.clear()
                end = event.read()
                self._breaker.ended(end)
                return end
            case Aborted(trial):
                pending.discard(trial)
        return None

    async def _ask(self, method: Any, *arguments: object, repeated: tuple[object, ...] | None = None) -> Any:
        """Call the coordinator until it answers: one that died is made anew, and asked with ``repeated``, if there is such a thing.

        Raises what breaks the pool.
        """
        from ray.exceptions import RayActorError

        outage = _Outage("the coordinator")
        while True:
            call = asyncio.ensure_future(awaited(method.remote(*arguments)))
            try:
                await asyncio.wait({call, self._broken}, return_when=asyncio.FIRST_COMPLETED)
                if self._broken.done():
                    self._broken.result()
                return await call
            except RayActorError:
                self._away(outage)
                arguments = repeated or arguments
                await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                call.cancel()

    async def _keep(self, who: str, supervisor: Any) -> None:
        """Have a supervisor work, and its successor when it dies."""
        from ray.exceptions import RayActorError

        outage = _Outage(who)
        for generation in itertools.count(1):
            try:
                process = await first_answer(who, supervisor)
                outage = _Outage(who)
                failure = await self._worked(who, supervisor, process, generation)
            except RayActorError:
                self._away(outage)
            else:
                if failure is not None:
                    raise failure.error()
            if self._broken.done():
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _worked(self, who: str, supervisor: Any, process: Process, generation: int) -> Failure | None:
        """Have a supervisor work until it ends or dies; one that gives no answer any more is killed."""
        work = asyncio.ensure_future(awaited(supervisor.work.remote(self._actors.coordinator, generation)))
        pulse = asyncio.create_task(end_when_silent(who, supervisor, process))
        try:
            await asyncio.wait({work, pulse}, return_when=asyncio.FIRST_COMPLETED)
            if pulse.done():
                pulse.result()
            failure: Failure | None = await work
            return failure
        finally:
            for task in (work, pulse):
                task.cancel()
            await asyncio.gather(work, pulse, return_exceptions=True)

    async def _feel(self, who: str, actor: Any) -> None:
        """Kill an actor that gives no answer any more, and its successors too. That it died is found by those who ask it."""
        from ray.exceptions import RayActorError

        while not self._broken.done():
            with contextlib.suppress(RayActorError):
                await end_when_silent(who, actor, await first_answer(who, actor))
            await asyncio.sleep(_PAUSE_SECONDS)

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        """Let what a supervisor raised come out of the pool: it cannot work, or there is a mistake in this program."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            self._break(error)

    def _away(self, outage: _Outage) -> None:
        """Count a death once, and give up on an actor that dies again and again or does not come back."""
        if outage.since is None:
            outage.since = time.monotonic()
            self._deaths[outage.who] += 1
        if self._deaths[outage.who] > _DEATHS:
            msg = f"{outage.who} died {_DEATHS + 1} times and no trial came to its end meanwhile: see the machine's log for what kills it"
            self._break(InfrastructureError(msg, cause="supervisors_die"))
        elif time.monotonic() - outage.since > UP_SECONDS:
            msg = f"{outage.who} died and Ray has not brought it back for {UP_SECONDS:.0f} s: see whether the cluster is well"
            self._break(InfrastructureError(msg, cause="supervisors_die"))

    def _cluster_lost(self, lost: asyncio.Future[str]) -> None:
        if not lost.cancelled():
            msg = f"Ray {self._cluster.where} is gone: {lost.result()} died or was killed"
            self._break(InfrastructureError(msg, cause="ray_lost"))

    def _break(self, error: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)


@dataclass
class _Outage:
    """A time in which one actor does not answer."""

    who: str
    since: float | None = None
    """When it began, by this process's clock; None: it has not."""


@dataclass(frozen=True)
class Actors:
    """Handles of running actors."""

    coordinator: Any
    """Of a CoordinatorActor."""
    supervisors: tuple[Any, ...]
    """Of SupervisorActors."""
    kill: Callable[[], None]
    """Ends all of them at once."""


def start_actors(assignment: Assignment) -> Actors:
    """Start all actors; they are this driver's and end with it. The coordinator is on this machine, where gateway and purse are."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from orchestrator.driver.ray.actors import CoordinatorActor, SupervisorActor

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0}
    coordinator = ray.remote(**options)(CoordinatorActor).options(scheduling_strategy=here).remote(assignment)
    supervisor = ray.remote(**options)(SupervisorActor).options(scheduling_strategy="SPREAD")
    supervisors = tuple(supervisor.remote(assignment, index) for index in range(len(assignment.slots)))

    def kill() -> None:
        actors: tuple[Any, ...] = (*supervisors, coordinator)
        for actor in actors:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(actor, no_restart=True)

    return Actors(coordinator, supervisors, kill)
