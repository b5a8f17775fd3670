"""The driver's side of ``news``: one question to a gateway is under way for all launches of a run that are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

from orchestrator.gateway.line import POLL_SECONDS, Line
from orchestrator.gateway.wire import News, StopWord


class Heard(NamedTuple):
    """What was heard of a launch."""

    stopped: StopWord | None
    sealed: bool
    delivered: bool


class Feed:
    """News of one run from one gateway. Nothing is asked while nobody waits."""

    def __init__(self, line: Line, run: str, epoch: int) -> None:
        self._line = line
        self._path = f"/admin/runs/{quote(run, safe='')}/news"
        self._epoch = epoch
        self._instance = ""
        """Process of the gateway that was heard last; empty before the first answer."""
        self._past: set[str] = set()
        """Those before it."""
        self._asked = self._answered = 0
        """Questions, and the number of the last one that was answered."""
        self._after = 0
        self._heard: dict[str, Heard] = {}
        self._breaks = 0
        """How often not all could be told that happened."""
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def until(self, launch: str, instance: str, enough: Callable[[Heard], bool]) -> Heard | None:
        """Wait until enough is heard of a launch that a process of the gateway has registered, and return it.

        None: the process is another one, or has forgotten what happened: that launch must be asked about by itself. Raises GatewayError,
        StoreError and LeaseLostError.
        """
        came, breaks = self._asked, self._breaks
        while instance not in self._past and breaks == self._breaks:
            if self._instance == instance:
                heard = self._heard.get(launch)
                if heard is not None and enough(heard):
                    return heard
            elif self._answered > came:  # asked since then, and it is another one
                break
            await self._more(launch)
        return None

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _more(self, launch: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(launch, set()).add(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())
        try:
            await future
        finally:
            same = self._waiting.get(launch)
            if same is not None:
                same.discard(future)
                if not same:
                    del self._waiting[launch]

    async def _listen(self) -> None:
        try:
            while self._waiting:
                query = {"epoch": str(self._epoch), "instance": self._instance, "after": str(self._after)}
                self._asked += 1
                self._take(await self._line.ask("GET", self._path, News, query=query, seconds=POLL_SECONDS))
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            for launch in list(self._waiting):
                self._wake(launch, error)

    def _take(self, news: News) -> None:
        self._answered = self._asked
        if news.instance != self._instance:
            self._past |= {self._instance} - {""}
            self._heard.clear()
        self._breaks += not news.whole
        self._instance, self._after = news.instance, news.last
        for each in news.launches:
            self._heard[each.launch] = Heard(each.stopped, each.sealed, each.delivered)
        for launch in list(self._waiting) if news.anew else [each.launch for each in news.launches]:
            self._wake(launch)

    def _wake(self, launch: str, error: Exception | None = None) -> None:
        for future in self._waiting.pop(launch, ()):
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
