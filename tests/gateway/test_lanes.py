"""Whoever opens connections without end waits behind itself."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gateway import lanes
from orchestrator.gateway.lanes import WAITING, Lanes, Pacer, Rate

PER_SECOND, BURST = 200.0, 150
RATE = Rate(PER_SECOND, BURST)


class Connection:
    def __init__(self, name):
        self.name = name
        self.closed = False

    def close(self):
        self.closed = True


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def served(waiting, count):
    """Return the names of the next connections, as far as their turn is now."""

    names = []
    for _ in range(count):
        peer, delay = waiting._turn()
        if delay != 0:
            break
        names.append(waiting._take(peer).name)
    return names


def test_each_address_has_its_turn_and_the_newest_is_served_first():
    waiting = Lanes(RATE, Clock())
    for number in range(3):
        waiting.put("flood", Connection(f"flood {number}"))
    waiting.put("other", Connection("other"))
    assert served(waiting, 9) == ["flood 2", "other", "flood 1", "flood 0"]


def test_of_too_many_that_wait_the_oldest_is_closed():
    waiting = Lanes(RATE, Clock())
    flood = [Connection(number) for number in range(WAITING + 5)]
    for each in flood:
        waiting.put("flood", each)
    assert [each.name for each in flood if each.closed] == list(range(5))
    waiting.close()
    assert all(each.closed for each in flood)


def test_an_address_has_its_rate_and_the_others_do_not_wait_for_it():
    clock = Clock()
    waiting = Lanes(RATE, clock)
    got = 0
    for _ in range(2 * BURST):
        waiting.put("flood", Connection("flood"))
        got += len(served(waiting, 1))
    assert BURST <= got <= BURST + 2
    waiting.put("other", Connection("other"))
    assert served(waiting, 9) == ["other"]
    clock.now += 10 / PER_SECOND
    assert 9 <= len(served(waiting, 99)) <= 11


def test_what_comes_faster_than_its_rate_waits_and_nobody_else():
    clock = Clock()
    pacer = Pacer(RATE, clock)
    for _ in range(BURST):
        assert pacer.delay("flood") <= 0
        pacer.count("flood")
    pacer.count("flood")
    assert 0 < pacer.delay("flood") <= 1.1 / PER_SECOND
    assert pacer.delay("other") <= 0
    clock.now += BURST / PER_SECOND
    assert pacer.delay("flood") <= 0


def test_where_addresses_are_hidden_the_first_comes_first():
    waiting = Lanes(None, Clock())
    for number in range(2 * BURST):
        waiting.put(None, Connection(number))
    assert served(waiting, 9 * BURST) == list(range(2 * BURST))


def test_rates_of_addresses_that_are_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr(lanes, "_REMEMBERED", 10)
    clock = Clock()
    waiting = Lanes(RATE, clock)
    for number in range(100):
        waiting.put(str(number), Connection(number))
        assert served(waiting, 1) == [number]
        clock.now += 1
    assert len(waiting._pacer._due) <= 11


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_no_connection_is_lost_or_given_twice(steps):
    waiting = Lanes(RATE, Clock())
    put, got = [], []
    for number, (peer, take) in enumerate(steps):
        waiting.put(peer, Connection(number))
        put.append(number)
        if take:
            got += served(waiting, 1)
    got += served(waiting, len(steps) + 1)
    assert sorted(got) == put


def test_whoever_waits_is_woken_by_a_connection_and_by_the_rate():
    async def live():
        waiting = Lanes(RATE)
        asyncio.get_running_loop().call_later(0.01, waiting.put, "a", Connection("late"))
        names = [(await waiting.next()).name]
        for _ in range(BURST + 1):
            waiting.put("a", Connection("more"))
            names.append((await waiting.next()).name)
        return names

    assert asyncio.run(live()) == ["late"] + ["more"] * (BURST + 1)
