"""One model call: the queue of its provider, attempts, pauses. Everything but the attempt that succeeds is waiting, not work."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.gateway.clock import WorkingClock, waiting
from orchestrator.gateway.provider import ModelCall, Provider, ProviderError

LONGEST_PAUSE = 60.0
"""Seconds; a provider that asks for more is asked again after this."""


@dataclass(frozen=True)
class Route:
    """Where the calls to one model go."""

    model: str
    """``provider/name``."""
    provider: Provider
    queue: asyncio.Semaphore
    """Shared by all launches that use the provider."""

    @property
    def name(self) -> str:
        """The provider's own name of the model."""
        return self.model.partition("/")[2]


async def complete(
    route: Route, body: dict[str, Any], clock: WorkingClock, failed: Callable[[int, ProviderError], None]
) -> dict[str, Any]:
    """Return the provider's answer. ``failed`` hears of each failed attempt. Raises the last ProviderError."""
    policy = route.provider.retry
    for attempt in range(policy.attempts):
        with waiting(clock, time.monotonic):
            await route.queue.acquire()
        began = time.monotonic()
        try:
            return await route.provider.attempt(ModelCall({**body, "model": route.name}, attempt))
        except ProviderError as error:
            failed(attempt, error)
            if error.ours:
                clock.waited(began, time.monotonic())
            if not error.retryable or attempt + 1 == policy.attempts:
                raise
            pause = _pause(policy.backoff_seconds, attempt, error)
        finally:
            route.queue.release()
        with waiting(clock, time.monotonic):
            await asyncio.sleep(pause)
    msg = "a provider must allow one attempt"
    raise AssertionError(msg)


def _pause(backoff_s: float, attempt: int, error: ProviderError) -> float:
    """Return the seconds to pause: what the provider asked for, else doubling, spread so that launches do not march in step."""
    spread = 0.5 + hashlib.sha256(f"{time.monotonic_ns()}".encode()).digest()[0] / 255
    asked = error.retry_after_s
    return min(LONGEST_PAUSE, asked if asked is not None else backoff_s * 2**attempt * spread)
