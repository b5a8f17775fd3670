"""Everything that a supervisor needs on its machine: store, sandboxes, gateway and grader, proven to be those of its run."""

from __future__ import annotations

import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator import __version__, wiring
from orchestrator.driver.kubernetes.services import cluster_services
from orchestrator.driver.lease import LeaseView, Timing
from orchestrator.driver.prepare import check_resume
from orchestrator.driver.ray.messages import Assignment
from orchestrator.driver.scratch import scratch_folder
from orchestrator.driver.services import Reachable, SharedServices, local_services
from orchestrator.errors import InfrastructureError, NotFoundError, RefusedError, SpecError
from orchestrator.interfaces import Gateway, Grader, ObjectStore, SandboxBackend
from orchestrator.records import keys
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings, load_settings


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Parts for a crew."""

    manifest: RunManifest
    settings: Settings
    store: ObjectStore
    backend: SandboxBackend
    gateway: Gateway
    grader: Grader
    ready: Callable[[], Awaitable[None]]
    hold: Callable[[], Awaitable[None]]
    labels: Mapping[str, str]


async def open_run(assignment: Assignment) -> tuple[ObjectStore, RunManifest]:
    """Return the store and the manifest of the run. Raises RefusedError when the driver has other ones."""
    if assignment.version != __version__:
        msg = (
            f"it has orchestrate {__version__}, the driver {assignment.version}; install the same version on all nodes"
        )
        raise RefusedError(msg)
    store, key = wiring.driver_store(assignment.settings.store), keys.manifest(assignment.run)
    try:
        data = await store.get(key)
    except NotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() != assignment.manifest_sha256:
        msg = (
            f"the store {assignment.settings.store} is another one there: it {'has another manifest' if data else 'has no manifest'} "
            f"of run {assignment.run}; use a store that all nodes reach, such as s3://BUCKET/PREFIX"
        )
        raise RefusedError(msg)
    return store, RunManifest.from_bytes(data, key)


def lease_view(assignment: Assignment, store: ObjectStore) -> LeaseView:
    """Return the proof that the driver still holds the run."""
    return LeaseView(store, assignment.run, assignment.epoch, Timing(term_s=assignment.term_s))


@contextlib.asynccontextmanager
async def open_desk(assignment: Assignment, name: str) -> AsyncIterator[Desk]:
    """Open everything, with services of its own where the driver's are out of reach.

    Raises RefusedError when something is not as the run needs it, and InfrastructureError; both name this node.
    """
    async with contextlib.AsyncExitStack() as stack:
        with node_named(assignment.run):
            desk = await _opened(assignment, name, stack)
        yield desk


@contextlib.contextmanager
def node_named(run: str) -> Iterator[None]:
    """Have errors say on which node they arose: nodes differ in what they find."""
    node = socket.gethostname()
    try:
        yield
    except SpecError as error:
        msg = f"node {node} cannot run trials of {run}: {error}"
        raise RefusedError(msg) from error
    except InfrastructureError as error:
        msg = f"node {node} cannot start trials of {run}: {error}"
        raise InfrastructureError(msg, cause=error.cause) from error


async def _opened(assignment: Assignment, name: str, stack: contextlib.AsyncExitStack) -> Desk:
    store, manifest = await open_run(assignment)
    settings, scratch, at = await _reach(assignment, manifest, stack)
    backend = wiring.sandbox_backend(manifest.backend, scratch / f"sandboxes-{name}", settings)
    labels = await backend.preflight()
    gateway = await stack.enter_async_context(at.open_gateway())
    return Desk(
        manifest=manifest,
        settings=settings,
        store=store,
        backend=await stack.enter_async_context(backend.driving(manifest.run, assignment.epoch, gateway)),
        gateway=gateway,
        grader=await stack.enter_async_context(at.open_grader()),
        ready=at.ready,
        hold=lease_view(assignment, store).hold,
        labels=labels,
    )


async def _reach(
    assignment: Assignment, manifest: RunManifest, stack: contextlib.AsyncExitStack
) -> tuple[Settings, Path, Reachable]:
    """Return the settings to work with, a folder for sandboxes, and the services: those of a cluster, the driver's, or some of our own."""
    if assignment.services is None:
        return assignment.settings, assignment.scratch, await cluster_services(assignment.settings)
    shared = SharedServices.read(assignment.services)
    if shared is not None:
        return assignment.settings, assignment.scratch, shared
    settings = _settings_here(assignment)
    check_resume(manifest, settings)
    scratch = stack.enter_context(scratch_folder(settings))
    own = local_services(settings, scratch, manifest.backend, concurrency=max(assignment.slots))
    return settings, scratch, await stack.enter_async_context(own)


def _settings_here(assignment: Assignment) -> Settings:
    """Return the settings for services on this machine: folders and keys are its own, all else is the driver's."""
    here = load_settings(Path.cwd())
    own = {name: getattr(here, name) for name in ("cache", "logs", "scratch", "providers", "key_problems")}
    return assignment.settings.model_copy(update=own)
