"""Ctrl-C: once stops in order, twice leaves now. Nothing is lost either way: what is committed is in the store.

Where sandboxes outlive this process, a request to end (SIGTERM) lets go of the run instead: another driver goes on with what runs.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from orchestrator.driver.process import this_person
from orchestrator.errors import LetGoError, StoppedError

if TYPE_CHECKING:
    from orchestrator.records.lease import Wish

_Result = TypeVar("_Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A person at the keyboard, a supervisor, a terminal that goes."""


class Stoppable(Protocol):
    """What a stop ends in order: a pool of trials, or a run that is driven elsewhere."""

    async def stop(self) -> None:
        """Start no more trials; those that run are stopped, frozen and committed."""
        ...


class Stop:
    """What an operator's stop does at the moment: before there is a pool, there is nothing to end in order. Implements Stopper."""

    def __init__(self, hint: str) -> None:
        self.asked_by: str | None = None
        """Who asked for it first; None as long as nobody did."""
        self.hint = hint
        """What to do next, for a person who leaves now."""
        self.left = "stopped at once."
        """What a second interrupt did."""
        self.outlived = False
        """Whether what runs goes on when this process ends."""
        self.lets_go = False
        """Whether this process was told to end, and does, while what runs goes on."""
        self._kept = False
        """Whether the stop is one that the next driver heeds as well."""
        self._pool: Stoppable | None = None

    @property
    def may_let_go(self) -> bool:
        """Whether the next driver can do what is left to do."""
        return self.outlived and (self.asked_by is None or self._kept)

    @property
    def can_end_in_order(self) -> bool:
        """Whether trials run that can be stopped, frozen and committed."""
        return self._pool is not None

    def use(self, pool: Stoppable) -> None:
        """From now on this pool is stopped."""
        self._pool = pool

    async def requested(self, wish: Wish) -> None:
        """Stop it, as somebody asks from elsewhere. An interrupt that came first counts."""
        self._kept = True
        if self.asked_by is None:
            self.asked_by = wish.by
            from orchestrator.report.text import clean

            await self.in_order(f"stopping, asked by {clean(wish.by, 80)}", "Ctrl-C to leave at once")

    async def in_order(self, why: str, then: str) -> None:
        """Start no more trials; those that run are stopped, frozen and committed."""
        print(f"\n{why}: running trials are stopped, frozen and kept; {then}", file=sys.stderr, flush=True)
        if self._pool is not None:
            await self._pool.stop()


async def stoppable(work: Coroutine[Any, Any, _Result], stop: Stop) -> _Result:
    """Run ``work``; the first signal stops its pool and lets it end, the second, or one before there is a pool, cancels it.

    Raises StoppedError with the hint after cancelling, and LetGoError where what runs goes on without this process.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    stops: list[asyncio.Future[None]] = []

    def interrupted(number: signal.Signals) -> None:
        if stop.may_let_go and number != signal.SIGINT:
            stop.lets_go = True
            task.cancel()
            return
        if stop.can_end_in_order and stop.asked_by is None:
            stops.append(asyncio.ensure_future(stop.in_order("stopping", "again to leave at once")))
        else:
            task.cancel()
        stop.asked_by = stop.asked_by or this_person()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupted, number)
    try:
        return await task
    except asyncio.CancelledError:
        if stop.lets_go:
            raise LetGoError(f"told to end: let go of the run, and what runs goes on. {stop.hint}") from None
        if stop.asked_by is not None:
            raise StoppedError(f"{stop.left} {stop.hint}") from None
        raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
