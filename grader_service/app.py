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
from grader_service.grade import Grading
from grader_service.local.limited import SandboxedChildren
from grader_service.local.pairs import LocalPairs
from grader_service.programs import lay_programs, service_version, warm_packages
from grader_service.service import Service
from grader_service.settings import GraderSettings, ServiceFile, StartLine
from orchestrator.interfaces import SandboxBackend
from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend
from orchestrator.sandbox.container.backend import ContainerBackend
from orchestrator.sandbox.container.engine import find_engine
from orchestrator.storage.bundles import BundleCache
from orchestrator.storage.open import open_store


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
    own = BubblewrapBackend()
    tools = _local_tools(file.folder, own, _containers(file), settings)
    if file.checker is None:
        await own.preflight()
    else:
        checker = CheckerChildren(file.checker)
        await checker.preflight(service_version(), settings.check_memory_bytes)
        tools = replace(tools, limited=checker)
    grading = _grading(file.store, file.folder, tools, shared=file.checker is not None)
    service = Service(grading, token, file.concurrency, probed=True)
    host, _, port = file.listen.rpartition(":")
    async with _listening(service) as runner:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        yield grading.version


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
