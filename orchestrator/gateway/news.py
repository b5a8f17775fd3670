"""What happened to the launches of a run, in order, for its driver, who waits for all of them with one question at a time."""

from __future__ import annotations

import asyncio

SOON_SECONDS = 1.0


class RunNews:
    """Launches by the number of the last thing that happened to each."""

    def __init__(self) -> None:
        self.last = 0
        """Number of the last thing that happened."""
        self._numbers: dict[str, int] = {}
        self._forgotten = 0
        self._more = asyncio.Event()

    def note(self, launch: str, *, soon: bool = False) -> None:
        """Something happened to a launch. Whoever waits hears of it now; ``soon``: with what follows on it, unless that takes too long."""
        self._numbers.pop(launch, None)
        self.last += 1
        self._numbers[launch] = self.last
        if soon:
            asyncio.get_running_loop().call_later(SOON_SECONDS, self._tell, launch, self.last)
        else:
            self.wake()

    def wake(self) -> None:
        """Let whoever waits look now."""
        self._more.set()
        self._more = asyncio.Event()

    def forget(self, launch: str) -> None:
        """The launch is not known here any more."""
        self._forgotten = max(self._forgotten, self._numbers.pop(launch, 0))

    def is_whole_since(self, number: int) -> bool:
        """Return whether everything since a number can be told."""
        return self._forgotten <= number <= self.last

    def since(self, number: int, most: int) -> list[tuple[str, int]]:
        """Return the launches to which something happened after a number, with theirs, the oldest first, at most so many."""
        found = []
        for launch, each in reversed(self._numbers.items()):
            if each <= number:
                break
            found.append((launch, each))
        return found[: -most - 1 : -1]

    def _tell(self, launch: str, number: int) -> None:
        if self._numbers.get(launch) == number:
            self.wake()

    async def more(self, seconds: float) -> None:
        """Wait until somebody is to look, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._more.wait()
        except TimeoutError:
            return
