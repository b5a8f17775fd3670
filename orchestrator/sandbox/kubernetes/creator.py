"""Making pods through everything that an API server does: it pushes back, loses connections after the work was done, has no room.

Creating again is safe because names are ours: whatever has the name is what an earlier try made, or what the caller has to look at.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.interfaces.waits import unheard
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.errors import ApiError, Remedy
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.resources import PODS

_FIRST = 0.2
_MOST = 10.0
"""Pause after the first failure of a request, and the longest; seconds."""
_FULL = 15.0
"""Longest pause before a full namespace is tried again; seconds."""
_LONG = 5.0
"""Seconds of waiting for one's turn that are told."""


@dataclass(frozen=True)
class Created:
    """A pod that is there."""

    pod: dict[str, Any]
    existed: bool
    """It was there, or a try with an unknown outcome has made it: the caller compares and adopts."""


class Patience:
    """Whether and when to try again, for one thing that is to be done."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._tries = 0

    def renewed(self) -> None:
        """The server works: what failed before does not count."""
        self._since, self._tries = None, 0

    async def again(self, error: ApiError) -> None:
        """Wait before the next try. Raises the error when no other makes sense."""
        now = self._clock()
        self._since = now if self._since is None else self._since
        hopeless = error.fault.remedy in (Remedy.FATAL, Remedy.RESULT)
        if hopeless or now - self._since >= error.fault.patience_seconds:
            raise error
        self._tries += 1
        wait = min(_MOST, _FIRST * 2 ** min(self._tries - 1, 20)) * random.uniform(0.5, 1.5)  # noqa: S311
        await self._sleep(max(wait, error.retry_after or 0.0))


@dataclass
class _Room:
    """A namespace, and who waits for room in it, first come first served. Only the first tries: the others would only knock."""

    queue: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    full: str = ""
    """What the quota says; empty: there is room as far as we know."""
    freed: asyncio.Event = field(default_factory=asyncio.Event)


class Creator:
    """Creates and deletes the pods of one cluster. One for each process and cluster."""

    def __init__(
        self,
        api: Api,
        limiter: Limiter,
        *,
        deletes: Limiter | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.requests: Counter[str] = Counter()
        """Requests sent, by verb."""
        self._api = api
        self._limiter = limiter
        self._deletes = deletes if deletes is not None else Limiter(50.0, clock=clock, sleep=sleep)
        self._clock = clock
        self._sleep = sleep
        self._rooms: dict[str, _Room] = {}
        self._sent: dict[tuple[str, str], asyncio.Task[dict[str, Any]]] = {}
        """Creates that are under way, or have failed so that nobody knows what they did; by namespace and name."""

    async def close(self) -> None:
        """Give up what is under way: nobody can hear of it any more."""
        for sent in self._sent.values():
            sent.cancel()
        await asyncio.gather(*self._sent.values(), return_exceptions=True)

    async def create(self, namespace: str, pod: Mapping[str, Any], waits: Callable[[str], None] = unheard) -> Created:
        """Create a pod, or find the one that has its name; ``waits`` is told why that takes longer, and ``""`` once it is made.

        A quota that is full is waited for without limit. Raises ApiError when nothing helps or patience is over. Whoever is cancelled may
        leave a pod behind, or one that comes a moment later: ``settled`` waits for that.
        """
        if self._limiter.waiting > self._limiter.rate * _LONG:
            waits(
                "their turn: no more pods a second are created (kubernetes.creates_per_second, or the cluster's own pace)"
            )
        created = await self._created(namespace, pod, waits)
        waits("")
        return created

    async def _created(self, namespace: str, pod: Mapping[str, Any], waits: Callable[[str], None]) -> Created:
        name = str(pod["metadata"]["name"])
        room = self._rooms.setdefault(namespace, _Room())
        if room.full and (there := await self._found(namespace, name)) is not None:
            return there  # its end makes room: it must not queue behind those who wait for that
        patience = Patience(self._clock, self._sleep)
        while not room.full:
            try:
                return await self._try(namespace, name, pod)
            except ApiError as error:
                if error.cause == "quota":
                    room.full = _quoted(error)
                    if (there := await self._found(namespace, name)) is not None:
                        return there
                else:
                    await patience.again(error)
        waits(f"{room.full} in {namespace}")
        return await self._queued(room, namespace, name, pod)

    async def delete(self, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None) -> bool:
        """Delete one pod and no other of its name; ``grace_seconds`` None: the pod's own.

        Returns False when it was gone. Raises ApiError when nothing helps or patience is over.
        """
        patience = Patience(self._clock, self._sleep)
        while True:
            await self._deletes.turn()
            self.requests["delete"] += 1
            began = self._clock()
            try:
                done = await self._api.delete(PODS, namespace, name, uid=uid, grace_seconds=grace_seconds)
            except ApiError as error:
                _tell(self._deletes, error, self._clock() - began)
                await patience.again(error)
            else:
                self._deletes.healthy(self._clock() - began)
                self.freed(namespace)
                return done

    def is_open(self, namespace: str, name: str) -> bool:
        """Return whether a create is under way, or has failed so that nobody knows what it did."""
        return (namespace, name) in self._sent

    async def settled(self, namespace: str, name: str) -> bool:
        """Wait until a create that ``is_open`` was answered. False: nobody knows whether it was done, or will be in a moment."""
        sent = self._sent.pop((namespace, name))
        await asyncio.wait({sent})
        return not sent.cancelled() and not _unsure(sent.exception())

    def freed(self, namespace: str) -> None:
        """Tell that a pod of the namespace has gone: there may be room."""
        if (room := self._rooms.get(namespace)) is not None:
            room.freed.set()

    async def _queued(self, room: _Room, namespace: str, name: str, pod: Mapping[str, Any]) -> Created:
        """Create in a namespace that is full."""
        patience = Patience(self._clock, self._sleep)
        pause = 1.0
        room.waiting += 1
        try:
            async with room.queue:
                while True:
                    room.freed.clear()
                    try:
                        return await self._try(namespace, name, pod)
                    except ApiError as error:
                        if error.cause != "quota":
                            await patience.again(error)
                            continue
                        room.full = _quoted(error)
                        patience.renewed()
                    await self._until_freed(room, pause * random.uniform(0.5, 1.5))  # noqa: S311
                    pause = min(_FULL, pause * 2)
        finally:
            room.waiting -= 1
            if not room.waiting:
                room.full = ""

    async def _until_freed(self, room: _Room, seconds: float) -> None:
        freed = asyncio.ensure_future(room.freed.wait())
        timer = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait((freed, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            freed.cancel()
            timer.cancel()

    async def _try(self, namespace: str, name: str, pod: Mapping[str, Any]) -> Created:
        """Create once. What nobody knows the outcome of is looked for by its name. Raises ApiError."""
        await self._limiter.turn()
        self.requests["create"] += 1
        began = self._clock()
        try:
            made = await self._send(namespace, name, pod)
        except ApiError as error:
            _tell(self._limiter, error, self._clock() - began)
            if error.fault.remedy is not Remedy.LOOK and error.cause != "already_exists":
                raise
            there = await self._found(namespace, name)
            if there is None:
                raise _once_more(error) from error
            self._sent.pop((namespace, name), None)
            return there
        self._limiter.healthy(self._clock() - began)
        return Created(made, existed=False)

    async def _send(self, namespace: str, name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Send a create, to its end in any case: cut off, it might be done all the same."""
        key = namespace, name
        sent = self._sent[key] = asyncio.create_task(self._api.create(PODS, namespace, pod))

        def answered(_: asyncio.Task[dict[str, Any]]) -> None:
            sure = not sent.cancelled() and not _unsure(sent.exception())
            if sure and self._sent.get(key) is sent:
                del self._sent[key]

        sent.add_done_callback(answered)
        return await asyncio.shield(sent)

    async def _found(self, namespace: str, name: str) -> Created | None:
        patience = Patience(self._clock, self._sleep)
        while True:
            self.requests["get"] += 1
            try:
                there = await self._api.find(PODS, namespace, name)
            except ApiError as error:
                await patience.again(error)
            else:
                return None if there is None else Created(there, existed=True)


def _unsure(error: BaseException | None) -> bool:
    return error is not None and not (isinstance(error, ApiError) and not error.fault.unsure)


def _tell(limiter: Limiter, error: ApiError, seconds: float) -> None:
    pushes = error.fault.remedy is Remedy.BACK_OFF or error.fault.unsure
    if pushes and error.cause != "quota":
        limiter.pushed(error.retry_after, seconds=seconds)
    elif error.status:
        limiter.healthy(seconds)


def _once_more(error: ApiError) -> ApiError:
    """It was not made after all, or has gone again: the same once more, after a pause."""
    from dataclasses import replace

    fault = replace(error.fault, remedy=Remedy.RETRY, patience_seconds=max(error.fault.patience_seconds, 30.0))
    return ApiError(str(error), fault=fault, status=error.status, reason=error.reason, retry_after=error.retry_after)


def _quoted(error: ApiError) -> str:
    """Return what the quota says, without how much of it is used: that changes while others wait."""
    said = str(error)
    said = said[said.find("exceeded quota") :].partition(";")[0]
    short = re.sub(r"^exceeded quota: ([^,]+), .*?limited: ", r"exceeded quota \1: ", said)
    return " ".join(short.split())[:200]
