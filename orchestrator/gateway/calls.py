"""One model call: its place at the provider, attempts, pauses. Everything but the attempt that succeeds is waiting, not work."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.gateway.clock import WorkingClock, waiting
from orchestrator.gateway.limiter import LONGEST_PAUSE, Limiter
from orchestrator.gateway.provider import MOST_TIMED_OUT, TIMED_OUT, Provider, ProviderError

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Route:
    """Where the calls to one model go."""

    model: str
    """``provider/name``."""
    provider: Provider
    limiter: Limiter
    """Shared by all launches that use the provider."""

    @property
    def name(self) -> str:
        """The provider's own name of the model."""
        return self.model.partition("/")[2]


@dataclass(frozen=True)
class Trying:
    """For whom attempts are made, and who hears of them."""

    owner: Hashable
    """Whose turn at the provider it is: the launch."""
    clock: WorkingClock
    failed: Callable[[int, ProviderError, bool], None] = lambda _attempt, _error, _is_last: None
    """Hears of each attempt that failed, and whether it was the last one."""
    begun: Callable[[], bool] = lambda: False
    """Whether the agent has seen something of the answer: there is no other attempt then."""


@dataclass
class Timing:
    """Of one call, in seconds."""

    waited_s: float = 0.0
    """For a place, in pauses, and in attempts that failed."""
    seconds: float = 0.0
    """Of the last attempt."""
    is_whole: bool = False
    """The attempt under way asks for a whole answer, of which nothing tells a long one from none; a stream does."""
    lost: Lost | None = None
    """The attempt for a whole answer that did not come in time."""

    @property
    def worked_s(self) -> float:
        """Of the attempt that was lost, what was work."""
        return self.lost.seconds if self.lost is not None and self.lost.is_work else 0.0

    def found_work(self, clock: WorkingClock) -> None:
        """Count the attempt that was lost as work: the answer takes as long, which is the agent's choice."""
        if self.lost is not None and not self.lost.is_work:
            clock.was_work(self.lost.number)
            self.waited_s -= self.lost.seconds
            self.lost = replace(self.lost, is_work=True)


@dataclass(frozen=True)
class Lost:
    """An attempt for a whole answer that did not come in time."""

    number: int
    """Of its doubtful wait."""
    seconds: float
    is_work: bool = False
    """Its provider has not hung: the answer is that long."""


async def with_retries(
    route: Route, trying: Trying, timing: Timing, attempt: Callable[[int], Awaitable[Answer]]
) -> Answer:
    """Return what an attempt returns, which is given its number, from 0. Raises the last ProviderError."""
    policy, timed_out = route.provider.retry, 0
    came = time.monotonic()
    for number in range(policy.attempts):
        place = route.limiter.take_free()
        if place is None:
            with waiting(trying.clock, time.monotonic):
                place = await route.limiter.acquire(trying.owner)
        with place:
            began = time.monotonic()
            timing.waited_s = began - came - timing.worked_s
            try:
                answer = await attempt(number)
            except ProviderError as error:
                timed_out += error.code == TIMED_OUT
                is_last = (
                    not error.retryable
                    or trying.begun()
                    or number + 1 == policy.attempts
                    or timed_out == MOST_TIMED_OUT
                )
                trying.failed(number, error, is_last)
                if error.overload:
                    place.overloaded(error.retry_after_s)
                if error.ours and not trying.begun():
                    _wait(trying.clock, timing, began, is_lost=error.code == TIMED_OUT and timing.is_whole)
                if is_last:
                    raise
                pause = _pause(policy.backoff_seconds, number, error)
            else:
                place.fine()
                return answer
            finally:
                timing.seconds = time.monotonic() - began
        with waiting(trying.clock, time.monotonic):
            await asyncio.sleep(pause)
    msg = "a provider must allow one attempt"
    raise AssertionError(msg)


def _wait(clock: WorkingClock, timing: Timing, began: float, *, is_lost: bool) -> None:
    now = time.monotonic()
    if is_lost:
        timing.lost = Lost(clock.doubt(began, now), now - began)
    else:
        clock.waited(began, now)


async def once(route: Route, trying: Trying, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return what one attempt returns at a question that is no model call. Raises ProviderError.

    Providers limit such questions apart, so what they say to too many of them changes nothing for the calls of all.
    """
    with waiting(trying.clock, time.monotonic):
        place = await route.limiter.acquire(trying.owner)
    with place:
        return await attempt()


def _pause(backoff_s: float, attempt: int, error: ProviderError) -> float:
    """Return the seconds to pause: what the provider asked for, else doubling, spread so that launches do not march in step."""
    spread = 0.5 + hashlib.sha256(f"{time.monotonic_ns()}".encode()).digest()[0] / 255
    asked = error.retry_after_s
    return min(LONGEST_PAUSE, asked if asked is not None else backoff_s * 2**attempt * spread)
