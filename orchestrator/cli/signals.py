"""Ctrl-C: once stops in order, twice leaves now. Nothing is lost either way: what is committed is in the store."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.errors import StoppedError

if TYPE_CHECKING:
    from orchestrator.interfaces import TrialPool

_Result = TypeVar("_Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A person at the keyboard, a supervisor, a terminal that goes."""


class Stop:
    """What an operator's stop does at the moment: before there is a pool, there is nothing to end in order."""

    def __init__(self, hint: str) -> None:
        self.asked = False
        self.hint = hint
        """What to do next, for a person who leaves now."""
        self._pool: TrialPool | None = None

    @property
    def in_order(self) -> bool:
        """Whether trials run that can be stopped, frozen and committed."""
        return self._pool is not None

    def use(self, pool: TrialPool) -> None:
        """From now on this pool is stopped."""
        self._pool = pool

    async def __call__(self) -> None:
        """Stop it."""
        if self._pool is not None:
            await self._pool.stop()


async def stoppable(work: Coroutine[Any, Any, _Result], stop: Stop) -> _Result:
    """Run ``work``; the first signal stops its pool and lets it end, the second, or one before there is a pool, cancels it.

    Raises StoppedError with the hint after cancelling.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    stops: list[asyncio.Future[None]] = []

    def interrupted() -> None:
        if stop.in_order and not stop.asked:
            print(
                "\nstopping: running trials are stopped, frozen and kept; again to leave at once",
                file=sys.stderr,
                flush=True,
            )
            stops.append(asyncio.ensure_future(stop()))
        else:
            task.cancel()
        stop.asked = True

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupted)
    try:
        return await task
    except asyncio.CancelledError:
        if stop.asked:
            raise StoppedError(f"stopped at once. {stop.hint}") from None
        raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
