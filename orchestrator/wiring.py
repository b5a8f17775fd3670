"""The only module of ``orchestrator`` that names concrete classes: settings and sockets in, parts out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import uuid
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import RefusedError, SpecError, StoreError
from orchestrator.interfaces import (
    Allowance,
    BundleSource,
    Gateway,
    Grader,
    ObjectStore,
    Observer,
    SandboxBackend,
    SweepableStore,
)
from orchestrator.records.base import BlobRef
from orchestrator.records.event import Event
from orchestrator.records.message import Endpoint
from orchestrator.settings import Kubernetes, Settings
from orchestrator.spec.agent import Agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from orchestrator.gateway.dialects.base import Dialect
    from orchestrator.sandbox.container.engine import Engine
    from orchestrator.sandbox.kubernetes.api import Api
    from orchestrator.trial.crew import Crew

_LOST_SECONDS = 7 * 86_400.0
"""How long the trajectories of launches that a gateway's process lost are kept, for whoever wants to look."""


def object_store(url: str) -> ObjectStore:
    """Return the store of a URL. Raises RefusedError for a kind that this version does not have."""
    from orchestrator.storage.open import open_store

    return open_store(url)


def driver_store(url: str) -> ObjectStore:
    """Return the store of a URL as a driver uses it, who reads the outcomes and verdicts of its run again and again."""
    from orchestrator.storage.file import FileStore
    from orchestrator.storage.remembered import RememberingStore

    store = object_store(url)
    return store if isinstance(store, FileStore) else RememberingStore(store)


def sweepable_store(url: str) -> SweepableStore:
    """Return the store of a URL, for ``gc``. Raises SpecError."""
    from orchestrator.storage.open import open_store

    return open_store(url)


def bundle_source(store: ObjectStore, cache: Path) -> BundleSource:
    """Return bundles of the store as folders below ``cache``."""
    from orchestrator.storage.bundles import BundleCache

    return BundleCache(store, cache / "bundles")


def event_reader(store: ObjectStore) -> Callable[[BlobRef], Awaitable[Iterable[Event]]]:
    """Return what reads the events of a closed trajectory, one after the other, once its bytes are those that were sealed.

    It raises NotFoundError when the trajectory is gone, StoreError when it is another one, and the events when one cannot be read.
    """
    from orchestrator.trace.read import each_event, is_whole

    async def read(blob: BlobRef) -> Iterable[Event]:
        data = await store.get(blob.key)
        if not await asyncio.to_thread(is_whole, data, blob):  # trials may be running in this loop
            msg = f"{blob.key} is not the trajectory that was sealed: its bytes have another digest"
            raise StoreError(msg, cause="blob_digest")
        return each_event(data, blob.key)

    return read


def sandbox_backend(name: str, scratch: Path, settings: Settings) -> SandboxBackend:
    """Return a backend by name; ``auto`` is bubblewrap.

    Raises RefusedError for one that this version does not have, and for containers where there is no engine.
    """
    if name in {"auto", "bubblewrap"}:
        from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend

        return BubblewrapBackend()
    if name == "container":
        from orchestrator.sandbox.container.backend import ContainerBackend

        return ContainerBackend(scratch, container_engine(settings))
    if name == "kubernetes":
        from orchestrator.sandbox.kubernetes.backend import KubernetesBackend

        return KubernetesBackend(settings.kubernetes)
    msg = f"backend {name!r} is not run by this version; use bubblewrap, container or kubernetes"
    raise RefusedError(msg)


def container_engine(settings: Settings) -> Engine:
    """Return the container engine of this machine. Raises RefusedError when there is none."""
    from orchestrator.sandbox.container.engine import find_engine

    return find_engine(settings.container_engine)


def agent_refusals(agent: Agent) -> list[str]:
    """Return what an agent asks for that this version does not run."""
    from orchestrator.agents.render import refusals

    return refusals(agent)


def agent_requires(agent: Agent) -> tuple[str, ...]:
    """Return the programs that an agent needs in a sandbox, beside what the task requires."""
    from orchestrator.agents.render import requires

    return requires(agent)


def gateway_client(socket_path: str, door: str, token: str) -> AbstractAsyncContextManager[Gateway]:
    """Return the driver's side of a gateway, to be opened."""
    from orchestrator.gateway.client import machine_gateway

    return machine_gateway(socket_path, door, token)


def cluster_gateway(kubernetes: Kubernetes, token: str) -> AbstractAsyncContextManager[Gateway]:
    """Return the driver's side of a cluster's gateways, to be opened. The settings name at least one, and the relay."""
    from orchestrator.gateway.client import cluster_gateways

    return cluster_gateways(kubernetes.gateways, kubernetes.agent_gateways, kubernetes.relay or "", token)


