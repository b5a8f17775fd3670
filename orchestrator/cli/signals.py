"""Ctrl-C: once stops in order, twice leaves now. Nothing is lost either way: what is committed is in the store."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from orchestrator.errors import StoppedError

_Result = TypeVar("_Result")


async def stoppable(work: Coroutine[Any, Any, _Result], stop: Callable[[], Awaitable[None]], hint: str) -> _Result:
    """Run ``work``; the first interrupt calls ``stop`` and lets it end, the second cancels it.

    Raises StoppedError with ``hint`` after a second interrupt.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    interrupts = 0
    stops: list[asyncio.Future[None]] = []

    def interrupted() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            print(
                "\nstopping: running trials are stopped, frozen and kept; again to leave at once",
                file=sys.stderr,
                flush=True,
            )
            stops.append(asyncio.ensure_future(stop()))
        else:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted)
    try:
        return await task
    except asyncio.CancelledError:
        if interrupts:
            raise StoppedError(f"left at once. {hint}") from None
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
