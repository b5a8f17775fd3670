"""The actors: what Ray starts, restarts and calls. Everything that they do is in ``coordinator.py`` and ``supervisor.py``.

Ray makes an actor anew after its process died, by the same arguments; calls that were under way are lost, never repeated. So whoever calls
asks again, and every method may be asked again. Errors of this project come back as values: an exception of ours need not survive Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from orchestrator import wiring
from orchestrator.dataset.staging import Stager, staging
from orchestrator.driver.collector import spare_the_old
from orchestrator.driver.kubernetes.services import cluster_services
from orchestrator.driver.process import this_process
from orchestrator.driver.purse import open_allowance
from orchestrator.driver.ray.coordinator import Coordinator, Kind
from orchestrator.driver.ray.desk import lease_view, node_named, open_desk, open_run
from orchestrator.driver.ray.messages import Assignment, Batch, Failure, Orders, Report
from orchestrator.driver.ray.supervisor import Supervisor
from orchestrator.driver.services import Reachable, SharedServices
from orchestrator.errors import InfrastructureError, OrchestrateError
from orchestrator.records.ids import TrialId
from orchestrator.records.lease import Process
from orchestrator.trial.lost import Undertaker

_PAUSE_SECONDS = 0.2
"""Before the coordinator is asked again."""
_Answer = TypeVar("_Answer")


class CoordinatorActor:
    """Runs a Coordinator on the driver's machine."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._lock = asyncio.Lock()
        self._made: Coordinator | None = None

    async def greet(self) -> Process:
        """Answer, which shows that this process is there, and which one it is."""
        return this_process()

    async def report(self, report: Report) -> Orders | Failure:
        """Take a supervisor's report."""
        return await _answered(self._with(lambda here: here.report(report)))

    async def reserve(self, index: int, name: str, trial: TrialId, launch: int) -> Failure | None:
        """Let a supervisor start a launch, or say why not."""
        return await _answered(self._with(lambda here: here.reserve(index, name, trial, launch)))

    async def begin(self, kind: Kind, trials: list[TrialId], again: bool, stop: bool) -> str | Failure:
        """Take trials on; returns the coordinator's name."""
        return await _answered(self._with(lambda here: here.begin(kind, trials, again=again, stop=stop)))

    async def poll(self, after: int, stop: bool) -> Batch | Failure:
        """Tell what happened."""
        return await _answered(self._with(lambda here: here.poll(after, stop=stop)))

    async def _with(self, ask: Callable[[Coordinator], Awaitable[_Answer]]) -> _Answer:
        async with self._lock:
            if self._made is None:
                self._made = await self._make()
        return await ask(self._made)

    async def _make(self) -> Coordinator:
        given = self._assignment
        with node_named(given.run):
            store, manifest = await open_run(given)
        gateway = (await _services(given)).open_gateway()
        name = wiring.writer_id()
        undertaker = Undertaker(
            run=given.run,
            store=store,
            gateway=await gateway.__aenter__(),  # closed with this process
            hold=lease_view(given, store).hold,
            writer_id=name,
            epoch=given.epoch,
        )
        allowance = await open_allowance(store, manifest, given.limit_usd, given.epoch)
        adopts = given.services is None
        return Coordinator(name, manifest, store, undertaker, allowance, len(given.slots), adopts=adopts)


async def _services(given: Assignment) -> Reachable:
    """Return the driver's services. Raises InfrastructureError where they are out of reach."""
    if given.services is None:
        return await cluster_services(given.settings)
    at = SharedServices.read(given.services)
    if at is None:
        msg = "the coordinator was started on another machine than the driver's"
        raise InfrastructureError(msg, cause="coordinator_elsewhere")
    return at


class SupervisorActor:
    """Runs a Supervisor."""

    def __init__(self, assignment: Assignment, index: int) -> None:
        self._assignment = assignment
        self._index = index
        self._working: asyncio.Task[Failure | None] | None = None
        self._stager: Stager | None = None

    async def greet(self) -> Process:
        """Answer, which shows that this process is there, and which one it is."""
        return this_process()

    async def finish(self) -> str | None:
        """Write ahead what rows still wait for it, and return why some could not be: this process is about to be ended."""
        if self._stager is None:
            return None
        await self._stager.finish()
        return self._stager.problem

    async def work(self, coordinator: Any, generation: int) -> Failure | None:
        """Work until this process is replaced; says why it cannot. Asked again, it is the same work. ``generation``: see ``Report``.

        The handle comes with the call: Ray does not keep one among the arguments by which an actor is made anew.
        """
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(_answered(self._work(ActorLine(coordinator), generation)))
        return await asyncio.shield(self._working)

    async def end(self) -> None:
        """End the work and all that runs for it: sandboxes, and the services of another machine with their folders."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    async def _work(self, line: ActorLine, generation: int) -> None:
        supervisor = Supervisor(self._index, generation, line, self._assignment.slots[self._index])
        async with open_desk(self._assignment, supervisor.name) as desk:
            spare_the_old()
            crew = wiring.crew(
                settings=desk.settings,
                store=desk.store,
                backend=desk.backend,
                gateway=desk.gateway,
                grader=desk.grader,
                observer=supervisor,
                labels=desk.labels,
                ready=desk.ready,
                hold=desk.hold,
                epoch=self._assignment.epoch,
                writer=supervisor.name,
                allowance=supervisor,
            )
            if not self._assignment.stages:
                await supervisor.work(desk.manifest, crew)
                return
            events = wiring.event_reader(desk.store)
            async with staging(desk.store, desk.manifest, supervisor.name, events) as self._stager:
                await supervisor.work(desk.manifest, crew, self._stager.ended)


class _Remote(Protocol):
    """An actor's method as its handle has it."""

    def remote(self, *arguments: object) -> Awaitable[Any]:
        """Call it."""
        ...


class ActorLine:
    """The way to the coordinator by calls of Ray. Implements ``supervisor.Line``."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

    async def report(self, report: Report) -> Orders:
        """Tell and be told."""
        while True:
            answer = await self._ask(self._coordinator.report, report)
            if isinstance(answer, Orders):
                return answer
            await asyncio.sleep(_PAUSE_SECONDS)  # the driver hears the same failure and decides

    async def reserve(self, index: int, name: str, trial: TrialId, launch: int) -> Failure | None:
        """Ask to start a launch."""
        answer: Failure | None = await self._ask(self._coordinator.reserve, index, name, trial, launch)
        return answer

    async def _ask(self, method: _Remote, *arguments: object) -> Any:
        from ray.exceptions import RayActorError

        while True:
            try:
                return await method.remote(*arguments)
            except RayActorError:
                await asyncio.sleep(_PAUSE_SECONDS)


async def _answered(work: Awaitable[_Answer]) -> _Answer | Failure:
    """Return what the work returns, or the error of this project that it raised."""
    try:
        return await work
    except OrchestrateError as error:
        return Failure.of(error)
