"""One launch's pod as a Sandbox: watched, stopped, its state waited for, deleted once nobody needs it any more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.errors import GatewayError, InfrastructureError, SandboxError, StoreError
from orchestrator.interfaces import Delivery, Ending, Frozen, Gateway, SandboxSpec
from orchestrator.records.outcome import Exit
from orchestrator.records.state import Finding
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.endings import (
    Facts,
    Loss,
    began,
    disruption,
    exceeded,
    freezer_done,
    freezer_loss,
    freezer_out_of_memory,
    is_over,
    judge,
    ran,
)
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.pending import Pending
from orchestrator.sandbox.kubernetes.podview import PodView
from orchestrator.sandbox.kubernetes.reflector import Reflector
from orchestrator.sandbox.kubernetes.resources import EVENTS

NOTHING = Frozen(state=None, output=b"", output_blob=None, final=None)
"""What is left of an agent that never ran."""
_EVENTS = 3
"""Last warnings of the cluster that are told of a lost pod."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long things may take; seconds."""

    settle: float = 5.0
    """Silence after which no more is expected to be told of what was told: the kubelet is about a second late."""
    stop: float = 20.0
    """From asking the pod's own freezer to stop the agent to deleting the pod."""
    linger: float = 60.0
    """Beyond its grace, before a pod that is being deleted is given up: its node does not answer."""
    overdue: float = 600.0
    """Likewise beyond the deadline that the cluster has for it."""
    deliver: float = 30.0
    """From the end of a freezer that has delivered to hearing of it from the gateway."""
    away: float = 5.0
    """Between looks while the API server is away."""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a pod's sandbox needs of its surroundings."""

    api: Api
    creator: Creator
    pods: Reflector
    gateway: Gateway
    bury: Callable[[Coroutine[Any, Any, None]], None]
    """Has something done beside, and waited for before everything is closed."""
    grace_seconds: float
    """The pod's own grace: its freeze budget."""
    deadline_seconds: float
    """Seconds after which the cluster ends the pod in any case."""
    pace: Pace = field(default_factory=Pace)


