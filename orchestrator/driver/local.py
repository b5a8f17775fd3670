"""A run on this machine from its manifest to its last verdict."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator import wiring
from orchestrator.dataset.staging import staging
from orchestrator.driver.breaker import Breaker
from orchestrator.driver.execute import Execution, execute
from orchestrator.driver.inline import InlinePool
from orchestrator.driver.kubernetes.services import cluster_services, refuse_outside
from orchestrator.driver.lease import Holder, Lease, drive_run
from orchestrator.driver.place import KUBERNETES, Place
from orchestrator.driver.probe import models_to_probe, probe_models
from orchestrator.driver.purse import open_allowance
from orchestrator.driver.services import Services, local_services
from orchestrator.driver.tally import Tally
from orchestrator.errors import InfrastructureError, SandboxError, StoreError
from orchestrator.interfaces import Gateway, ObjectStore, Observer, SandboxBackend, Spending, TrialPool
from orchestrator.records import keys
from orchestrator.records.ids import launch_id
from orchestrator.records.lease import Wish
from orchestrator.records.manifest import ManifestAgent, RunManifest
from orchestrator.settings import MOST_AT_ONE_TIME, Settings

if TYPE_CHECKING:
    from orchestrator.driver.ray.cluster import Cluster

_PODS = 20
"""Trials at one time on a cluster, unless the settings say how many."""
_LOOK_SECONDS = 2.0
"""Between looks at what running launches have used."""


class Stopper(Protocol):
    """Whoever may stop a run in order: a person at this keyboard, or one elsewhere who left a request in the store."""

    @property
    def asked_by(self) -> str | None:
        """Who asked for it; None as long as nobody did."""
        ...

    @property
    def lets_go(self) -> bool:
        """Whether this process was told to end while what runs goes on without it."""
        ...

    def use(self, pool: TrialPool) -> None:
        """From now on this pool is what is stopped."""
        ...

    async def requested(self, wish: Wish) -> None:
        """Stop it, as ``stop`` asks from another process."""
        ...


@dataclass(frozen=True)
class Local:
    """Everything that is open while runs are driven here."""

    settings: Settings
    store: ObjectStore
    backend: SandboxBackend
    scratch: Path
    services: Services
    concurrency: int
    cluster: Cluster | None
    """Where the trials run; None: in this process."""

    async def run(
        self,
        manifest: RunManifest,
        observer: Observer,
        stopper: Stopper,
        waiting: Callable[[Holder], None] = lambda holder: None,
        silent: Callable[[float], None] = lambda seconds: None,
        not_staged: Callable[[str], None] | None = None,
        *,
        attended: bool = True,
    ) -> Execution:
        """Take a run and drive it to its end, or until the stopper is asked to stop it; ``waiting`` hears of a silent driver that is given
        a term to show that it lives, ``silent`` of a store that does not answer. The manifest's limits are those in force, which may be
        others than in the store. With ``not_staged`` rows of ended trials are written ahead for the dataset; it hears of a failure.
        ``attended``: see ``drive_run``.

        Raises RefusedError when another driver has the run, and LeaseLostError when one takes it away.
        """
        tally = Tally(observer)
        breaker = Breaker(tally)
        writer = wiring.writer_id()
        async with (
            drive_run(
                self.store, manifest.run, writer, status=tally.status, waiting=waiting, attended=attended
            ) as lease,
            self.backend.claiming(manifest.run, lease.epoch),
            self._pool(manifest, lease, breaker, writer, not_staged) as pool,
        ):
            lease.on_silence = silent
            stopper.use(pool)
            lease.on_stop = stopper.requested
            await lease.heed()

            async def left_behind() -> AbstractSet[str]:
                if breaker.error is not None and stopper.asked_by is None:
                    return (
                        frozenset()
                    )  # what made ten launches fail would make these fail as well; resume takes them over
                return await self._tidied(manifest.run)

            with contextlib.suppress(SandboxError, StoreError):  # what cannot be removed now is removed later
                await self._tidied(manifest.run)
            try:
                execution = await execute(manifest, self.store, pool, breaker, left_behind)
            except asyncio.CancelledError:
                if stopper.lets_go:
                    lease.ending = ("yielded", "")
                raise
            lease.ending = execution.why_released(stopper.asked_by)
            if not execution.left:
                with contextlib.suppress(SandboxError, StoreError):  # the reaper's
                    await self._tidied(manifest.run)
            return execution

    async def _tidied(self, run: str) -> AbstractSet[str]:
        """Remove what a killed process left between a commit and the end of its sandbox, and return the launches that are not committed
        and have sandboxes still. Raises SandboxError and StoreError.
        """
        if not self.backend.fetches:
            return frozenset()
        committed = [keys.parse_outcome(key) for key in await self.store.list(keys.outcomes(run))]
        return await self.backend.tidy(run, {launch_id(*each) for each in committed})

    @contextlib.asynccontextmanager
    async def _pool(
        self,
        manifest: RunManifest,
        lease: Lease,
        breaker: Breaker,
        writer: str,
        not_staged: Callable[[str], None] | None,
    ) -> AsyncIterator[TrialPool]:
        """Open what runs the trials: this process, or processes of a Ray cluster."""
        at = self.services
        if self.cluster is not None:
            from orchestrator.driver.ray.pool import assign, ray_pool, share

            slots = share(self.concurrency, self.settings.supervisors, self.cluster.processors, self.backend.name)
            assignment = await assign(self.store, lease, manifest, self.settings, self.scratch, slots)
            assignment = replace(assignment, stages=not_staged is not None)
            async with ray_pool(self.cluster, assignment, at, breaker, not_staged) as remote:
                yield remote
            return
        async with (
            at.open_gateway() as gateway,
            at.open_grader() as grader,
            self.backend.driving(manifest.run, lease.epoch, gateway) as backend,
        ):
            crew = wiring.crew(
                settings=self.settings,
                store=self.store,
                backend=backend,
                gateway=gateway,
                grader=grader,
                observer=breaker,
                labels=manifest.labels,
                ready=at.ready,
                hold=lease.hold,
                epoch=lease.epoch,
                writer=writer,
                allowance=await open_allowance(self.store, manifest, manifest.limits.cost_usd, lease.epoch),
            )
            if not_staged is None:
                yield InlinePool(crew, breaker, self.concurrency)
                return
            async with staging(self.store, manifest, writer, wiring.event_reader(self.store)) as stager:
                yield InlinePool(crew, breaker, self.concurrency, stager.ended)
            if stager.problem is not None:
                not_staged(stager.problem)

    async def probe(self, agents: Iterable[ManifestAgent], asking: Callable[[str], None] = lambda models: None) -> None:
        """Ask each model of these agents once; ``asking`` hears which ones, if there are any.

        Raises RefusedError and InfrastructureError as ``probe_models`` does.
        """
        models = models_to_probe(agents)
        if not models:
            return
        asking(", ".join(models))
        async with self.services.open_gateway() as gateway:
            await probe_models(gateway, models, self.settings)

    @contextlib.asynccontextmanager
    async def watching(self, run: str, seen: Callable[[Spending], None]) -> AsyncIterator[None]:
        """Tell every few seconds what the launches of a run have used so far at this machine's gateway, while the context is open."""
        async with self.services.open_gateway() as gateway:
            looking = asyncio.create_task(_look(gateway, run, seen))
            try:
                yield
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)


