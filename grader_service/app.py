"""The grader's own wiring: the only module here that names concrete classes.

Started by a driver it listens on one unix socket and works in sandboxes of this machine. Started with a file it listens on the network;
what agents left is then parsed by a ``checker`` beside it, and hidden tests run in pods, where the file says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from grader_service.checks.case import Tools
from grader_service.cluster.checker import CheckerChildren
from grader_service.cluster.door import Door
from grader_service.cluster.pods import PodPairs
from grader_service.cluster.render import OWNER
from grader_service.grade import Grading
from grader_service.local.limited import SandboxedChildren
from grader_service.local.pairs import LocalPairs
from grader_service.programs import lay_programs, service_version, warm_packages
from grader_service.room import Room
from grader_service.service import Service
from grader_service.settings import GraderSettings, GradingPods, ServiceFile, StartLine
from orchestrator.interfaces import SandboxBackend
from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend
from orchestrator.sandbox.container.backend import ContainerBackend
from orchestrator.sandbox.container.engine import find_engine
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.connect import connect
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.reflector import Reflector
from orchestrator.storage.bundles import BundleCache
from orchestrator.storage.open import open_store

_GRADING = f"{names.SELECTOR},{names.COMPONENT}=grading"


@contextlib.asynccontextmanager
async def serving(start: StartLine, settings: GraderSettings) -> AsyncIterator[str]:
    """Listen on a unix socket while the context is open; yields the version. Raises RefusedError, SandboxError, OSError."""
    own = BubblewrapBackend()
    tools = _local_tools(start.folder, own, _containers(start), settings)
    await own.preflight()
    grading = _grading(start.store, start.folder, tools)
    service = Service(grading, start.token.get_secret_value(), start.concurrency)
    async with _listening(service) as runner:
        await web.UnixSite(runner, start.socket).start()
        yield grading.version


@contextlib.asynccontextmanager
async def serving_network(file: ServiceFile, token: str, settings: GraderSettings) -> AsyncIterator[str]:
    """Listen on the network while the context is open; yields the version. Raises RefusedError, SandboxError, OSError."""
    async with contextlib.AsyncExitStack() as stack:
        tools = await _network_tools(file, settings, stack)
        room = Room.on(
            file.folder_bytes, "give the grader a larger folder (folder_bytes; dataSize of the chart's grader)"
        )
        grading = _grading(file.store, file.folder, tools, shared=file.checker is not None)
        grading = replace(grading, room=room, relayed=file.kubernetes is not None)
        service = Service(grading, token, file.concurrency, probed=True)
        runner = await stack.enter_async_context(_listening(service))
        await web.TCPSite(runner, *_place(file.listen)).start()
        yield grading.version


async def _network_tools(file: ServiceFile, settings: GraderSettings, stack: contextlib.AsyncExitStack) -> Tools:
    own = BubblewrapBackend()
    tools = _local_tools(file.folder, own, _containers(file), settings)
    if file.checker is not None:
        larger = "give its checker a larger scratch folder (scratch_bytes; scratchSize of the chart's grader)"
        checker = CheckerChildren(file.checker, Room.on(file.scratch_bytes, larger))
        await checker.preflight(service_version(), settings.check_memory_bytes)
        tools = replace(tools, limited=checker)
    if file.kubernetes is not None:
        pairs = await stack.enter_async_context(_grading_pods(file.kubernetes, file.grading_listen))
        tools = replace(tools, pairs=pairs)
    if file.checker is None or file.kubernetes is None:
        await own.preflight()
    return tools


@contextlib.asynccontextmanager
async def _grading_pods(settings: GradingPods, listen: str) -> AsyncIterator[PodPairs]:
    """Serve grading pods and watch them while the context is open. Raises SpecError, ApiError, OSError."""
    door = Door()
    server = await door.listen(*_place(listen))
    try:
        connection = await connect(context=settings.context)
        async with (
            Api(connection) as api,
            Reflector(api, settings.namespace, labels=_GRADING, marks=(OWNER,)) as pods,
            PodPairs(settings, door, Creator(api, Limiter(settings.creates_per_second)), pods) as pairs,
        ):
            yield pairs
    finally:
        server.close()


def _place(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def _local_tools(
    folder: Path, own: SandboxBackend, containers: SandboxBackend | None, settings: GraderSettings
) -> Tools:
    programs = lay_programs(folder / "programs")
    warm_packages()
    return Tools(
        limited=SandboxedChildren(own, programs),
        pairs=LocalPairs(own, containers),
        programs=programs,
        settings=settings,
    )


def _containers(start: StartLine | ServiceFile) -> SandboxBackend | None:
    if start.backend != "container":
        return None
    return ContainerBackend(start.folder / "containers", find_engine(start.container_engine))


def _grading(url: str, folder: Path, tools: Tools, *, shared: bool = False) -> Grading:
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    store = open_store(url)
    return Grading(
        store=store,
        bundles=BundleCache(store, folder / "bundles"),
        tools=tools,
        folder=scratch,
        version=service_version(),
        shared=shared,
    )


@contextlib.asynccontextmanager
async def _listening(service: Service) -> AsyncIterator[web.AppRunner]:
    runner = web.AppRunner(service.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        yield runner
    finally:
        await service.close()
        await runner.cleanup()