class PodSandbox:
    """A launch whose pod is there. Implements Sandbox."""

    def __init__(self, spec: SandboxSpec, view: PodView, around: Around, *, spare_request: bool) -> None:
        self.labels: Mapping[str, str] = {"isolation": spec.isolation}
        self._spec = spec
        self._view = view
        self._around = around
        self._spare = spare_request
        """Whether one more request than create and delete is left, to ask for the cluster's events."""
        self._pending = Pending()
        self._placed = self._changed = time.monotonic()
        self._began: float | None = None
        self._deleting_since: float | None = None
        self._stopped = False
        self._deleted = False
        self._runs = asyncio.Event()
        self._ending = asyncio.create_task(self._follow())
        self._insisting: asyncio.Task[None] | None = None

    async def running(self) -> None:
        """Wait until the agent's container was seen to run, or will never be."""
        await self._runs.wait()

    async def ended(self) -> Ending:
        """Wait until the cluster says that the agent is dead, and how. Raises SandboxError for an end that was not the agent's."""
        return await asyncio.shield(self._ending)

    async def stop(self) -> None:
        """Have the pod's freezer stop the agent; a pod that does not heed it is deleted, which its freezer takes for the same."""
        if self._stopped:
            return
        self._stopped = True
        self._insisting = asyncio.create_task(self._insist())

    async def freeze(self) -> Frozen:
        """Wait for what the pod's freezer delivers. Raises SandboxError when nothing will come, GatewayError and StoreError."""
        ending = await self.ended()
        if self._never_ran(ending):
            return NOTHING
        delivered = asyncio.create_task(self._around.gateway.delivered(self._spec.name))
        hopeless = asyncio.create_task(self._freezer_gone())
        try:
            await asyncio.wait({delivered, hopeless}, return_when=asyncio.FIRST_COMPLETED)
            if not delivered.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._around.pace.deliver):
                        await asyncio.wait({delivered})
            if delivered.done():
                return frozen_of(delivered.result(), self._spec.limits.disk_bytes)
            return await self._without_state(ending, hopeless.result())
        finally:
            for task in (delivered, hopeless):
                task.cancel()
            await asyncio.gather(delivered, hopeless, return_exceptions=True)

    async def leave(self, *, keep: bool) -> None:
        """End the watching; delete the pod unless the next driver needs it."""
        for task in (self._ending, self._insisting):
            if task is not None:
                task.cancel()
        await asyncio.gather(self._ending, *filter(None, [self._insisting]), return_exceptions=True)
        if keep:
            self._around.pods.forget(self._view.name)
        else:
            self._around.bury(self._remove())

    # --- watching ----------------------------------------------------------------------------------------------------------------------

    async def _follow(self) -> Ending:
        try:
            while True:
                said = judge(self._view, self._facts())
                if isinstance(said, Ending):
                    return said
                if isinstance(said, Loss):
                    return await self._left_before(said)
                if ran(self._view):
                    self._began = began(self._view) or self._began
                    self._runs.set()
                    self._spec.waits("")
                await self._news()
        finally:
            self._runs.set()

    async def _left_before(self, loss: Loss) -> Ending:
        """Return the ending of an agent that had ended before its pod was lost, or was the reason for that, as its freezer tells.

        Raises SandboxError: neither.
        """
        agent = self._view.container(names.AGENT)
        unseen = agent is not None and agent.state == "running"  # nobody has seen more, and the pod is not coming back
        if unseen or (loss.cause == "evicted" and ran(self._view)):
            with contextlib.suppress(GatewayError, StoreError, TimeoutError):
                async with asyncio.timeout(self._around.pace.settle):
                    delivery = await self._around.gateway.delivered(self._spec.name)
                    filled = frozen_of(delivery, self._spec.limits.disk_bytes).over_disk
                    if filled or (unseen and not delivery.interrupted):
                        return ending_of(delivery, self._spec)
        raise await self._lost(loss)

    def _facts(self) -> Facts:
        return Facts(
            wall_seconds=self._spec.limits.wall_seconds,
            isolation=self._spec.isolation,
            stopped=self._stopped,
            settled=not self._around.pods.trouble and time.monotonic() - self._changed >= self._around.pace.settle,
            began=self._began,
        )

    async def _news(self) -> None:
        """Wait for a change of the pod, or until one is overdue. Raises SandboxError when it is."""
        patience = await self._patience()
        try:
            async with asyncio.timeout(patience):
                self._view = await self._around.pods.change(self._view.name, self._view)
                self._changed = time.monotonic()
        except TimeoutError:
            return
        except ApiError as error:
            if error.fault.patience_seconds < self._around.pace.linger:  # it is not only away
                raise
            await asyncio.sleep(self._around.pace.away)

    async def _patience(self) -> float:
        """Return the seconds for which nothing need happen. Raises SandboxError when something is overdue."""
        now, pace = time.monotonic(), self._around.pace
        if self._around.pods.trouble:  # what cannot be seen is not late: all patience begins anew
            self._changed, self._deleting_since, self._pending = now, None, Pending()
            self._placed = max(self._placed, now - self._around.deadline_seconds)
            return pace.away
        if not self._view.node:
            self._placed = now  # the cluster's own deadline counts from when a node has taken it
        left = self._placed + self._around.deadline_seconds + pace.overdue - now
        says = "the cluster did not end it in time; its node may be gone"
        if self._view.deleting:
            self._deleting_since = self._deleting_since or now
            left = min(left, self._deleting_since + self._around.grace_seconds + pace.linger - now)
            says = f"it is still being deleted long after its grace; node {self._view.node or 'unknown'} may be gone"
        if left <= 0:
            raise await self._lost(Loss("node_lost", says))
        settles = self._changed + pace.settle - now
        if settles > 0 or is_over(self._view):
            return max(0.01, settles)
        trouble = self._pending.look(self._view)
        if trouble is None:
            self._spec.waits("")
            return left
        if trouble.left <= 0:
            raise await self._lost(Loss(trouble.cause, trouble.says, telling=False))
        if not trouble.untold:
            self._spec.waits(trouble.says)
        return max(0.05, min(left, trouble.left, trouble.untold or left))

    async def _lost(self, loss: Loss) -> SandboxError:
        said = loss.says
        if not loss.telling and self._spare:
            self._spare = False
            said = "; ".join([said, *await self._events()])
        return SandboxError(f"pod {self._view.namespace}/{self._view.name}: {said}", cause=loss.cause)

    async def _events(self) -> list[str]:
        """Return the cluster's last warnings about this pod; none when they cannot be had."""
        fields = f"involvedObject.uid={self._view.uid}"
        try:
            found = await self._around.api.list(EVENTS, self._view.namespace, fields=fields)
        except ApiError:
            return []
        warnings = [each for each in found if each.get("type") == "Warning"] or found
        warnings.sort(key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or "")
        return [
            f"{each.get('reason')}: {' '.join(str(each.get('message')).split())[:300]}" for each in warnings[-_EVENTS:]
        ]

    # --- ending it ---------------------------------------------------------------------------------------------------------------------

    async def _insist(self) -> None:
        """Ask for the stop; delete the pod when its agent does not run yet, or goes on all the same.

        Raises LeaseLostError: then the pod is the next driver's, and is left alone.
        """
        until = time.monotonic() + self._around.pace.stop
        with contextlib.suppress(GatewayError, TimeoutError):  # a gateway that is away: the deletion does it as well
            async with asyncio.timeout(self._around.pace.stop):
                await self._around.gateway.stop(self._spec.name)
        if ran(self._view):
            await asyncio.wait({self._ending}, timeout=max(0.0, until - time.monotonic()))
        if not self._ending.done():
            await self._delete()

    async def _remove(self) -> None:
        if not self._view.gone and not self._view.deleting:
            await self._delete()
        self._around.creator.freed(self._view.namespace)
        self._around.pods.forget(self._view.name)

    async def _delete(self) -> None:
        """Delete the pod, once. What fails now is left to the reaper."""
        if self._deleted:
            return
        self._deleted = True
        with contextlib.suppress(ApiError):
            await self._around.creator.delete(self._view.namespace, self._view.name, uid=self._view.uid)

    # --- what it leaves ----------------------------------------------------------------------------------------------------------------

    def _never_ran(self, ending: Ending) -> bool:
        return ending.cause == "stopped" and not ran(self._view)

    async def _freezer_gone(self) -> Loss:
        """Wait until no state can come from this pod any more, and say why. Raises SandboxError when its node is gone."""
        patience = self._around.grace_seconds + self._around.pace.linger
        while True:
            if (loss := freezer_loss(self._view)) is not None:
                return loss
            silent = is_over(self._view) and time.monotonic() - self._changed > patience
            if self._view.gone or freezer_done(self._view) or silent:
                found = disruption(self._view)
                return replace(found, says=f"no state has come from it: {found.says}")
            await self._news()

    async def _without_state(self, ending: Ending, loss: Loss) -> Frozen:
        """Return a result without state where the agent is the reason for that. Raises SandboxError where it is not."""
        view = self._view
        # gVisor does not protect a container's first process, only our filter of calls does: an agent that got around it may have held its
        # supervisor until the pod's own deadline.
        held = self._spec.isolation == "gvisor" and ending.cause == "wall_clock"
        filled = ending.cause == "out_of_disk" and view.reason == "Evicted"  # the node ran short all the same
        if freezer_out_of_memory(view) or exceeded(view) or held or filled or ending.cause == "out_of_memory":
            finding = Finding(type="no_state", detail=loss.says, source="freezer")
            return replace(NOTHING, findings=(finding,), over_disk=exceeded(view))
        cause = "state_lost" if loss.cause == "pod_failed" else loss.cause
        raise await self._lost(replace(loss, cause=cause))


