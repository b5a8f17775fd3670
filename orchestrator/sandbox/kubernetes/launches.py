"""The pods of one run in one process: each launch's is created, or found and adopted, in the namespace that its name chooses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self

from orchestrator.errors import SandboxError
from orchestrator.interfaces import Delivery, Gateway, PodDoor, Sandbox, SandboxBackend, SandboxSpec
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.creator import Creator, Patience
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.launching import Launching
from orchestrator.sandbox.kubernetes.pod import Around, LeftSandbox, Pace, PodSandbox, outlives
from orchestrator.sandbox.kubernetes.podview import PodView
from orchestrator.sandbox.kubernetes.reflector import Reflector
from orchestrator.sandbox.kubernetes.render import Owner, deadline_seconds, render
from orchestrator.sandbox.kubernetes.resources import PODS
from orchestrator.settings import Kubernetes
from orchestrator.spec.task import Environment

MARKS = (names.RUN, names.LAUNCH_ID, names.SPEC_SHA256, names.GATEWAY_INSTANCE, names.FREEZER_TOKEN)
"""What is kept of a pod's annotations, to know it again."""
_CLOSE_SECONDS = 30.0
"""How long the last deletions may take; the reaper does what is left."""


@dataclass
class Shard:
    """One namespace of trials' pods."""

    pods: Reflector
    room: asyncio.Semaphore
    """Pods of this process that may be there; the namespace's quota holds for all."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """What the pods of a run are made with."""

    settings: Kubernetes
    owner: Owner
    api: Api
    creator: Creator
    gateway: Gateway
    shards: Sequence[Shard]
    root_shards: Sequence[Shard]
    pace: Pace = field(default_factory=Pace)


class _Slot:
    """The place of one pod in its namespace."""

    def __init__(self) -> None:
        self._room: asyncio.Semaphore | None = None

    async def take(self, room: asyncio.Semaphore) -> None:
        """Wait for it."""
        await room.acquire()
        self._room = room

    def free(self) -> None:
        """Give it back, if it was taken."""
        if self._room is not None:
            self._room.release()


def _launch_of(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(names.LAUNCH_ID, ""))


class RunPods:
    """Makes and adopts the pods of a run. Implements SandboxBackend; what is asked before a run is asked of ``backend``."""

    name = "kubernetes"
    fetches = True

    def __init__(self, backend: SandboxBackend, means: Means) -> None:
        self._backend = backend
        self._means = means
        self.mounts_images = means.settings.image_volumes
        self._burials: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """Have the launch's pod created or adopted. Leaving deletes it, unless the next driver needs it. Raises SandboxError.

        What fails, and waiting for room in the namespace or its quota, is told by the sandbox: whoever waits may be stopped.
        """
        pod, door = render(spec, self._means.owner, self._means.settings), spec.door
        assert isinstance(door, PodDoor)  # noqa: S101 - rendering has checked it
        shard, slot = self._shard(spec), _Slot()

        async def make() -> PodSandbox | LeftSandbox:
            if shard.room.locked():
                most = self._means.settings.namespace_pods
                spec.waits(
                    f"this driver has its share of pods in {shard.pods.namespace} (kubernetes.namespace_pods: {most})"
                )
            await slot.take(shard.room)
            spec.waits("")
            return await self._made(spec, pod, door, shard)

        async def unwanted() -> None:
            self._bury(self._delete_if_made(spec, shard))

        sandbox = Launching(make(), unwanted, there=spec.left)
        keep = False
        try:
            yield sandbox
        except BaseException as error:
            keep = outlives(error)
            raise
        finally:
            await sandbox.leave(keep=keep)
            slot.free()

    async def close(self) -> None:
        """Wait for the last deletions, for a while."""
        if self._burials:
            await asyncio.wait(self._burials, timeout=_CLOSE_SECONDS)
        for task in self._burials:
            task.cancel()
        await self._means.creator.close()

    # --- create or adopt ---------------------------------------------------------------------------------------------------------------

    async def _made(
        self, spec: SandboxSpec, pod: Mapping[str, Any], door: PodDoor, shard: Shard
    ) -> PodSandbox | LeftSandbox:
        if door.known and (found := self._seen(pod)) is not None:
            where, view = found
            return await self._adopted(spec, pod, door, where, view, spare=True)
        if door.begun or door.sealed or spec.left:
            return await self._past(spec, pod, door, shard)
        created = await self._means.creator.create(shard.pods.namespace, pod, spec.waits)
        view = shard.pods.observe(created.pod)
        if created.existed:
            return await self._adopted(spec, pod, door, shard, view, spare=False)
        return self._sandbox(spec, view, shard, spare=True)

    def _seen(self, pod: Mapping[str, Any]) -> tuple[Shard, PodView] | None:
        """Return the pod as the watches show it, in whatever namespace an earlier driver chose."""
        for shard in (*self._means.shards, *self._means.root_shards):
            view = shard.pods.get(pod["metadata"]["name"])
            if view is not None and not view.gone:
                return shard, view
        return None

    async def _past(
        self, spec: SandboxSpec, pod: Mapping[str, Any], door: PodDoor, shard: Shard
    ) -> PodSandbox | LeftSandbox:
        """Return what is left of a launch that was begun before: another pod of it must not be made.

        Raises SandboxError, cause ``pod_lost``, when nothing is.
        """
        name = pod["metadata"]["name"]
        there = await self._find(shard, name)
        if there is not None:
            return await self._adopted(spec, pod, door, shard, shard.pods.observe(there), spare=False)
        delivery = await self._delivery(spec.name) if door.sealed else None
        if delivery is not None:
            return LeftSandbox(spec, delivery)
        msg = f"pod {shard.pods.namespace}/{name}: it began under an earlier driver and is gone, and has left no state"
        raise SandboxError(msg, cause="pod_lost")

    async def _find(self, shard: Shard, name: str) -> dict[str, Any] | None:
        """Ask the API server itself: what a watch does not show may only be late."""
        patience = Patience()
        while True:
            try:
                return await self._means.api.find(PODS, shard.pods.namespace, name)
            except ApiError as error:
                await patience.again(error)

    async def _delivery(self, launch: str) -> Delivery | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._means.pace.deliver):
                return await self._means.gateway.delivered(launch)
        return None

    async def _adopted(
        self, spec: SandboxSpec, pod: Mapping[str, Any], door: PodDoor, shard: Shard, view: PodView, *, spare: bool
    ) -> PodSandbox:
        """Take over a pod of this launch, also one that was made under earlier settings: what the agent gets is the manifest's.

        Raises SandboxError for one that is another's, or that its gateway does not know any more.
        """
        wanted, marks = pod["metadata"]["annotations"], view.marks or {}
        where = f"pod {view.namespace}/{view.name}"
        if any(marks.get(mark) != wanted[mark] for mark in (names.RUN, names.LAUNCH_ID)):
            others = marks.get(names.RUN, "unknown")
            msg = f"{where}: its name is taken by a pod of another launch (run {others}); delete that pod"
            raise SandboxError(msg, cause="pod_collision")
        if marks.get(names.GATEWAY_INSTANCE) != door.instance and not door.sealed:
            self._give_up(shard, view)
            msg = f"{where}: the gateway that it was made for was restarted and has forgotten it"
            raise SandboxError(msg, cause="gateway_restarted")
        if marks.get(names.FREEZER_TOKEN) != wanted[names.FREEZER_TOKEN] and not door.sealed:
            msg = f"{where}: its name is taken by a pod that was not given the launch's tokens; delete that pod, and see who made it"
            raise SandboxError(msg, cause="pod_collision")
        sandbox = self._sandbox(spec, view, shard, spare=spare)
        if marks.get(names.SPEC_SHA256) != wanted[names.SPEC_SHA256]:
            sandbox.labels = {**sandbox.labels, "pod": "made under earlier settings"}
        return sandbox

    def _sandbox(self, spec: SandboxSpec, view: PodView, shard: Shard, *, spare: bool) -> PodSandbox:
        means = self._means
        around = Around(
            api=means.api,
            creator=means.creator,
            pods=shard.pods,
            gateway=means.gateway,
            bury=self._bury,
            grace_seconds=means.settings.freeze_seconds,
            deadline_seconds=deadline_seconds(spec, means.settings),
            pace=means.pace,
        )
        return PodSandbox(spec, view, around, spare_request=spare)

    # --- namespaces, deletions -----------------------------------------------------------------------------------------------------------

    def _shard(self, spec: SandboxSpec) -> Shard:
        """Return the namespace of a launch: always the same, so that another driver looks in the right one."""
        shards = self._means.root_shards if spec.user == "root" else self._means.shards
        if not shards:
            msg = f"sandbox {spec.name}: there is no namespace for tasks with user {spec.user}; see kubernetes.root_namespaces"
            raise SandboxError(msg, cause="sandbox_spec")
        return shards[int.from_bytes(sha256(spec.name.encode()).digest()[:8], "big") % len(shards)]

    async def _delete_if_made(self, spec: SandboxSpec, shard: Shard) -> None:
        """Delete the pod of a launch that nobody waits for any more, whose creation may have been on its way."""
        namespace, name, creator = shard.pods.namespace, names.pod_name(spec.name), self._means.creator
        with contextlib.suppress(ApiError):  # what is left then is the reaper's
            there = await self._find(shard, name)
            if there is None and creator.is_open(namespace, name):
                sure = await creator.settled(namespace, name)
                there = await self._find(shard, name)
                if there is None and not sure:
                    await asyncio.sleep(self._means.pace.settle)
                    there = await self._find(shard, name)
            if there is not None and _launch_of(there) == spec.name:
                await creator.delete(namespace, name, uid=there["metadata"]["uid"])

    def _give_up(self, shard: Shard, view: PodView) -> None:
        async def delete() -> None:
            with contextlib.suppress(ApiError):  # what is left then is the reaper's
                await self._means.creator.delete(view.namespace, view.name, uid=view.uid)
            shard.pods.forget(view.name)

        self._bury(delete())

    def _bury(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    # --- asked before a run --------------------------------------------------------------------------------------------------------------

    def refusals(self, environment: Environment) -> list[str]:
        """As the backend says."""
        return self._backend.refusals(environment)

    async def preflight(self) -> Mapping[str, str]:
        """As the backend says."""
        return await self._backend.preflight()

    async def lacking(self, environments: Iterable[Environment], mounted: Iterable[str] = ()) -> list[str]:
        """As the backend says."""
        return await self._backend.lacking(environments, mounted)

    def claiming(self, run: str, epoch: int) -> contextlib.AbstractAsyncContextManager[None]:
        """As the backend says."""
        return self._backend.claiming(run, epoch)

    async def tidy(self, run: str, over: AbstractSet[str]) -> AbstractSet[str]:
        """As the backend says."""
        return await self._backend.tidy(run, over)

    @contextlib.asynccontextmanager
    async def driving(self, run: str, epoch: int, gateway: Gateway) -> AsyncIterator[Self]:
        """It drives already."""
        yield self
