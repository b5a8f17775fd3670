"""A run on this machine from its manifest to its last verdict."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from orchestrator import wiring
from orchestrator.driver.breaker import Breaker
from orchestrator.driver.execute import Execution, execute
from orchestrator.driver.inline import InlinePool
from orchestrator.driver.services import Services, local_services
from orchestrator.interfaces import ObjectStore, Observer, SandboxBackend
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings


@dataclass(frozen=True)
class Local:
    """Everything that is open while runs are driven here."""

    settings: Settings
    store: ObjectStore
    backend: SandboxBackend
    services: Services
    concurrency: int

    async def run(self, manifest: RunManifest, observer: Observer, on_pool: Callable[[InlinePool], None] | None = None) -> Execution:
        """Drive a run to its end; ``on_pool`` gets the pool first, so that an interrupt can stop it."""
        breaker = Breaker(observer)
        crew = wiring.crew(
            settings=self.settings,
            store=self.store,
            backend=self.backend,
            gateway=wiring.gateway_client(self.services.gateway_socket, self.services.door_socket, self.services.gateway_token),
            grader=wiring.grader_client(self.services.grader_socket, self.services.grader_token),
            observer=breaker,
            labels=manifest.labels,
            ready=self.services.ready,
        )
        pool = InlinePool(crew, breaker, self.concurrency)
        if on_pool is not None:
            on_pool(pool)
        try:
            return await execute(manifest, self.store, pool, breaker)
        finally:
            await wiring.close(crew)


@contextlib.asynccontextmanager
async def open_local(settings: Settings, backend: SandboxBackend, store: ObjectStore, concurrency: int) -> AsyncIterator[Local]:
    """Start the services and give everything that runs need. Raises InfrastructureError when a service does not start."""
    async with local_services(settings, concurrency=concurrency) as services:
        yield Local(settings, store, backend, services, concurrency)
