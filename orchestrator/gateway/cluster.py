"""The gateway on a cluster: one port for pods, one for drivers, relays and the reaper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from orchestrator.errors import StoreError
from orchestrator.gateway.admin import AdminSide
from orchestrator.gateway.canaries import CanaryWatch
from orchestrator.gateway.config import ClusterConfig
from orchestrator.gateway.front import Front, FrontLimits, listen, most_connections
from orchestrator.gateway.pods import PodSide
from orchestrator.gateway.recovery import recover
from orchestrator.gateway.registry import Registry
from orchestrator.gateway.sealing import seal
from orchestrator.gateway.segments import SegmentSender
from orchestrator.gateway.serving import in_background, provider_session, serving, until_terminated
from orchestrator.gateway.volume import Volume
from orchestrator.interfaces import BundleSource, ObjectStore, TrajectoryFactory

log = logging.getLogger(__name__)

_SPARE = 64
"""Connections of one pod beside those with requests of its agent: for our own programs in it, and for such as rest."""


SWEEP_SECONDS = 60.0
"""How often launches are looked for that nobody will seal."""


@dataclass(frozen=True)
class Running:
    """A gateway that serves."""

    registry: Registry
    agent_port: int
    admin_port: int


async def serve_cluster_gateway(
    config: ClusterConfig, store: ObjectStore, trajectories: TrajectoryFactory, bundles: BundleSource
) -> None:
    """Serve until SIGTERM; what is under way then may end, for ``drain_seconds``. Nothing is sealed: the next process on the same volume
    goes on with the launches of this one. Raises GatewayError, and StoreError when volume or store cannot be read.
    """
    over = asyncio.Event()
    until_terminated(over)
    async with running_cluster_gateway(config, store, trajectories, bundles) as running:
        log.info(
            "gateway %s serves pods at %s and drivers at %s", running.registry.instance, config.agent, config.admin
        )
        await over.wait()
        log.info("gateway %s begins nothing new", running.registry.instance)
        await running.registry.drain(config.drain_seconds)
        log.info("gateway %s ends", running.registry.instance)


@asynccontextmanager
async def running_cluster_gateway(
    config: ClusterConfig, store: ObjectStore, trajectories: TrajectoryFactory, bundles: BundleSource
) -> AsyncIterator[Running]:
    """Serve while the context is open. Raises GatewayError when a port cannot be had."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(provider_session())
        volume = Volume(config.folder)
        registry = Registry(config, store, trajectories, bundles, session, volume)
        admin = listen(config.admin)
        stack.callback(admin.close)
        agents = listen(config.agent)
        stack.callback(agents.close)
        await recover(registry, volume, trajectories)  # who comes meanwhile waits in the kernel's queues
        await stack.enter_async_context(in_background(volume.stay_alive()))
        tokens = config.tokens
        app = AdminSide(registry, store, {"driver": tokens.driver, "relay": tokens.relay, "reaper": tokens.reaper})
        canaries = CanaryWatch(config.canaries)
        await stack.enter_async_context(in_background(canaries.watch()))
        await stack.enter_async_context(in_background(_seal_abandoned(registry, store)))
        await stack.enter_async_context(in_background(SegmentSender(store, registry.unsealed).run()))
        await stack.enter_async_context(serving(app.application(), admin))
        pods = PodSide(registry, store, canaries)
        front = Front(agents, pods.answer, _limits(config), registry.is_own)
        stack.push_async_callback(front.close)
        stack.push_async_callback(registry.leave)
        yield Running(registry, front.port, int(admin.getsockname()[1]))


def _limits(config: ClusterConfig) -> FrontLimits:
    limits = config.limits
    return FrontLimits(
        peer=limits.connections + limits.waiting + _SPARE,
        total=most_connections(),
        idle_seconds=limits.idle_seconds,
        by_address=config.pod_addresses,
    )


async def _seal_abandoned(registry: Registry, store: ObjectStore) -> None:
    """Seal launches that nobody else will: each holds a file and keeps its run from looking ended."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        for launch in registry.expired():
            try:
                await seal(launch, store)
            except StoreError as error:
                log.error("launch %s, which was abandoned, could not be sealed: %s", launch.id, error)
