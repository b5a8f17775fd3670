"""Pairs of sandboxes as pods: one for all hidden tests of a verdict, deleted as soon as their reports are here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import JsonValue

from grader_service.checks.case import Pair, PairEnd
from grader_service.cluster.door import Door, Ticket, host_address
from grader_service.cluster.fate import Fate, fate_of, pair_end, spilled_end, spilled_in
from grader_service.cluster.render import OWNER, PodOrder, inputs, laid_bytes, render, subject_name
from grader_service.pod import wire
from grader_service.settings import GradingPods
from orchestrator.errors import SandboxError
from orchestrator.records.manifest import ManifestTask
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.pending import Pending
from orchestrator.sandbox.kubernetes.podview import PodView
from orchestrator.sandbox.kubernetes.reflector import Reflector

log = logging.getLogger("grader_service")

_SWEEP_SECONDS = 60.0
_ENDED_SECONDS = 300.0
"""A pod of another grader that ended so long ago is nobody's."""
_STATUS_SECONDS = 60.0
"""How long the kubelet may take to tell of a container that has ended."""
_LEAVE_SECONDS = 10.0
_NOT_A_NAME = re.compile(r"[^a-z0-9]+")


class PodPairs:
    """Implements ``PairedSandboxes``. Use as ``async with``: it sweeps what dead graders left in the namespace."""

    def __init__(self, settings: GradingPods, door: Door, creator: Creator, pods: Reflector) -> None:
        self._settings = settings
        self._door = door
        self._creator = creator
        self._pods = pods
        self._slots = asyncio.Semaphore(settings.pods)
        self._ours: set[str] = set()
        """Names of pods that are awaited here."""
        self._ended: dict[str, float] = {}
        self._sweeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._pods.synced()
        self._sweeping = asyncio.create_task(self._sweep_again(), name="grading pods that nobody awaits")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    def identity(self, planned: ManifestTask) -> Mapping[str, JsonValue]:
        """Return the images."""
        return {
            "backend": "kubernetes",
            "runner_image": self._settings.runner_image,
            "image": planned.environment.image or self._settings.task_image,
            "isolation": planned.environment.isolation,
        }

    async def run(self, name: str, planned: ManifestTask, pairs: Sequence[Pair]) -> Sequence[PairEnd]:
        """Run the pairs in one pod, and in another those whose pod ended because of a neighbour. Raises SandboxError.

        Under a RuntimeClass each has a pod of its own: there a pair joins by a name that others in the pod could take.
        """
        ends: dict[int, PairEnd] = {}
        together = 1 if planned.environment.isolation != "container" else len(pairs)
        while left := [index for index in range(len(pairs)) if index not in ends][:together]:
            waits = pairs[left[0]].runner.waits
            if self._slots.locked():
                waits(f"this grader has as many grading pods as it may (kubernetes.pods: {self._settings.pods})")
            async with self._slots:
                waits("")
                found = await self._run_pod(name, planned, [pairs[index] for index in left])
            ends |= {left[place]: end for place, end in found.items()}
        return [ends[index] for index in range(len(pairs))]

    async def _run_pod(self, name: str, planned: ManifestTask, pairs: Sequence[Pair]) -> dict[int, PairEnd]:
        """Return at least one pair's end."""
        line = wire.SOCKET if planned.environment.isolation == "container" else wire.SHARED_SOCKET
        ticket = self._door.admit(lambda: inputs(pairs, self._settings.pull_seconds, line), len(pairs))
        pod_name = f"g-{_NOT_A_NAME.sub('-', name.lower())[:24].strip('-')}-{secrets.token_hex(4)}"
        self._ours.add(pod_name)
        view: PodView | None = None
        waits = pairs[0].runner.waits
        try:
            order = await self._order(pod_name, name, planned, pairs, ticket)
            created = await self._creator.create(self._settings.namespace, render(order, self._settings), waits)
            view = self._pods.observe(created.pod)
            return await self._ends(view, ticket, waits)
        finally:
            waits("")
            self._door.forget(ticket)
            await self._leave(pod_name, view)

    async def _order(
        self, pod_name: str, launch: str, planned: ManifestTask, pairs: Sequence[Pair], ticket: Ticket
    ) -> PodOrder:
        environment = planned.environment
        image = environment.image or self._settings.task_image
        if image is None:
            msg = f"task {planned.id} names no image, and this grader's configuration no kubernetes.task_image for such tasks"
            raise SandboxError(msg, cause="grading_image")
        runtime_class = self._settings.runtime_classes.get(environment.isolation)
        if environment.isolation != "container" and runtime_class is None:
            msg = f"task {planned.id} asks for isolation {environment.isolation}: name its RuntimeClass in kubernetes.runtime_classes"
            raise SandboxError(msg, cause="grading_isolation")
        try:
            address = await asyncio.to_thread(host_address, self._settings.address)
        except OSError as error:
            msg = f"kubernetes.address {self._settings.address} has no IP address ({error})"
            raise SandboxError(msg, cause="grading_address") from error
        return PodOrder(
            name=pod_name,
            pairs=pairs,
            image=image,
            runtime_class=runtime_class,
            address=address,
            prepare_token=ticket.prepare_token,
            runner_token=ticket.runner_token,
            notes={names.LAUNCH_ID: launch},
            laid_bytes=await asyncio.to_thread(laid_bytes, pairs),
        )

    async def _ends(self, view: PodView, ticket: Ticket, waits: Callable[[str], None]) -> dict[int, PairEnd]:
        watching = asyncio.create_task(self._fate(view, ticket, waits))
        delivered = asyncio.gather(*ticket.results)
        both: tuple[asyncio.Future[Any], ...] = (watching, delivered)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            spilled = () if delivered.done() else (await watching).spilled
            return {index: spilled_end() for index in spilled} | await self._delivered(view, ticket)
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _delivered(self, view: PodView, ticket: Ticket) -> dict[int, PairEnd]:
        """Return the ends of the pairs whose results are here.

        Where a subject had ended before its tests, the cluster has to say how: it may have ended with its pod. Raises SandboxError then,
        but where a neighbour had filled the disk: the pair runs again.
        """
        found = {}
        for index, future in enumerate(ticket.results):
            if future.done() and not future.cancelled():
                result = future.result()
                last = await self._settled(view, index) if result.subject_gone else None
                spilled = () if last is None else spilled_in(last)
                if not spilled or index in spilled:
                    found[index] = pair_end(result, last, index)
        return found

    async def _settled(self, view: PodView, index: int) -> PodView:
        """Wait for the kubelet's word on a subject that has ended. Raises SandboxError when that was not its own doing, or never told."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_SECONDS):
                while not fate_of(view, ()).ended(index) and not view.gone:
                    view = await self._pods.change(view.name, view)
        fate = fate_of(view, ())
        if fate.spilled:
            return view
        if fate.problem is not None:
            raise SandboxError(f"grading pod {view.name}: {fate.problem}", cause=fate.cause)
        if not fate.ended(index):
            msg = f"grading pod {view.name}: the cluster does not say how {subject_name(index)} ended, within {_STATUS_SECONDS:g} s"
            raise SandboxError(msg, cause="grading_status")
        return view

    async def _fate(self, view: PodView, ticket: Ticket, waits: Callable[[str], None]) -> Fate:
        """Wait until nothing more can come of the pod. Raises SandboxError unless a subject has caused it."""
        pending = Pending()
        while True:
            missing = [index for index, result in enumerate(ticket.results) if not result.done()]
            fate = fate_of(view, missing)
            if fate.spilled:
                return fate
            if fate.problem is not None:
                raise SandboxError(f"grading pod {view.name}: {fate.problem}", cause=fate.cause)
            trouble = pending.look(view)
            if trouble is not None and trouble.action != "wait" and trouble.left <= 0:
                raise SandboxError(f"grading pod {view.name} does not start: {trouble.says}", cause=trouble.cause)
            waits("" if trouble is None or trouble.untold else trouble.says)
            left = None if trouble is None else trouble.untold or (None if trouble.action == "wait" else trouble.left)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    view = await self._pods.change(view.name, view)

    async def _leave(self, name: str, view: PodView | None) -> None:
        """Delete the pod, also when this task is cancelled meanwhile; what cannot be deleted now is swept later."""
        try:
            if view is not None:
                deleting = asyncio.ensure_future(self._delete(view))
                await asyncio.wait({deleting}, timeout=_LEAVE_SECONDS)
                deleting.cancel()
        finally:
            self._ours.discard(name)
            self._pods.forget(name)

    async def _delete(self, view: PodView) -> None:
        try:
            await self._creator.delete(self._settings.namespace, view.name, uid=view.uid)
        except ApiError as error:
            log.warning("grading pod %s could not be deleted yet: %s", view.name, error)

    async def _sweep_again(self) -> None:
        while True:
            await self.sweep()
            await asyncio.sleep(_SWEEP_SECONDS)

    async def sweep(self, now: float | None = None) -> None:
        """Delete what an earlier process of this grader left, and what ended long ago whoever made it."""
        now = time.monotonic() if now is None else now
        there = {view.name: view for view in self._pods}
        over = {name for name, view in there.items() if view.phase in {"Succeeded", "Failed"}}
        self._ended = {name: self._ended.get(name, now) for name in over}
        for name, view in there.items():
            own = (view.marks or {}).get(OWNER) == self._settings.owner
            old = name in self._ended and now - self._ended[name] >= _ENDED_SECONDS
            if name not in self._ours and not view.deleting and (own or old):
                log.warning("grading pod %s has nobody who awaits it: it is deleted", name)
                await self._delete(view)
