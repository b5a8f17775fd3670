"""One question at a time brings what happened to all launches of a run, whatever becomes of the gateway."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tcp_world import Pod

from orchestrator.errors import OrchestrateError
from orchestrator.gateway.client import GatewayClient
from orchestrator.gateway.feed import Feed
from orchestrator.gateway.news import RunNews
from orchestrator.gateway.wire import LaunchNews, News

MANY = 30


def counted(client: GatewayClient) -> Counter[str]:
    """Count what a client asks its gateway from now on, by the last word of the path."""
    (line,) = client._lines
    asked: Counter[str] = Counter()
    ask = line.ask

    async def counting(method, path, *words, **more):
        asked[f"{method} {path.rpartition('/')[2]}"] += 1
        return await ask(method, path, *words, **more)

    line.ask = counting
    return asked


def test_many_launches_are_waited_for_with_one_question(pods):
    async def live():
        async with pods().running() as here:
            several = [await here.launch(number) for number in range(1, MANY + 1)]
            asked = counted(here.client)
            stops = [asyncio.create_task(here.client.stop_reason(pod.launch)) for pod in several]
            states = [asyncio.create_task(here.client.delivered(pod.launch)) for pod in several]
            await asyncio.sleep(0.2)
            waiting = asked.copy()
            for pod in several:
                await here.client.seal(pod.launch)
                await pod.deliver(exit={"code": 3})
            exits = [(await state).exit.code for state in states]
            causes = [error.cause for error in await asyncio.gather(*stops, return_exceptions=True)]
            return waiting, asked, exits, causes

    waiting, asked, exits, causes = asyncio.run(live())
    assert waiting.total() <= 2
    assert exits == [3] * MANY
    assert causes == ["launch_sealed"] * MANY
    assert asked["GET delivered"] == MANY
    assert asked["GET stop"] == 0


def test_who_waits_while_the_gateway_loses_its_volume_hears_of_it(pods):
    async def live():
        here = pods()
        async with here.running():
            (line,) = here.client._lines
            line._patience_s = 10
            idle, sealed = await here.launch(1), await here.launch(2)
            await here.client.seal(sealed.launch)
            await sealed.deliver(exit={"code": 7})
            ends = [
                asyncio.create_task(call)
                for call in (here.client.stop_reason(idle.launch), here.client.delivered(idle.launch))
            ]
            await asyncio.sleep(0.1)
            here.client.close = _nothing  # it outlives the gateway
        here.lose_volume()
        async with here.running():
            causes = [error.cause for error in await asyncio.gather(*ends, return_exceptions=True)]
            late = await here.client.delivered(sealed.launch)
            fresh = Pod(await here.client.register(here.request(3)))
            await fresh.begin()
            waiting = asyncio.create_task(here.client.delivered(fresh.launch))
            await asyncio.sleep(0.1)
            asked = counted(here.client)
            await here.client.seal(fresh.launch)
            await fresh.deliver(exit={"code": 8})
            ends_with = causes, late.exit.code, (await waiting).exit.code, asked
            del here.client.close
            return ends_with

    causes, late, fresh, asked = asyncio.run(live())
    assert causes == ["gateway_restarted"] * 2
    assert (late, fresh) == (7, 8)
    assert asked["GET delivered"] == 1


async def _nothing() -> None: ...


def test_who_waits_hears_that_another_driver_has_the_run(pods):
    async def live():
        async with pods().running() as here:
            pod = await here.launch()
            waiting = asyncio.create_task(here.client.stop_reason(pod.launch))
            await asyncio.sleep(0.1)
            await here.client.register(here.request(2, epoch=2))
            await here.client.seal_lost("run-1", here.request(1).trial, 1, 2)
            with pytest.raises(OrchestrateError) as caught:
                await waiting
            return caught.value.cause

    assert asyncio.run(live()) == "lease_lost"


@pytest.mark.parametrize("query", ["", "?epoch=1", "?epoch=x&instance=&after=0", "?epoch=1&instance=&after=-"])
def test_a_question_that_does_not_say_since_when_is_refused(pods, query):
    async def live():
        async with pods().running() as here:
            return await here.admin("driver", "GET", f"/admin/runs/run-1/news{query}")

    status, answer = asyncio.run(live())
    assert (status, answer["error"]["type"]) == (400, "invalid_request")


def test_news_are_for_the_driver_alone(pods):
    async def live():
        async with pods().running() as here:
            return [
                (await here.admin(role, "GET", "/admin/runs/r/news?epoch=1&instance=&after=0"))[0]
                for role in ("relay", "reaper")
            ]

    assert asyncio.run(live()) == [401, 401]


@given(
    st.lists(st.tuples(st.sampled_from(["note", "forget", "ask"]), st.integers(0, 5)), max_size=40), st.integers(1, 3)
)
def test_nothing_that_happened_is_missed_and_a_gap_is_told(steps, most):
    async def play():
        news, after, due = RunNews(), 0, set()
        for what, number in steps:
            name = f"launch-{number}"
            if what == "note":
                news.note(name)
                due.add(name)
            elif what == "forget":
                if name in due:
                    assert not news.is_whole_since(after) or name not in dict(news.since(after, 99)) or name in due
                news.forget(name)
                if name in due:
                    assert not news.is_whole_since(after)
            elif not news.is_whole_since(after):
                after, due = news.last, set()
            else:
                told = news.since(after, most)
                assert [number for _, number in told] == sorted(number for _, number in told)
                assert {name for name, _ in news.since(after, 99)} == due
                due -= {name for name, _ in told}
                after = told[-1][1] if told else after

    asyncio.run(play())


class Line:
    """A gateway's line that answers what it is given, in order."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue = asyncio.Queue()
        self.asked: list[dict[str, str]] = []

    async def ask(self, method, path, model, query=None, seconds=0.0):
        self.asked.append(query)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


