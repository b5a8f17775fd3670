"""Listeners that the gateway can reach and no pod may: while they are known alive, a pod that cannot reach them proves its policy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from orchestrator.gateway.resolve import resolve

PERIOD_SECONDS = 1.0
ALIVE_SECONDS = 2.0
"""How long a listener counts as alive after it was reached."""


class CanaryWatch:
    """Tries each canary once a second."""

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
        address: str | None = None
        while True:
            try:
                async with asyncio.timeout(PERIOD_SECONDS):
                    address = address or await resolve(target)
                    host, _, port = address.rpartition(":")
                    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                    self._seen[target] = address, time.monotonic()
                    writer.close()
            except OSError:  # it may have moved; TimeoutError is one of these
                address = None
            await asyncio.sleep(PERIOD_SECONDS)
