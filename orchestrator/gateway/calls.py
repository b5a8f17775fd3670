"""One model call: its place at the provider, attempts, pauses. Everything but the attempt that succeeds is waiting, not work."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, field
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
    is_silence: bool = False
    """What is too late was silent: only a stream tells a long answer from none."""
    hung: list[tuple[float, float]] = field(default_factory=list)
    """When attempts were waited for whose answers did not come in time."""

    def in_vain(self, took_s: float) -> list[tuple[float, float]]:
        """Return those of ``hung`` that were waiting, where the answer took so long in the end.

        One that takes as long as was waited for it is a long one, and an agent may ask for it: its provider has not hung.
        """
        return [(begin, end) for begin, end in self.hung if self.is_silence or took_s < end - begin]

    def answered(self, took_s: float) -> None:
        """Note that the answer has come, after so long."""
        self.seconds = took_s
        waited = set(self.in_vain(took_s))
        self.waited_s -= sum(end - begin for begin, end in self.hung if (begin, end) not in waited)


async def with_retries(
    route: Route, trying: Trying, timing: Timing, attempt: Callable[[int], Awaitable[Answer]]
) -> Answer:
    """Return what an attempt returns, which is given its number, from 0. Raises the last ProviderError."""
    policy = route.provider.retry
    came = time.monotonic()
    hung = timing.hung
    for number in range(policy.attempts):
        place = route.limiter.take_free()
        if place is None:
            with waiting(trying.clock, time.monotonic):
                place = await route.limiter.acquire(trying.owner)
        with place:
            began = time.monotonic()
            timing.waited_s = began - came
            try:
                answer = await attempt(number)
            except ProviderError as error:
                hung += [(began, time.monotonic())] if error.code == TIMED_OUT else []
                is_last = (
                    not error.retryable
                    or trying.begun()
                    or number + 1 == policy.attempts
                    or len(hung) == MOST_TIMED_OUT
                )
                trying.failed(number, error, is_last)
                if error.overload:
                    place.overloaded(error.retry_after_s)
                if error.ours and not trying.begun() and error.code != TIMED_OUT:
                    trying.clock.waited(began, time.monotonic())
                if is_last:
                    _wait(trying.clock, hung)
                    raise
                pause = _pause(policy.backoff_seconds, number, error)
            else:
                place.fine()
                _wait(trying.clock, timing.in_vain(time.monotonic() - began))
                return answer
            finally:
                timing.seconds = time.monotonic() - began
        with waiting(trying.clock, time.monotonic):
            await asyncio.sleep(pause)
    msg = "a provider must allow one attempt"
    raise AssertionError(msg)


def _wait(clock: WorkingClock, spans: Iterable[tuple[float, float]]) -> None:
    for begin, end in spans:
        clock.waited(begin, end)


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
