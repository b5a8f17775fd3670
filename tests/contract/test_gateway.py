"""What every implementation of ``interfaces.Gateway`` must do, whatever is behind it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import GatewayError, InfrastructureError, StoreError
from orchestrator.interfaces import Gateway, ProbeResult

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))

from gateway_world import World
from provider_world import ANSWER, KEY, provider
from tcp_world import PodWorld


@pytest.fixture(params=[World, PodWorld])
def world(request: pytest.FixtureRequest, short_folder: Path) -> Callable[..., World]:
    return lambda **config: request.param(short_folder, **config)


def test_it_is_a_gateway(world):
    gateway: Gateway = world().client
    assert gateway is not None


def test_registering_names_the_launch_by_its_content(world):
    async def live():
        async with world().running() as here:
            first = await here.client.register(here.request(1))
            again = await here.client.register(here.request(1))
            other = await here.client.register(here.request(2))
            return first, again, other

    first, again, other = asyncio.run(live())
    assert first.launch == again.launch != other.launch
    assert other.agent_token not in {first.agent_token, again.agent_token}
    assert first.door.token == first.sink.token != first.agent_token


def test_a_seal_is_final_and_repeatable(world):
    async def live():
        async with world().running() as here:
            registration = await here.client.register(here.request())
            return await here.client.seal(registration.launch), await here.client.seal(registration.launch)

    first, second = asyncio.run(live())
    assert first == second
    assert (first.run, first.trial, first.launch) == ("run-1", "task-1@careful:1", 1)
    assert (first.steps, first.usage.cost_nano_usd, first.stopped, first.finish) == (0, 0, None, None)


def test_the_sink_takes_the_state_after_the_seal(world):
    async def live():
        async with world().running() as here:
            registration = await here.client.register(here.request())
            before, _ = await here.put(registration, "entries", b"x")
            await here.client.seal(registration.launch)
            after, blob = await here.put(registration, "entries", b"x")
            return before, after, blob, await here.store.get(blob["key"])

    before, after, blob, data = asyncio.run(live())
    assert (before, after, blob["size"], data) == (409, 200, 1, b"x")


def test_an_operators_stop_is_harmless_at_any_time(world):
    async def live():
        async with world().running() as here:
            registration = await here.client.register(here.request())
            for _ in range(2):
                await here.client.stop(registration.launch)
            seal = await here.client.seal(registration.launch)
            await here.client.stop(registration.launch)
            return seal

    assert asyncio.run(live()).stopped is None


def test_what_launches_used_is_summed_for_a_run(world):
    async def live():
        async with world().running() as here:
            insides = [await here.launch(1), await here.launch(2)]
            for inside in insides:
                await inside.chat()
            await here.client.seal(insides[0].launch)
            return await here.client.spending("run-1"), await here.client.spending("run-2")

    found, other = asyncio.run(live())
    assert (found.running, found.steps, found.cost_nano_usd) == (1, 2, 40_000)
    assert (other.running, other.steps) == (0, 0)


def test_every_failure_is_infrastructure_with_a_cause(world):
    async def live():
        here = world()
        for call in (
            here.client.register(here.request()),
            here.client.stop_reason("0" * 24),
            here.client.seal("0" * 24),
            here.client.probe("openai/gpt-x"),
            here.client.spending("run-1"),
        ):
            with pytest.raises(GatewayError) as caught:
                await call
            assert isinstance(caught.value, InfrastructureError)
            assert caught.value.cause.startswith("gateway_")
        await here.client.close()

    asyncio.run(live())


def test_a_store_that_fails_behind_it_is_a_store_error(world, monkeypatch):
    async def full(*_):
        msg = "no space"
        raise StoreError(msg, cause="store_full")

    async def live():
        async with world().running() as here:
            registration = await here.client.register(here.request())
            monkeypatch.setattr(here.store, "put_blob", full)
            await here.client.seal(registration.launch)

    with pytest.raises(StoreError, match="no space") as caught:
        asyncio.run(live())
    assert caught.value.cause == "store_full"


def test_a_probe_asks_a_model_once_and_leaves_no_trace(world):
    async def live():
        async with (
            provider(ANSWER) as (url, seen),
            world(providers={"openai": {"base_url": url, "key": KEY}}).running() as here,
        ):
            found = await here.client.probe("openai/gpt-x")
            return found, [body["model"] for _, body in seen], await here.store.list("")

    found, asked, objects = asyncio.run(live())
    assert found == ProbeResult(model="openai/gpt-x", result="answered")
    assert asked == ["gpt-x"]
    assert objects == []


@pytest.mark.parametrize("model", ["nobody/m", "scripted/careful", "m"])
def test_only_models_of_configured_providers_can_be_probed(world, model):
    async def live():
        async with world().running() as here:
            await here.client.probe(model)

    with pytest.raises(GatewayError, match="needs a provider") as caught:
        asyncio.run(live())
    assert caught.value.cause == "unknown_provider"
