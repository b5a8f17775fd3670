"""The Kubernetes backend: one hardened pod for each launch, in namespaces that a chart has made with their policies.

Nothing here has a right beyond pods, leases and events of those namespaces. What keeps agents from everything but the gateway are network
policies; each pod proves that they hold before its agent starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from orchestrator.errors import RefusedError, SandboxError
from orchestrator.interfaces import Gateway, Sandbox, SandboxBackend, SandboxSpec
from orchestrator.sandbox.inside import is_below
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.admission import refused
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.connect import Connection, connect
from orchestrator.sandbox.kubernetes.creator import Creator, Patience
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.launches import MARKS, Means, RunPods, Shard
from orchestrator.sandbox.kubernetes.lease import Beat, RunLease, held
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.pod import Pace
from orchestrator.sandbox.kubernetes.reflector import Reflector
from orchestrator.sandbox.kubernetes.render import TAKEN, Owner, runtime_class
from orchestrator.sandbox.kubernetes.resources import LEASES, PODS
from orchestrator.settings import Kubernetes
from orchestrator.spec.base import parse_bytes
from orchestrator.spec.task import Environment, RepositoryWorkspace, is_pinned

_NEEDED = tuple((verb, PODS) for verb in ("create", "get", "list", "watch", "delete"))
_LIMITS = "cpu and memory by cgroup, disk and processes sampled"


class KubernetesBackend:
    """Makes sandboxes as pods. Implements SandboxBackend; sandboxes are opened from what ``driving`` gives."""

    name = "kubernetes"
    fetches = True

    def __init__(
        self,
        settings: Kubernetes,
        connecting: Callable[[], Awaitable[Connection]] | None = None,
        *,
        pace: Pace | None = None,
        beat: Beat | None = None,
    ) -> None:
        """Take the settings; ``connecting`` finds the cluster, as the settings say when absent."""
        self._settings = settings
        self.mounts_images = settings.image_volumes
        self._connecting = connecting or (lambda: connect(context=settings.context))
        self._pace = pace or Pace()
        self._beat = beat

    def refusals(self, environment: Environment) -> list[str]:
        """Return one sentence for each thing that the environment asks and pods of these settings cannot give."""
        found = self._image_refusals(environment)
        if isinstance(environment.workspace, RepositoryWorkspace):
            found.append("workspace.repository: not built yet; put the files into a folder of the task")
        found += self._isolation_refusals(environment)
        if environment.network != "model_only" and not self._settings.task_egress:
            found.append(
                "network: the cluster's gateways reach nothing outside; use model_only, or set the chart's gateway.taskEgress.enabled"
            )
        path = os.path.normpath(environment.workdir)
        if path == "/" or any(is_below(path, taken) or is_below(taken, path) for taken in TAKEN):
            found.append(
                f"workdir {environment.workdir}: pods keep that place for themselves; use /workspace or another folder of its own"
            )
        return found + self._room_refusals(environment.resources.disk)

    def _room_refusals(self, disk: int) -> list[str]:
        """What an agent leaves may be twice its disk, with names beside; where it is laid, what it left as it was is beside it."""
        rooms = (
            ("grader_data", "dataSize", self._settings.grader_data, 3),
            ("grader_scratch", "scratchSize", self._settings.grader_scratch, 4),
        )
        found = []
        for name, value, size, times in rooms:
            if size is not None and (room := parse_bytes(size)) < times * disk:
                found.append(
                    f"resources.disk {disk >> 20:,} MiB: what an agent leaves may not fit the grader (kubernetes.{name} is {size}): take "
                    f"at most {room // times >> 20:,} MiB, or install the chart with grader.{value} of {-(-times * disk // (1 << 20))}Mi"
                )
        return found

    async def preflight(self) -> Mapping[str, str]:
        """Ask the cluster whether pods may be made in each namespace, and return the labels of all. Raises RefusedError, ApiError.

        Where a Job drives the runs, its own account makes them, so ours need not.
        """
        settings = self._settings
        missing = [f"kubernetes.{name}" for name in ("namespaces", "pod_image") if not getattr(settings, name)]
        if missing:
            msg = f"the kubernetes backend needs {' and '.join(missing)}; the installed chart says them in ConfigMap orchestrate-driver"
            raise RefusedError(msg)
        connection = await self._connecting()
        try:
            async with Api(connection) as api:
                version = await api.version()
                denied = await self._denied(api) if settings.driver == "here" else []
        except ApiError as error:
            if not error.status:  # nobody has answered, which may be another thing in a minute
                error.add_note(f"the cluster is that of {connection.where}")
                raise
            msg = f"the cluster of {connection.where} cannot be used: {error}"
            raise RefusedError(msg) from error
        if denied:
            msg = f"{connection.where} may not {', '.join(denied)}; install the chart, or drive runs as its driver account"
            raise RefusedError(msg)
        return {"limits": _LIMITS, "cluster": version.git}

    async def lacking(self, environments: Iterable[Environment], mounted: Iterable[str] = ()) -> list[str]:
        """Return what the cluster says of pods of these environments that it refuses, asked without making any. Raises ApiError.

        Who makes no pods cannot ask: where a Job drives the run, its own account does. What an image lacks is found when a pod starts: a
        program that is not there then ends its agent with 127, a shell that is not there with 126; both are in the logs.
        """
        if self._settings.driver != "here":
            return []
        async with Api(await self._connecting()) as api:
            return await refused(api, environments, mounted, self._settings)

    @contextlib.asynccontextmanager
    async def claiming(self, run: str, epoch: int) -> AsyncIterator[None]:
        """Hold the run's Lease in the first namespace while the context is open.

        Raises LeaseLostError when a higher epoch holds it, also out of the body, and ApiError.
        """
        holder = f"{socket.gethostname()}-{os.getpid()}"
        async with Api(await self._connecting()) as api:
            lease = RunLease(api, self._settings.namespaces[0], run, epoch, holder)
            async with held(lease, self._beat):
                yield

    async def tidy(self, run: str, over: AbstractSet[str]) -> AbstractSet[str]:
        """Delete the pods of a run's launches that are over: their states are delivered and their outcomes committed. Return the launches
        of all others. Raises ApiError.
        """
        labels = f"{names.SELECTOR},{names.RUN_LABEL}={names.run_hash(run)}"
        left = set()
        async with Api(await self._connecting()) as api:
            for namespace in (*self._settings.namespaces, *self._settings.root_namespaces):
                for pod in await _listed(api, namespace, labels):
                    about = pod["metadata"]
                    launch = str((about.get("annotations") or {}).get(names.LAUNCH_ID, ""))
                    if launch not in over:
                        left.add(launch)
                    elif "deletionTimestamp" not in about:
                        with contextlib.suppress(ApiError):  # it is the reaper's then
                            await api.delete(PODS, namespace, about["name"], uid=about["uid"])
        return left

    @contextlib.asynccontextmanager
    async def driving(self, run: str, epoch: int, gateway: Gateway) -> AsyncIterator[SandboxBackend]:
        """Watch the namespaces of trials and give what opens the launches of this run. Raises ApiError."""
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(Api(await self._connecting()))
            shards = await self._shards(stack, api, run, settings.namespaces)
            root_shards = await self._shards(stack, api, run, settings.root_namespaces)
            await asyncio.gather(*(shard.pods.synced() for shard in (*shards, *root_shards)))
            means = Means(
                settings=settings,
                owner=Owner(run=run, epoch=epoch),
                api=api,
                creator=Creator(api, Limiter(settings.creates_per_second)),
                gateway=gateway,
                shards=shards,
                root_shards=root_shards,
                pace=self._pace,
            )
            pods = RunPods(self, means)
            stack.push_async_callback(pods.close)
            yield pods

    def open(self, spec: SandboxSpec) -> contextlib.AbstractAsyncContextManager[Sandbox]:
        """Raise SandboxError: pods belong to runs, and are opened from what ``driving`` gives."""
        msg = f"sandbox {spec.name}: pods belong to a run; open them from what `driving` gives"
        raise SandboxError(msg, cause="sandbox_spec")

    async def _shards(
        self, stack: contextlib.AsyncExitStack, api: Api, run: str, namespaces: Sequence[str]
    ) -> list[Shard]:
        labels = f"{names.SELECTOR},{names.RUN_LABEL}={names.run_hash(run)}"
        return [
            Shard(
                pods=await stack.enter_async_context(Reflector(api, namespace, labels=labels, marks=MARKS)),
                room=asyncio.Semaphore(self._settings.namespace_pods),
            )
            for namespace in namespaces
        ]

    async def _denied(self, api: Api) -> list[str]:
        namespaces = [*self._settings.namespaces, *self._settings.root_namespaces]
        needed = [(verb, resource, namespace) for namespace in namespaces for verb, resource in _NEEDED]
        needed += [(verb, LEASES, self._settings.namespaces[0]) for verb in ("create", "get", "update")]
        answers = await asyncio.gather(*(api.allowed(*each) for each in needed))
        return [
            f"{verb} {resource.plural} in {namespace}"
            for (verb, resource, namespace), answer in zip(needed, answers, strict=True)
            if not answer.allowed
        ]

    def _isolation_refusals(self, environment: Environment) -> list[str]:
        found = []
        stronger = environment.isolation != "container"
        if stronger and runtime_class(environment.isolation, self._settings) is None:
            found.append(
                f"isolation {environment.isolation}: no RuntimeClass for it is configured; "
                f"have trials.runtimeClasses.{environment.isolation} set in the chart (kubernetes.runtime_classes), "
                "or use isolation: container"
            )
        if environment.user == "root" and not self._settings.root_namespaces:
            found.append(
                "user root: no namespace for such pods is configured; "
                "have namespaces.trialsRoot.enabled set in the chart (kubernetes.root_namespaces), or use user: agent"
            )
        return found

    def _image_refusals(self, environment: Environment) -> list[str]:
        image = environment.image
        if image is None and environment.build is not None:
            return [
                f"build {environment.build}: its image is not pinned yet; build and pin it with: orchestrate images lock SUITE"
            ]
        if image is None:
            if self._settings.task_image is None:
                return [
                    "image: pods are made from an image; add image:, or set kubernetes.task_image for tasks without one"
                ]
            return []
        if image == self._settings.task_image:  # whoever installed the chart answers for its versions
            return []
        if not is_pinned(image):
            return [
                f"image {image}: its tag can mean another image tomorrow; pin it with: orchestrate images lock SUITE"
            ]
        if "@" not in image:
            return [f"image {image}: it is known on one machine only; push it and pin the name that a registry gave it"]
        return []


async def _listed(api: Api, namespace: str, labels: str) -> list[dict[str, Any]]:
    patience = Patience()
    while True:
        try:
            return await api.list(PODS, namespace, labels=labels)
        except ApiError as error:
            await patience.again(error)