class LeftSandbox:
    """A launch whose pod is gone, but whose freezer has delivered before. Implements Sandbox."""

    def __init__(self, spec: SandboxSpec, delivery: Delivery) -> None:
        self.labels: Mapping[str, str] = {"isolation": spec.isolation, "ending": "told by the pod"}
        self._spec = spec
        self._delivery = delivery

    async def running(self) -> None:
        """It does not run any more."""

    async def ended(self) -> Ending:
        """Return the ending as the supervisor in the pod noted it. Raises SandboxError when the pod had been ended from outside."""
        if self._delivery.interrupted:
            msg = f"pod {names.pod_name(self._spec.name)}: it was deleted or evicted while its agent ran and nobody drove the run"
            raise SandboxError(msg, cause="pod_deleted")
        return ending_of(self._delivery, self._spec)

    async def stop(self) -> None:
        """It is over."""

    async def freeze(self) -> Frozen:
        """Return what was delivered."""
        return frozen_of(self._delivery, self._spec.limits.disk_bytes)


def ending_of(delivery: Delivery, spec: SandboxSpec) -> Ending:
    """Return how an agent ended whose container nobody saw end: by what its supervisor noted where the agent can write."""
    now = time.time()
    ended = min(delivery.ended or now, now)
    started = min(delivery.started or ended, ended)
    over = ended - started >= spec.limits.wall_seconds
    return Ending(
        exit=delivery.exit or Exit(),
        cause="stopped" if delivery.cancelled else delivery.cause or ("wall_clock" if over else "exited"),
        started=started,
        ended=ended,
        findings=(Finding(type="ending_not_seen", detail="the pod was gone before its end was seen"),),
    )


def frozen_of(delivery: Delivery, disk_bytes: int) -> Frozen:
    """Return what a freezer delivered, and whether the agent wrote more than its disk limit."""
    used = delivery.disk_bytes
    if used is None or used <= disk_bytes:
        return delivery.frozen
    detail = f"{used:,} bytes in the writable folders, and {disk_bytes:,} are allowed"
    finding = Finding(type="over_disk", detail=detail, source="freezer")
    return replace(delivery.frozen, findings=(*delivery.frozen.findings, finding), over_disk=True)


def outlives(error: BaseException) -> bool:
    """Return whether a pod is left for the next driver: this process ends, has lost the run, or cannot write."""
    if not isinstance(error, Exception):  # cancelled, interrupted
        return True
    return isinstance(error, InfrastructureError) and error.spares_none