def grader_client(socket_path: str, token: str) -> AbstractAsyncContextManager[Grader]:
    """Return the driver's side of a grader service, to be opened."""
    from orchestrator.grading.client import GraderClient

    return GraderClient(socket_path, token)


@contextlib.asynccontextmanager
async def cluster_api(table: Kubernetes) -> AsyncIterator[Api]:
    """Open the API of the cluster that settings and kubeconfig name. Raises SpecError where there is none."""
    from orchestrator.sandbox.kubernetes.api import Api
    from orchestrator.sandbox.kubernetes.connect import connect

    async with Api(await connect(context=table.context)) as api:
        yield api


def writer_id() -> str:
    """Return a name for this process that no other process has or had."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def dialect(name: Endpoint) -> Dialect:
    """Return a shape of model API, in which foreign conversations are read."""
    from orchestrator.gateway.dialects.known import DIALECTS

    return DIALECTS[name]


def crew(  # noqa: PLR0913 - the one place where all parts come together
    *,
    settings: Settings,
    store: ObjectStore,
    backend: SandboxBackend,
    gateway: Gateway,
    grader: Grader,
    observer: Observer,
    labels: Mapping[str, str],
    ready: Callable[[], Awaitable[None]],
    hold: Callable[[], Awaitable[None]],
    epoch: int,
    writer: str,
    allowance: Allowance,
) -> Crew:
    """Return everyone that a trial needs."""
    from orchestrator.agents.render import render
    from orchestrator.trial.crew import Crew

    return Crew(
        store=store,
        bundles=bundle_source(store, settings.cache),
        sandboxes=backend,
        gateway=gateway,
        grader=grader,
        render=render,
        observer=observer,
        writer_id=writer,
        hold=hold,
        epoch=epoch,
        allowance=allowance,
        labels=labels,
        ready=ready,
    )


async def serve_gateway(line: bytes) -> None:
    """Serve gateway and relay as the configuration line says, until standard input ends.

    The line is ``{"store": URL, "cache": FOLDER, "gateway": {…}}``. Raises SpecError for a bad one.
    """
    from orchestrator.gateway.app import serve_gateway as serve
    from orchestrator.gateway.config import GatewayConfig
    from orchestrator.trace.write import TrajectoryFolder

    try:
        outer = json.loads(line)
        config = GatewayConfig.from_json_line(json.dumps(outer["gateway"]))
        store, cache = object_store(outer["store"]), Path(outer["cache"])
    except (ValueError, KeyError, TypeError):
        msg = "the gateway's configuration must be one JSON line with store, cache and gateway on standard input; `submit` starts it so"
        raise SpecError(msg) from None
    _keep_apart()
    config = config.model_copy(update={"world_program": _world_program()})
    await serve(config, store, TrajectoryFolder(config.folder), bundle_source(store, cache))


async def serve_cluster_gateway(path: Path) -> None:
    """Serve the gateway of a cluster as a file says, until SIGTERM. Raises SpecError with every problem of the file, and GatewayError."""
    from orchestrator.gateway.cluster import serve_cluster_gateway as serve
    from orchestrator.gateway.service_file import read_gateway_file
    from orchestrator.trace.write import MAX_SENT, TrajectoryFolder

    file, config = read_gateway_file(path)
    sent = MAX_SENT if file.folder_bytes is None else file.folder_bytes // 2
    store, trajectories = object_store(file.store), TrajectoryFolder(config.folder, sent)
    trajectories.remove_old(_LOST_SECONDS)
    _keep_apart()
    config = config.model_copy(update={"world_program": _world_program()})
    await serve(config, store, trajectories, bundle_source(store, file.cache))


@contextlib.asynccontextmanager
async def world_prover(folder: Path) -> AsyncIterator[Callable[[Path], Awaitable[list[dict[str, Any]]]]]:
    """Give what tries the world of a bundle's folder and returns what is wrong with it: ``file``, ``path`` or ``line``, ``message``.

    ``folder`` is for databases. What is given raises StoreError.
    """
    from orchestrator.gateway.worlds.engine import WorldEngine

    engine = WorldEngine(_world_program(), folder)
    try:
        yield engine.prove
    finally:
        await engine.close()


def _world_program() -> tuple[str, ...]:
    from orchestrator.sandbox.world.command import COMMAND

    return COMMAND


def _keep_apart() -> None:
    """Keep programs of the same user, such as those that run functions of tasks, from reading this process's memory."""
    if sys.platform == "linux":
        from orchestrator.sandbox.jail import protect

        protect()


async def serve_relay(path: Path) -> None:
    """Serve the relay of a cluster as a file says, until SIGTERM. Raises SpecError with every problem of the file, and GatewayError."""
    from orchestrator.gateway.relay_service import serve_relay as serve
    from orchestrator.gateway.service_file import read_relay_file

    file, config = read_relay_file(path)
    await serve(config, object_store(file.store))
