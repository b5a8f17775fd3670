"""The limiter keeps to its ceiling, halves when pushed, recovers, and lets nobody overtake. Time is played."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.sandbox.kubernetes.limiter import Limiter


class Clock:
    """Time that goes on when everybody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self.now + seconds, self._count, future))
        await future

    async def run(self, until: float) -> None:
        """Let time go on to ``until``."""
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            if not self._sleepers or self._sleepers[0][0] > until:
                self.now = max(self.now, until)
                return
            when, _, future = heapq.heappop(self._sleepers)
            self.now = max(self.now, when)
            if not future.done():
                future.set_result(None)


def play(use: Callable[[Clock, Limiter], Awaitable[None]], ceiling: float = 10.0, floor: float = 0.5) -> None:
    async def scenario() -> None:
        clock = Clock()
        await use(clock, Limiter(ceiling, floor=floor, clock=clock, sleep=clock.sleep))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(scenario())


def takers(limiter: Limiter, clock: Clock, count: int) -> list[tuple[int, float]]:
    turns: list[tuple[int, float]] = []

    async def take(number: int) -> None:
        await limiter.turn()
        turns.append((number, clock()))

    limiter.tasks = [asyncio.ensure_future(take(number)) for number in range(count)]  # type: ignore[attr-defined]
    return turns


def test_turns_come_in_order_and_never_faster_than_the_ceiling() -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        turns = takers(limiter, clock, 50)
        await clock.run(102)
        assert limiter.waiting == 50 - len(turns)
        await clock.run(110)
        assert [number for number, _ in turns] == list(range(50))
        assert 4.7 <= turns[-1][1] - turns[0][1] <= 5.0
        assert limiter.waiting == 0

    play(use)


def test_pushing_back_halves_once_for_all_that_was_on_its_way() -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        for _ in range(500):
            limiter.pushed()
        assert limiter.rate == 5
        await clock.run(101.5)
        limiter.pushed()
        assert limiter.rate == 2.5
        for second in range(30):
            await clock.run(103 + 2 * second)
            limiter.pushed()
        assert limiter.rate == 0.5

    play(use)


def test_each_healthy_second_gives_one_more_up_to_the_ceiling() -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        limiter.pushed()
        rates = []
        for tenth in range(80):
            await clock.run(100 + tenth / 10)
            limiter.healthy(0.05)
            rates.append(limiter.rate)
        assert rates[0] == 5
        assert 9 <= rates[55] <= 10
        assert rates[-1] == 10
        assert all(later - earlier in (0, 1) for earlier, later in itertools.pairwise(rates))

    play(use)


def test_a_second_in_which_most_answers_are_slow_counts_as_pushing_back() -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        for number in range(10):
            limiter.healthy(3.0 if number % 3 else 0.1)
        await clock.run(101.1)
        limiter.healthy(0.1)
        assert limiter.rate == 5
        for number in range(10):
            limiter.healthy(0.1 if number % 3 else 3.0)
        await clock.run(102.3)
        limiter.healthy(0.1)
        assert limiter.rate == 6

    play(use)


def test_what_was_sent_before_the_rate_was_halved_does_not_halve_it_again() -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        limiter.pushed()
        await clock.run(105)
        limiter.pushed(seconds=20)
        for _ in range(50):
            limiter.healthy(30)
        await clock.run(110)
        limiter.healthy(0.1)
        assert limiter.rate >= 5
        limiter.pushed(seconds=3)
        assert limiter.rate < 5

    play(use)


def test_retry_after_silences_everybody() -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        turns = takers(limiter, clock, 5)
        await clock.run(100.05)
        before = len(turns)
        limiter.pushed(7)
        await clock.run(107)
        assert len(turns) <= before + 1  # one had its turn already
        await clock.run(110)
        assert len(turns) == 5

    play(use)


def test_who_gives_up_waiting_holds_up_nobody() -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        turns = takers(limiter, clock, 6)
        await clock.run(100.05)
        limiter.tasks[3].cancel()  # type: ignore[attr-defined]
        await clock.run(103)
        assert [number for number, _ in turns] == [0, 1, 2, 4, 5]

    play(use)


@pytest.mark.parametrize(("ceiling", "floor"), [(0, 0.5), (5, 0), (-1, 0.5)])
def test_limits_that_make_no_sense(ceiling: float, floor: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Limiter(ceiling, floor=floor)


def test_a_ceiling_below_the_floor_holds() -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        limiter.pushed()
        assert limiter.rate == 0.2
        turns = takers(limiter, clock, 3)
        await clock.run(109)
        assert len(turns) == 2

    play(use, ceiling=0.2)


words = st.one_of(
    st.tuples(st.just("healthy"), st.floats(0, 5)),
    st.tuples(st.just("pushed"), st.floats(0, 3)),
    st.tuples(st.just("wait"), st.floats(0, 3)),
)


@given(st.lists(words, max_size=30), st.floats(1, 50))
def test_the_rate_stays_within_its_bounds_and_turns_keep_to_it(said: list[tuple[str, float]], ceiling: float) -> None:
    async def use(clock: Clock, limiter: Limiter) -> None:
        turns = takers(limiter, clock, 40)
        for word, value in said:
            if word == "wait":
                await clock.run(clock() + value)
            elif word == "healthy":
                limiter.healthy(value)
            else:
                limiter.pushed(value or None)
            assert 0.5 <= limiter.rate <= ceiling
        await clock.run(clock() + 200)
        assert [number for number, _ in turns] == list(range(40))
        times = [when for _, when in turns]
        spans = [later - earlier for earlier, later in zip(times, times[10:], strict=False)]
        assert all(span >= 10 / ceiling - 0.11 for span in spans)

    play(use, ceiling)