def told(instance: str, last: int, *launches: str, **more) -> News:
    return News(
        instance=instance, last=last, launches=tuple(LaunchNews(launch=each, sealed=True) for each in launches), **more
    )


def fed(live):
    async def run():
        line = Line()
        feed = Feed(line, "r", 1)
        try:
            return await asyncio.wait_for(live(feed, line), 20)
        finally:
            await feed.close()

    return asyncio.run(run())


def sealed(heard) -> bool:
    return heard.sealed


def test_a_feed_goes_on_where_it_was_and_asks_nothing_while_nobody_waits():
    async def live(feed, line):
        line.answers.put_nowait(told("a", 4, anew=True))
        line.answers.put_nowait(told("a", 5, "x"))
        first = await feed.until("x", "a", sealed)
        again = await feed.until("x", "a", sealed)  # heard before
        waiting = asyncio.create_task(feed.until("y", "a", sealed))
        line.answers.put_nowait(told("a", 6, "y"))
        await waiting
        await asyncio.sleep(0)
        return first, again, line.asked

    first, again, asked = fed(live)
    assert first == again
    assert [(each["instance"], each["after"]) for each in asked] == [("", "0"), ("a", "4"), ("a", "5")]


def test_a_launch_of_a_gateway_that_was_started_since_is_waited_for():
    async def live(feed, line):
        line.answers.put_nowait(told("a", 0, anew=True))
        old = asyncio.create_task(feed.until("old", "a", sealed))
        await asyncio.sleep(0.01)
        new = asyncio.create_task(feed.until("new", "b", sealed))  # registered while the question is under way
        line.answers.put_nowait(told("b", 0, anew=True))
        assert await old is None
        line.answers.put_nowait(told("b", 1, "new"))
        assert (await new).sealed
        return await feed.until("older", "a", sealed)

    assert fed(live) is None


def test_a_launch_that_may_be_forgotten_is_asked_about_by_itself():
    async def live(feed, line):
        line.answers.put_nowait(told("a", 9000, anew=True, whole=False))
        return await feed.until("x", "a", sealed)

    assert fed(live) is None


def test_a_launch_of_another_process_than_the_one_that_answers_is_asked_about_by_itself():
    async def live(feed, line):
        line.answers.put_nowait(told("b", 1, anew=True))
        return await feed.until("x", "a", sealed)

    assert fed(live) is None


def test_all_hear_of_a_failure_and_the_next_one_asks_again():
    async def live(feed, line):
        waiting = [asyncio.create_task(feed.until(each, "a", sealed)) for each in "xy"]
        await asyncio.sleep(0.01)
        line.answers.put_nowait(OrchestrateError("away"))
        failed = await asyncio.gather(*waiting, return_exceptions=True)
        line.answers.put_nowait(told("a", 1, "x", anew=True))
        return [str(each) for each in failed], await feed.until("x", "a", sealed)

    failed, heard = fed(live)
    assert failed == ["away", "away"]
    assert heard.sealed