async def _look(gateway: Gateway, run: str, seen: Callable[[Spending], None]) -> None:
    while True:
        with contextlib.suppress(InfrastructureError):  # it is started again, or the run ends; nothing depends on this
            seen(await gateway.spending(run))
        await asyncio.sleep(_LOOK_SECONDS)


def at_one_time(settings: Settings, processors: int | None = None, backend: str = "") -> int:
    """Return how many trials run at one time; ``processors`` are those of a Ray cluster, this machine's when absent."""
    if settings.concurrency is not None:
        return settings.concurrency
    return _PODS if backend == KUBERNETES else min(processors or os.cpu_count() or 1, MOST_AT_ONE_TIME)


@contextlib.asynccontextmanager
async def open_local(
    settings: Settings, place: Place, say: Callable[[str], None] = lambda line: None
) -> AsyncIterator[Local]:
    """Start the services, or reach those of a cluster, and the Ray cluster where the pool is one; give everything that runs need.

    ``say`` hears what takes long. Raises InfrastructureError when something does not start or answer, and RefusedError for a run of a
    cluster that is not to be driven from here.
    """
    async with contextlib.AsyncExitStack() as stack:
        cluster = None
        backend = place.backend.name
        if backend == KUBERNETES:
            refuse_outside(settings.kubernetes)
        if settings.pool == "ray":
            from orchestrator.driver.ray.cluster import open_cluster

            cluster = await stack.enter_async_context(open_cluster(settings, say))
        concurrency = at_one_time(settings, None if cluster is None else cluster.processors, backend)
        services: Services
        if backend == KUBERNETES:
            services = await cluster_services(settings)
        else:
            services = await stack.enter_async_context(
                local_services(settings, place.scratch, backend, concurrency=concurrency)
            )
        yield Local(settings, place.store, place.backend, place.scratch, services, concurrency, cluster)
