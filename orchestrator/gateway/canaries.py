"""Listeners that the gateway can reach and no pod may: while they are known alive, a pod that cannot reach them proves its policy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from orchestrator.gateway.resolve import resolve

PERIOD_SECONDS = 0.5
"""Pause between two tries: more than one falls into the time that a listener counts as alive, also on a busy node."""
_RESOLVE_SECONDS = 5.0
_CONNECT_SECONDS = 1.0
_TRIES = 3
"""Failures after which the name is resolved again: the listener may have moved."""
ALIVE_SECONDS = 2.0
"""How long a listener counts as alive after it was reached."""


class CanaryWatch:
    """Tries each canary twice a second."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._targets = targets
        self._seen: dict[str, tuple[str, float]] = {}
        """By target: the address that was reached, and when, by the monotonic clock."""

    def alive(self) -> tuple[str, ...]:
        """Return ``IP:PORT`` of those that were just reached."""
        since = time.monotonic() - ALIVE_SECONDS
        return tuple(sorted(address for address, when in self._seen.values() if when >= since))

    async def watch(self) -> None:
        """Try them all, again and again, until cancelled."""
        await asyncio.gather(*(self._watch(target) for target in self._targets))

    async def _watch(self, target: str) -> None:
        address, failures = "", _TRIES
        while True:
            try:
                if failures >= _TRIES:
                    address = await asyncio.wait_for(resolve(target), _RESOLVE_SECONDS)
                await self._reach(target, address)
                failures = 0
            except OSError:  # TimeoutError is one of these
                failures += 1
            await asyncio.sleep(PERIOD_SECONDS)

    async def _reach(self, target: str, address: str) -> None:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        self._seen[target] = address, time.monotonic()
        writer.close()
