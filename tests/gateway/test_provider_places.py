"""Places at a provider: as many as it bears, in turn, and none while it wants to be left alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gateway.limiter import LONGEST_PAUSE, Limiter, Turns, Window


def grown(window, rounds):
    """Let rounds of calls go well with all places taken."""
    for _ in range(rounds):
        for _ in range(window.places):
            window.fine(window.places)
    return window.places


def test_it_halves_once_for_all_calls_that_were_open_and_again_for_later_ones():
    window = Window(64)
    for _ in range(64):
        window.overloaded(0, 0.0, None)
    assert window.places == 32
    window.overloaded(1, 0.0, None)
    assert window.places == 16


def test_it_grows_by_about_one_a_round_while_all_places_are_used():
    window = Window(64)
    window.overloaded(0, 0.0, None)
    assert 40 <= grown(window, 10) <= 42
    assert grown(window, 100) == 64


def test_places_that_nobody_uses_do_not_grow():
    window = Window(64)
    window.overloaded(0, 0.0, None)
    for _ in range(1000):
        window.fine(31)
    assert window.places == 32


events = st.one_of(
    st.tuples(st.just("fine"), st.integers(0, 200)),
    st.tuples(st.just("overloaded"), st.integers(0, 5), st.one_of(st.none(), st.floats(0, 1e6))),
)


@given(st.integers(1, 200), st.lists(events, max_size=200))
def test_there_is_always_a_place_and_never_more_than_the_ceiling(ceiling, happened):
    window, now = Window(ceiling), 0.0
    for kind, *more in happened:
        before = window.places
        if kind == "fine":
            window.fine(more[0])
            assert before <= window.places <= before + 1
        else:
            window.overloaded(max(0, window.round - more[0]), now, more[1])
            assert window.places >= before // 2
        assert 1 <= window.places <= ceiling
        assert window.resume_at <= now + LONGEST_PAUSE
        now += 1


@given(st.lists(st.integers(0, 5), max_size=60))
def test_owners_are_served_in_turn_and_each_in_its_order(owners):
    turns = Turns()
    for number, owner in enumerate(owners):
        turns.put(owner, (owner, number))
    served = [turns.take() for _ in range(len(turns))]
    assert sorted(served) == sorted((owner, number) for number, owner in enumerate(owners))
    for owner in set(owners):
        own = [number for who, number in served if who == owner]
        assert own == sorted(own)
        # Between two of one owner everybody else who waits has a turn.
        places = [place for place, (who, _) in enumerate(served) if who == owner]
        for first, second in itertools.pairwise(places):
            between = [who for who, _ in served[first + 1 : second]]
            still = {who for who, _ in served[second:]} - {owner}
            assert len(between) == len(set(between))
            assert still <= set(between)
    with pytest.raises(IndexError):
        turns.take()


def test_an_owner_with_many_calls_does_not_keep_another_waiting():
    async def live():
        limiter, order = Limiter(1), []

        async def call(owner):
            with await limiter.acquire(owner):
                order.append(owner)
                await asyncio.sleep(0)

        await asyncio.gather(*(call("greedy") for _ in range(10)), call("modest"))
        return order

    assert asyncio.run(live()).index("modest") <= 2


def test_a_free_place_is_taken_without_waiting_unless_somebody_waits():
    async def live():
        limiter = Limiter(1)
        first = limiter.take_free()
        waits = asyncio.create_task(limiter.acquire("a"))
        await asyncio.sleep(0)
        with first:
            assert limiter.take_free() is None
        second = await waits
        with second:
            second.overloaded(60)
        return limiter.take_free(), limiter.open

    assert asyncio.run(live()) == (None, 0)


def test_nobody_calls_before_the_provider_wants_to_be_asked_again():
    async def live():
        loop = asyncio.get_running_loop()
        limiter = Limiter(8, loop.time)
        with await limiter.acquire("a") as place:
            place.overloaded(0.2)
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for owner in "bcd":
                group.create_task(_hold(limiter, owner))
        return loop.time() - began, limiter.window.places

    seconds, places = asyncio.run(live())
    assert seconds >= 0.19
    assert places == 4


async def _hold(limiter, owner):
    with await limiter.acquire(owner):
        await asyncio.sleep(0)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=40), st.integers(1, 5))
def test_no_place_is_lost_whoever_gives_up(calls, ceiling):
    async def live():
        limiter, most = Limiter(ceiling), 0

        async def call(owner, fails):
            nonlocal most
            with await limiter.acquire(owner) as place:
                most = max(most, limiter.open)
                await asyncio.sleep(0)
                place.overloaded(None) if fails else place.fine()

        tasks = [(asyncio.create_task(call(owner, fails)), leaves) for owner, leaves, fails in calls]
        for steps, (task, leaves) in enumerate(tasks):
            if leaves:
                for _ in range(steps % 3):
                    await asyncio.sleep(0)
                task.cancel()
        for task, _ in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert (limiter.open, limiter.waiting) == (0, 0)
        return most

    assert asyncio.run(live()) <= ceiling
