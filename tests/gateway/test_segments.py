"""Running trials can be read from the store: what is due, what arrives, what a store that fails or a killed gateway leaves."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from gateway_world import World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from s3_world import session_of
from test_gateway_process import child

from orchestrator.errors import StoreError
from orchestrator.gateway import segments
from orchestrator.gateway.segments import INTERVAL_SECONDS, MOST_AT_ONCE, SegmentSender, Turns
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.storage.s3 import S3Store
from orchestrator.storage.s3_place import parse_place
from orchestrator.trace.live import LaunchPlace, LiveTrajectory, launches_of

TRIAL = TrialId("task-1", "careful", 1)


class Waiting(RuleBasedStateMachine):
    """Launches come, go and write; each look takes those first that have waited longest."""

    def __init__(self):
        super().__init__()
        self.turns, self.now = Turns(), 100.0
        self.since, self.news = {}, set()

    @rule(names=st.sets(st.sampled_from("abcdefgh")))
    def known(self, names):
        self.turns.keep(names, self.now)
        self.since = {name: self.since.get(name, self.now) for name in names}

    @rule(names=st.sets(st.sampled_from("abcdefgh")))
    def write(self, names):
        self.news |= names

    @rule(seconds=st.floats(0.25, 9))
    def time_goes_on(self, seconds):
        self.now += seconds

    @rule(room=st.integers(-1, 3))
    def look(self, room):
        long_enough = {name for name, since in self.since.items() if self.now - since >= INTERVAL_SECONDS}
        asked = []
        found = self.turns.take(self.now, room, lambda name: bool(asked.append(name)) or name in self.news)
        assert set(found) <= long_enough & self.news
        assert len(found) == min(max(room, 0), len(long_enough & self.news))
        left = long_enough & self.news - set(found)
        assert all(self.since[sent] <= self.since[waits] for sent in found for waits in left)
        self.since |= dict.fromkeys(asked, self.now)
        self.news -= set(found)


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=40, deadline=None)


def test_thousands_of_launches_that_write_without_end_take_turns():
    turns, now = Turns(), 100.0
    names = [str(number) for number in range(5000)]
    turns.keep(names, 0.0)
    asked = 0

    def has_news(_name):
        nonlocal asked
        asked += 1
        return True

    for _ in range(2):
        sent = []
        while len(sent) < 5000:
            sent += turns.take(now, min(7, 5000 - len(sent)), has_news)
            now += 0.01
        assert len(set(sent)) == 5000
        now += INTERVAL_SECONDS
    assert asked == 10_000  # a look costs what it takes, however many wait


class Flaky:
    """A store whose creations fail, or are carried out and fail then."""

    def __init__(self, store):
        self._store = store
        self.mode = "ok"
        self.created = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def create(self, key, data):
        if self.mode == "down":
            raise StoreError("no answer", cause="store_unreachable")
        done = await self._store.create(key, data)
        if self.mode == "unheard":
            raise StoreError("no answer", cause="store_unreachable")
        self.created += 1
        return done


async def sent(sender):
    """Let everything be sent that is due."""
    await asyncio.sleep(0.3)  # what was appended is on the disk
    sender.step()
    while sender._under_way:
        await asyncio.sleep(0.01)


def live(world):
    return LiveTrajectory(world.store, "run-1", TRIAL, LaunchPlace(1, 1))


async def quietly(world, run):
    """Run with a sender whose clock goes on by an hour whenever it is looked at."""
    ticks = iter(range(10**6))
    async with world.running():
        registration = await world.client.register(world.request())
        launch = world.registry.find(registration.launch)
        store = Flaky(world.store)
        sender = SegmentSender(store, world.registry.unsealed, lambda: 3600.0 * next(ticks))
        sender.step()
        return await run(registration, launch, store, sender)


def test_a_running_launch_can_be_read_and_then_its_rest(tmp_path):
    world = World(tmp_path)

    async def run(registration, launch, store, sender):
        reader = live(world)
        assert await reader.more() == []
        await sent(sender)
        first = await reader.more()
        assert await reader.more() == []
        await sent(sender)
        assert store.created == 1  # there was nothing new
        launch.trajectory.append("finding", "gateway", {"kind": "k", "detail": "d"})
        await sent(sender)
        second = await reader.more()
        launch.trajectory.append("finding", "gateway", {"kind": "late", "detail": "d"})
        seal = await world.client.seal(registration.launch)
        third = await reader.rest(seal.trajectory)
        assert await launches_of(world.store, "run-1", TRIAL) == [LaunchPlace(1, 1)]
        return first, second, third

    first, second, third = asyncio.run(quietly(world, run))
    assert [event.type for event in first] == ["launch"]
    assert [event.data.get("kind") for event in second] == ["k"]
    assert [event.type for event in third] == ["finding", "seal"]


@pytest.mark.parametrize("mode", ["down", "unheard"])
def test_a_store_that_fails_delays_segments_and_nothing_else(tmp_path, mode):
    world = World(tmp_path)

    async def run(registration, launch, store, sender):
        store.mode = mode
        await sent(sender)
        launch.trajectory.append("finding", "gateway", {"kind": "k", "detail": "d"})
        await sent(sender)
        store.mode = "ok"
        await sent(sender)
        await sent(sender)
        events = await live(world).more()
        seal = await world.client.seal(registration.launch)
        return events, await live(world).rest(seal.trajectory)

    events, whole = asyncio.run(quietly(world, run))
    assert [event.type for event in events] == ["launch", "finding"]
    assert [event.type for event in whole] == ["launch", "finding", "seal"]


def test_another_trajectory_at_the_same_place_is_left_alone(tmp_path):
    world = World(tmp_path)

    async def run(registration, launch, store, sender):
        await world.store.create(keys.segment("run-1", TRIAL, 1, 1, 0, 0), b"another gateway's\n")
        await sent(sender)
        launch.trajectory.append("finding", "gateway", {"kind": "k", "detail": "d"})
        await sent(sender)
        seal = await world.client.seal(registration.launch)
        return await live(world).rest(seal.trajectory)

    whole = asyncio.run(quietly(world, run))
    assert [event.type for event in whole] == ["launch", "finding", "seal"]
    assert len(asyncio.run(world.store.list(keys.segments("run-1", TRIAL)))) == 1


def test_a_big_trajectory_goes_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MOST_BYTES", 1000)
    world = World(tmp_path)

    async def run(registration, launch, store, sender):
        for number in range(20):
            launch.trajectory.append("finding", "gateway", {"kind": "k", "detail": str(number) * 150})
        for _ in range(10):
            await sent(sender)
        return await live(world).more()

    events = asyncio.run(quietly(world, run))
    assert [event.data["detail"][:1] for event in events[1:]][:9] == list("012345678")
    sizes = [each.size for each in asyncio.run(world.store.stored(keys.segments("run-1", TRIAL)))]
    assert max(sizes) == 1000
    assert len(sizes) > 3


def test_segments_are_never_more_than_a_few_at_a_time(tmp_path):
    world = World(tmp_path)

    async def run(registration, launch, store, sender):
        for sample in range(2, 20):
            await world.client.register(world.request(sample))
        sender.step()
        await asyncio.sleep(0.1)
        sender.step()
        count = len(sender._under_way)
        for _ in range(6):
            await sent(sender)
        return count, store.created

    count, created = asyncio.run(quietly(world, run))
    assert count == MOST_AT_ONCE
    assert created == 19


def test_what_was_read_must_be_the_beginning_of_what_was_sealed(tmp_path):
    world = World(tmp_path)

    async def run(registration, launch, store, sender):
        line = b'{"v":1,"seq":0,"t":1.0,"source":"gateway","type":"launch"}\n'
        await world.store.create(keys.segment("run-1", TRIAL, 1, 1, 0, 0), line)
        reader = live(world)
        await reader.more()
        seal = await world.client.seal(registration.launch)
        with pytest.raises(StoreError, match="does not begin with"):
            await reader.rest(seal.trajectory)

    asyncio.run(quietly(world, run))


def test_a_killed_gateway_leaves_what_it_had_sent(world):
    """The real process with its real pace: what was written down more than some seconds before the kill can be read."""

    async def live():
        here = world()
        async with child(here) as process:
            await here.client.register(here.request())
            reader = LiveTrajectory(here.store, "run-1", TRIAL, LaunchPlace(1, 1))
            events = []
            while not events:
                await asyncio.sleep(0.1)
                events = await reader.more()
            process.kill()
            await process.wait()
            again = LiveTrajectory(here.store, "run-1", TRIAL, LaunchPlace(1, 1))
            return events, await again.more()

    events, again = asyncio.run(live())
    assert [event.type for event in again] == ["launch"]
    assert events == again


def test_a_gateway_that_ends_sends_what_its_launches_did_last(tmp_path):
    world = World(tmp_path)

    async def run():
        async with world.running():
            for sample in range(1, 30):
                registration = await world.client.register(world.request(sample))
                world.registry.find(registration.launch).trajectory.append("finding", "gateway", {"kind": "last"})
        places = [await launches_of(world.store, "run-1", TrialId("task-1", "careful", n)) for n in range(1, 30)]
        return places, await live(world).more()

    places, events = asyncio.run(run())
    assert places == [[LaunchPlace(1, 1)]] * 29
    assert [event.type for event in events] == ["launch", "finding"]


def test_on_s3_the_gateway_may_write_and_a_reader_read(tmp_path, seaweed):
    """With the rights that the identities have on a cluster, and over the start of an object that is there already."""
    place = parse_place(seaweed.shared_url)
    world = World(tmp_path)
    run = f"run-{uuid.uuid4().hex[:8]}"

    async def live():
        written, read = S3Store(place, session=session_of("gateway")), S3Store(place, session=session_of("reader"))
        ticks = iter(range(10**6))
        async with world.running():
            launch = world.registry.find((await world.client.register(world.request(run=run))).launch)
            sender = SegmentSender(written, world.registry.unsealed, lambda: 3600.0 * next(ticks))
            sender.step()
            await sent(sender)
            launch.trajectory.append("finding", "gateway", {"kind": "k", "detail": "d" * 10_000})
            await sent(sender)
        (found,) = await launches_of(read, run, TRIAL)
        return await LiveTrajectory(read, run, TRIAL, found).more()

    assert [event.type for event in asyncio.run(live())] == ["launch", "finding"]
