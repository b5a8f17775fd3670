"""What the pods of one namespace are doing, by one watch for all of them.

Never backwards: what was seen is only replaced by what is newer, however often the watch breaks and whichever API server answers. An end
that no event told is told after the next list. Nobody polls: who waits for a pod is woken by what comes.

Only a cluster that goes on saying that it is younger than what was seen is believed: its etcd was restored from a backup. A new age begins
then, in which versions count anew, and pods that it does not know are gone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from orchestrator.errors import SandboxError
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api, WatchEvent
from orchestrator.sandbox.kubernetes.errors import ApiError, Doing, Remedy, failed
from orchestrator.sandbox.kubernetes.podview import PodView, pod_view
from orchestrator.sandbox.kubernetes.resources import PODS


@dataclass(frozen=True)
class Pace:
    """How patient a reflector is; seconds."""

    first: float = 0.1
    """Pause after the first failure; it doubles with each more, up to ``most``."""
    most: float = 30.0
    silence: float = 90.0
    """A watch that is this quiet is begun anew: bookmarks come every minute."""
    older: float = 10.0
    """How long all lists must be older than what is known until the cluster counts as restored from a backup."""
    watch: float = 360.0
    """How long one watch is asked to go on, give or take a third, so that many do not end at once."""


_PACE = Pace()
_SHAPE = (ValueError, TypeError, AttributeError)
"""What reading an answer raises that is no pod."""
_TRIES = 8
"""So many failures in a row, and what is known is listed anew."""
_OLDER_LISTS = 5
"""So many lists in a row, over ``Pace.older``, that are older than what is known."""


class Reflector:
    """The pods of one namespace that bear ``labels``. Use as ``async with Reflector(api, namespace) as pods``."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        labels: str = names.SELECTOR,
        marks: Iterable[str] = (),
        pace: Pace = _PACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.namespace = namespace
        self.counts: Counter[str] = Counter()
        """Events and what went wrong, since the start: ``list``, ``watch``, ``event``, ``stale``, and causes of errors."""
        self._api = api
        self._labels = labels
        self._marks = tuple(marks)
        self._pace = pace
        self._clock = clock
        self._version = 0
        """All that happened until then is known; 0: nothing is."""
        self._age = 0
        self._older: list[float] = []
        """When lists came that are older than what is known, since the last that was not."""
        self._told = 0.0
        """When the watch last told something that is not older than what is known."""
        self._views: dict[str, PodView] = {}
        self._ends: dict[str, PodView] = {}
        """Pods that went while somebody was interested in them."""
        self._expected: set[str] = set()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._error: ApiError | None = None
        self._since: float | None = None
        """When the present row of failures began."""
        self._failures = 0
        self._over: ApiError | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"pods of {self.namespace}")
        self._task.add_done_callback(lambda _: self._wake_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def trouble(self) -> str:
        """Why nothing is seen at present, for people; empty when all is well."""
        return "" if self._error is None else str(self._error)

    async def synced(self) -> None:
        """Wait for the first list. Raises ApiError when the cluster refuses it for longer than makes sense."""
        while not self._version:
            await self._news("")

    def get(self, name: str) -> PodView | None:
        """Return the newest view of a pod, which may be that it is gone."""
        return self._views.get(name) or self._ends.get(name)

    def __iter__(self) -> Iterator[PodView]:
        return iter(list(self._views.values()))

    def __len__(self) -> int:
        return len(self._views)

    def observe(self, pod: dict[str, object]) -> PodView:
        """Take note of what a create or get has answered; the pod must bear the reflector's labels.

        From now on its end will be told, even if no event ever shows it, until ``forget``.
        """
        view = self._view(pod)
        self._expected.add(view.name)
        known = self._views.get(view.name) or self._ends.get(view.name)
        if known is not None and known.order >= view.order:
            return known
        if view.version <= self._version:  # all until then is known, and this is not among it
            self._end(view.ended())
        else:
            self._take(view)
        return self.get(view.name) or view

    async def change(self, name: str, after: PodView | None = None) -> PodView:
        """Wait for something newer than ``after``; None: for anything. The last is a view that is ``gone``.

        Its end is kept until ``forget``. When another pod has taken the name, ``after`` itself is returned as gone. Raises ApiError when
        the cluster cannot be read for longer than makes sense; what is known stays.
        """
        self._expected.add(name)
        while True:
            if (found := self._newer(name, after)) is not None:
                return found
            await self._news(name)

    def forget(self, name: str) -> None:
        """Nobody waits for that pod any more: its end need not be kept."""
        self._expected.discard(name)
        self._ends.pop(name, None)

    # What is known

    def _view(self, pod: dict[str, object]) -> PodView:
        view = pod_view(pod, self._marks)
        return view._replace(age=self._age) if self._age else view

    def _newer(self, name: str, after: PodView | None) -> PodView | None:
        view = self.get(name)
        if after is None or (view is not None and view.order < after.order):
            return view if after is None else None
        if view is None or view.uid != after.uid:
            if after.gone:
                return view
            return after.ended() if view is not None or (self._age, self._version) >= after.order else None
        return view if view.order > after.order or view.gone > after.gone else None

    def _take(self, view: PodView) -> None:
        known = self._views.get(view.name)
        if known is not None and known.order >= view.order:
            return
        ended = self._ends.get(view.name)
        if ended is not None:
            if (ended.uid, ended.age) == (view.uid, view.age) or ended.order >= view.order:
                return
            del self._ends[view.name]
        self._views[view.name] = view
        self._wake(view.name)

    def _end(self, view: PodView) -> None:
        known = self._views.get(view.name)
        if known is not None and known.order > view.order:
            return
        self._views.pop(view.name, None)
        if view.name in self._expected:
            self._ends[view.name] = view
            self._wake(view.name)

    def _event(self, event: WatchEvent) -> bool:
        """Take an event over, and return whether it was new."""
        self.counts["event"] += 1
        about = event.object.get("metadata") or {}
        version = str(about.get("resourceVersion"))
        if not version.isdigit():
            msg = f"an event without a resourceVersion: {str(about)[:80]}"
            raise ValueError(msg)
        if int(version) >= self._version:
            self._told = self._clock()
        if int(version) <= self._version:
            self.counts["stale"] += 1
            return False
        if event.type == "DELETED":
            self._end(self._view(event.object).ended())
        elif event.type in ("ADDED", "MODIFIED"):
            self._take(self._view(event.object))
        self._version = int(version)
        return True

    # Reading

    async def _run(self) -> None:
        stale = True
        while True:
            try:
                if stale:
                    await self._list()
                    stale = False
                stale = not await self._watch()
                await asyncio.sleep(self._pace.first)
            except ApiError as error:
                stale = error.fault.remedy is Remedy.RELIST or self._failures + 1 >= _TRIES or stale
                self._fail(error)
                await asyncio.sleep(self._pause(error))

    async def _list(self) -> None:
        found: dict[str, PodView] = {}
        versions: list[int] = []
        doing = Doing("list", PODS, self.namespace)
        self.counts["list"] += 1
        try:
            async with aclosing(self._api.pages(PODS, self.namespace, labels=self._labels)) as pages:
                async for page in pages:
                    found |= {view.name: view for view in map(self._view, page.items)}
                    versions.append(int(page.version))
        except _SHAPE as error:
            raise failed(doing, ValueError(str(error))) from error
        version = min(versions)
        if version < self._version and not self._is_set_back():
            msg = f"an API server answered with a state ({version}) older than one seen before ({self._version})"
            raise failed(doing, ValueError(msg))
        self._older.clear()
        if version < self._version:
            self.counts["set_back"] += 1
            self._age += 1
            found = {name: view._replace(age=self._age) for name, view in found.items()}
        self._replace(found, version)
        self._since = self._error = self._over = None

    def _is_set_back(self) -> bool:
        """Note a list that is older than what is known, and return whether there have been enough for that to be the truth."""
        if not self._older:
            self._failures = 0  # what failed before was no list: this is looked into at once
        self._older.append(self._clock())
        return len(self._older) >= _OLDER_LISTS and self._older[-1] - self._older[0] >= self._pace.older

    def _replace(self, found: dict[str, PodView], version: int) -> None:
        """Take over a whole list. What is not on it has gone, unless it is newer than the list."""
        self._version = version
        for view in list(self._views.values()):
            if view.name not in found and view.order <= (self._age, version):
                self._end(view.ended())
        for view in found.values():
            self._take(view)
        self._wake("")

    async def _watch(self) -> bool:
        """Watch until it ends. False: it told nothing, or only what is old, for so long that what is known has to be listed anew."""
        seconds = self._pace.watch * random.uniform(2 / 3, 4 / 3)  # noqa: S311
        doing = Doing("watch", PODS, self.namespace)
        self.counts["watch"] += 1
        known = self._version
        began = self._told = self._clock()
        events = self._api.watch(
            PODS,
            self.namespace,
            version=str(self._version),
            labels=self._labels,
            seconds=seconds,
            silence_seconds=self._pace.silence,
        )
        try:
            async with aclosing(events) as lines:
                async for event in lines:
                    if self._event(event):
                        self._failures = 0
                    elif self._clock() - self._told >= self._pace.silence:
                        return False
                    self._since = self._error = self._over = None
        except _SHAPE as error:
            raise failed(doing, ValueError(str(error))) from error
        except ApiError as error:
            if error.cause != "api_timeout" or self._clock() - began < self._pace.silence:
                raise
            self.counts["silent"] += 1
            return False
        finally:
            if self._clock() - began >= self._pace.most:
                self._failures = 0
        if self._version == known and self._clock() - began < min(1.0, self._pace.silence / 3):
            raise failed(doing, ConnectionResetError("the server ended the watch at once, with nothing new"))
        return True

    # Failures

    def _fail(self, error: ApiError) -> None:
        self.counts[error.cause] += 1
        self._failures += 1
        self._error = error
        self._since = self._clock() if self._since is None else self._since
        fatal = error.fault.remedy in (Remedy.FATAL, Remedy.RESULT)
        patience = 0.0 if fatal else error.fault.patience_seconds
        if error.fault.remedy is not Remedy.RELIST and self._clock() - self._since >= patience:
            self._over = error
            self._wake_all()

    def _pause(self, error: ApiError) -> float:
        doubled: float = self._pace.first * 2 ** min(self._failures - 1, 20)
        wait = min(doubled, self._pace.most) * random.uniform(0.5, 1.5)  # noqa: S311
        return max(wait, error.retry_after or 0.0)

    # Waiting

    async def _news(self, name: str) -> None:
        """Wait until something is told of a pod; of the empty name: of lists."""
        self._check()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append(future)
        try:
            await future
        finally:
            waiting = self._waiting.get(name, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(name, None)
        self._check()

    def _check(self) -> None:
        if self._over is not None:
            raise self._over
        if self._task is None or self._task.done():
            msg = f"nobody watches the pods of {self.namespace} any more"
            raise SandboxError(msg, cause="reflector_ended")

    def _wake_all(self) -> None:
        for name in list(self._waiting):
            self._wake(name)

    def _wake(self, name: str) -> None:
        for future in self._waiting.pop(name, []):
            if not future.done():
                future.set_result(None)
