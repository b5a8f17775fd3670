"""Large requests are recorded as small ones are, though they are looked at beside the loop, and though many come at one time."""

from __future__ import annotations

import asyncio
import base64

import pytest
from provider_world import ANSWER, KEY, provider

from orchestrator.trace.read import read_events

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body")

LARGE = 5 << 18
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(bytes(LARGE)).decode()}}


async def lived(world, act):
    async with provider(lambda _: ANSWER) as (url, _seen):
        here = world(providers={"openai": {"base_url": url, "key": KEY}})
        async with here.running():
            inside = await here.launch(models={"main": "openai/gpt-x"}, prices={}, scripts=None)
            await act(inside)
            seal = await here.client.seal(inside.launch)
            return seal, list(read_events(await here.store.get(seal.trajectory.key)))


def asked(events):
    return [event.data for event in events if event.type == "model_request"]


@pytest.mark.parametrize("size", [10, LARGE], ids=["small", "large"])
def test_a_conversation_goes_on_whatever_its_size(world, size):
    said = [{"role": "user", "content": "x" * size}]

    async def act(inside):
        await inside.chat(messages=said)
        more = [
            *said,
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": [IMAGE] if size == LARGE else "b"},
        ]
        await inside.chat(messages=more)

    seal, events = asyncio.run(lived(world, act))
    first, second = asked(events)
    assert (seal.steps, first["conversation"], second["conversation"]) == (2, 0, 0)
    assert [message["role"] for message in second["messages"]] == ["assistant", "user"]


def test_large_ones_at_one_time_are_all_recorded(world):
    async def act(inside):
        answers = await asyncio.gather(
            *(inside.chat(messages=[{"role": "user", "content": f"{n}" + "x" * LARGE}]) for n in range(4))
        )
        assert [status for status, _, _ in answers] == [200] * 4

    seal, events = asyncio.run(lived(world, act))
    assert (seal.steps, sorted(event["conversation"] for event in asked(events))) == (4, [0, 1, 2, 3])
