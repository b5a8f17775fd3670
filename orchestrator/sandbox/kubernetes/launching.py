"""A launch whose pod is being made: it may wait for room for hours, and has to be stopped meanwhile like any other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from orchestrator.interfaces import Ending, Frozen
from orchestrator.records.outcome import Exit
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.pod import NOTHING, LeftSandbox, PodSandbox


class Launching:
    """A launch from the moment that its pod is wanted. Implements Sandbox; all but ``stop`` waits until there is one."""

    def __init__(
        self,
        making: Coroutine[Any, Any, PodSandbox | LeftSandbox],
        unwanted: Callable[[], Coroutine[Any, Any, None]],
        *,
        there: bool,
    ) -> None:
        """``making`` creates or adopts the pod; ``unwanted`` has one deleted that may have been made all the same. ``there``: none is
        created, so adopting it takes no time.
        """
        self._making = asyncio.create_task(making)
        self._there = there
        self._unwanted = unwanted
        self._stopped = False

    @property
    def labels(self) -> Mapping[str, str]:
        """What it cannot promise; nothing as long as there is no pod."""
        made = self._made
        return {} if made is None else made.labels

    async def running(self) -> None:
        """Wait until the agent runs, or never will."""
        await asyncio.wait({self._making})
        if (made := self._made) is not None:
            await made.running()

    async def ended(self) -> Ending:
        """Wait until the agent is dead. Raises SandboxError and GatewayError, also for a pod that could not be made."""
        await asyncio.wait({self._making})
        if self._stopped and self._making.cancelled():
            now = time.time()
            return Ending(exit=Exit(), cause="stopped", started=now, ended=now)
        return await self._making.result().ended()

    async def stop(self) -> None:
        """Stop the agent, or do without the pod when there is none yet."""
        if self._there:
            await asyncio.wait({self._making})
        if (made := self._made) is not None:
            await made.stop()
        elif not self._making.done():
            self._stopped = True
            await self._give_up()

    async def freeze(self) -> Frozen:
        """Return what the agent left. Raises as the pod's sandbox does."""
        made = self._made
        return NOTHING if made is None else await made.freeze()

    async def leave(self, *, keep: bool) -> None:
        """Let the pod go, or leave it for the next driver."""
        if not self._making.done():
            await self._give_up()
        made = self._made
        if isinstance(made, PodSandbox):
            await made.leave(keep=keep)
        elif not keep and self._may_be_made():
            await self._unwanted()

    @property
    def _made(self) -> PodSandbox | LeftSandbox | None:
        done = self._making.done() and not self._making.cancelled() and self._making.exception() is None
        return self._making.result() if done else None

    def _may_be_made(self) -> bool:
        """Return whether a create was on its way, or has failed so that nobody knows what it did."""
        if self._making.cancelled():
            return True
        error = self._making.exception()
        return isinstance(error, ApiError) and error.fault.unsure

    async def _give_up(self) -> None:
        self._making.cancel()
        await asyncio.gather(self._making, return_exceptions=True)
