"""Puts what trials have done so far into the store every few seconds, so that they can be read from any machine while they run.

A segment is a range of the trajectory's bytes: all segments of a launch, one after the other, are the beginning of its file. They are a
copy that comes early. What counts is the whole file, which goes to the store at the seal; so a store that fails delays segments and nothing
else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.gateway.launch import Launch
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
"""Least time between two segments of a launch, and before its first: most short trials never have one."""
MOST_BYTES = 4 << 20
"""Largest segment; what is more waits for the next."""
MOST_AT_ONCE = 8
"""Segments on their way at one time, of all launches."""
PAUSE_SECONDS = 0.25
"""Between two looks at what there is to send. With ``MOST_AT_ONCE`` it bounds what a process sends: 32 segments a second."""
LAST_SECONDS = 3.0
"""How long a process that ends goes on with what its launches did last."""
_ON_DISK_SECONDS = 0.1
"""After so long what was written down is on the disk."""
_LONGEST_PAUSE = 30.0
"""The longest pause after failures of the store, each twice the one before."""


class Turns:
    """Whose turn it is among thousands: those first that have waited longest. Looking costs what is taken, not all that there are."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        """When each had its last turn, in seconds of any one clock; the longest ago first."""

    def keep(self, names: Collection[str], now: float) -> None:
        """Know these and no others. Who is new waits from now on."""
        for name in self._since.keys() - names:
            del self._since[name]
        for name in names:
            self._since.setdefault(name, now)

    def take(self, now: float, room: int, has_news: Callable[[str], bool]) -> list[str]:
        """Return at most ``room`` of those with news that have waited long enough. They, and those without news, wait behind all others."""
        found: list[str] = []
        asked: list[str] = []
        for name, since in self._since.items():
            if len(found) >= room or now - since < INTERVAL_SECONDS:
                break
            asked.append(name)
            if has_news(name):
                found.append(name)
        for name in asked:
            del self._since[name]
            self._since[name] = now
        return found


@dataclass
class _Progress:
    """What was sent of one launch."""

    number: int = 0
    """Number of the next segment."""
    sent: int = 0
    size: int = 0
    """Size of the next segment once it was tried: its key may exist already, and then with these bytes."""
    given_up: bool = False


_NOTHING_SENT = _Progress()


class SegmentSender:
    """Sends the segments of all launches of this process."""

    def __init__(
        self,
        store: ObjectStore,
        launches: Callable[[], Sequence[Launch]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``launches`` returns those that are not sealed; ``clock`` seconds."""
        self._clock = clock
        self._store = store
        self._launches = launches
        self._turns = Turns()
        self._progress: dict[str, _Progress] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._pause = PAUSE_SECONDS

    async def run(self) -> None:
        """Send until cancelled, and then for a moment what is left. Nothing is raised."""
        try:
            while True:
                await asyncio.sleep(self._pause)
                self.step()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._send_all()
            for task in self._under_way.values():
                task.cancel()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _send_all(self) -> None:
        """Send what launches did at the end that are lost with this process, unless the store fails."""
        launches = {launch.id: launch for launch in self._launches()}
        if launches:
            await asyncio.sleep(_ON_DISK_SECONDS)
        while self._pause == PAUSE_SECONDS:
            left = [launch for launch in launches.values() if self._has_news(launch)]
            for launch in left[: MOST_AT_ONCE - len(self._under_way)]:
                self._begin(launch)
            if not self._under_way:
                return
            await asyncio.wait(list(self._under_way.values()), return_when=asyncio.FIRST_COMPLETED)

    def step(self) -> None:
        """Begin to send what is due."""
        now = self._clock()
        launches = {launch.id: launch for launch in self._launches()}
        self._turns.keep(launches.keys(), now)
        for name in self._progress.keys() - launches.keys():
            del self._progress[name]
        for name in self._turns.take(
            now, MOST_AT_ONCE - len(self._under_way), lambda name: self._has_news(launches[name])
        ):
            self._begin(launches[name])

    def _begin(self, launch: Launch) -> None:
        progress = self._progress.setdefault(launch.id, _Progress())
        self._under_way[launch.id] = asyncio.create_task(self._send(launch, progress))

    def _has_news(self, launch: Launch) -> bool:
        progress, written = self._progress.get(launch.id, _NOTHING_SENT), launch.trajectory.written()
        if written is None or progress.given_up or launch.id in self._under_way:
            return False
        return written.size > progress.sent

    async def _send(self, launch: Launch, progress: _Progress) -> None:
        try:
            await self._send_next(launch, progress)
            self._went_well()
        except StoreError as error:
            self._failed(error)
        except Exception:  # a fault of ours must not end the sending of all others
            log.exception("launch %s: its trajectory cannot be sent before its end", launch.id)
            progress.given_up = True
        finally:
            self._under_way.pop(launch.id, None)

    async def _send_next(self, launch: Launch, progress: _Progress) -> None:
        written = launch.trajectory.written()
        if written is None:
            return
        progress.size = progress.size or min(MOST_BYTES, written.size - progress.sent)
        data = await asyncio.to_thread(_read, written.path, progress.sent, progress.size)
        if len(data) < progress.size:  # sealed meanwhile, and gone from here
            return
        body = launch.body
        key = keys.segment(body.run, body.trial_id, body.launch, body.epoch, progress.number, progress.sent)
        size = progress.size
        if not await self._store.create(key, data):
            there = await self._store.get(key)
            size = len(there)  # an earlier process may have cut it at another place
            if not size or there != await asyncio.to_thread(_read, written.path, progress.sent, size):
                log.error(
                    "launch %s: another trajectory is at %s, so this one is in the store at its end only",
                    launch.id,
                    key,
                )
                progress.given_up = True
                return
        progress.number, progress.sent, progress.size = progress.number + 1, progress.sent + size, 0

    def _failed(self, error: StoreError) -> None:
        if self._pause == PAUSE_SECONDS:
            log.warning("running trials cannot be read from the store for now: %s", error)
        self._pause = min(_LONGEST_PAUSE, max(1.0, 2 * self._pause))

    def _went_well(self) -> None:
        if self._pause != PAUSE_SECONDS:
            log.info("running trials can be read from the store again")
        self._pause = PAUSE_SECONDS


def _read(path: Path, offset: int, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)
    except FileNotFoundError:
        return b""
