"""Several gateways: each launch has one, the same in every process; and clients that sit out one that is away."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from tcp_world import TOKENS, Pod, PodWorld

from orchestrator.errors import GatewayError
from orchestrator.gateway.client import GatewayClient, PodEntrance, cluster_gateways
from orchestrator.gateway.line import Line
from orchestrator.records.ids import TrialId


def client_of(worlds, patience_s=0.0):
    """One client over the gateways of several worlds, which share nothing else."""
    lines = [Line(each.admin_url, TOKENS["driver"], patience_s=patience_s) for each in worlds]
    return GatewayClient(lines, PodEntrance([f"{each.address}:8080" for each in worlds], worlds[0].relay_url))


@pytest.fixture
def two(short_folder):
    made = []
    for name in ("a", "b"):
        folder = short_folder / name
        folder.mkdir()
        made.append(PodWorld(folder))
    return made


def test_launches_are_spread_and_each_is_found_again(two):
    async def live():
        async with AsyncExitStack() as stack:
            for each in two:
                await stack.enter_async_context(each.running())
            first = await stack.enter_async_context(client_of(two))
            second = await stack.enter_async_context(client_of(two))
            two[1].request()  # both have the scripts
            registered = [await first.register(two[0].request(n)) for n in range(1, 21)]
            again = [await second.register(two[0].request(n)) for n in range(1, 21)]
            for each in registered[:2]:
                await second.seal(each.launch)
            return registered, again, await first.spending("run-1")

    registered, again, spent = asyncio.run(live())
    assert registered == [replace(each, door=replace(each.door, known=False)) for each in again]
    assert {each.door.index for each in registered} == {0, 1}
    assert len({(each.door.index, each.door.address, each.door.instance) for each in registered}) == 2
    assert spent.running == 18


def test_a_gateway_more_moves_only_its_own_share():
    def indices(count):
        client = GatewayClient(
            [Line(f"http://gateway-{n}:8081", "") for n in range(count)], PodEntrance([], "http://r:1")
        )
        return [client._index(f"{launch:024x}") for launch in range(1000)]

    three, four = indices(3), indices(4)
    assert {index for index, other in zip(three, four, strict=True) if other != 3 and index != other} == set()
    assert 150 < sum(index == 3 for index in four) < 350


def test_a_lost_launch_is_sealed_wherever_it_is_known(two):
    """It was registered when there was one gateway; now there are two, and some launches would be looked for at the other."""

    async def live():
        async with AsyncExitStack() as stack:
            for each in two:
                await stack.enter_async_context(each.running())
            alone, both = client_of(two[:1]), client_of(two)
            await stack.enter_async_context(alone)
            await stack.enter_async_context(both)
            for n in range(1, 9):
                await alone.register(two[0].request(n))
            found = [await both.seal_lost("run-1", TrialId("task-1", "careful", n), 1, 2) for n in range(1, 10)]
            return [seal is not None for seal in found]

    assert asyncio.run(live()) == [True] * 8 + [False]


def test_a_gateway_that_comes_back_is_waited_for(pods):
    async def live():
        here = pods()
        client = client_of([here], patience_s=60)
        registering = asyncio.create_task(client.register(here.request()))
        with contextlib.suppress(TimeoutError):  # nobody is there yet
            await asyncio.wait_for(asyncio.shield(registering), 0.3)
        assert not registering.done()
        async with here.running():
            registration = await registering
            waiting = asyncio.create_task(client.stop_reason(registration.launch))
            await Pod(registration).begin()
            await client.spending("run-1")
        here.lose_volume()
        async with here.running():  # another process, which does not know the launch
            with pytest.raises(GatewayError) as caught:
                await waiting
            await client.close()
            return caught.value.cause

    assert asyncio.run(live()) == "gateway_restarted"


def test_a_relay_or_gateway_without_an_address_is_named():
    async def live(relay, gateway):
        client = cluster_gateways(["http://127.0.0.1:1"], [gateway], relay, "token")
        await client._entrance.of(made, 0)

    from orchestrator.gateway.wire import Registered

    made = Registered(launch="x", agent_token="a", freezer_token="f", prepare_token="p")
    with pytest.raises(GatewayError, match=r"no-such-host\.invalid:80") as caught:
        asyncio.run(live("http://no-such-host.invalid", "127.0.0.1:8080"))
    assert caught.value.cause == "gateway_unreachable"


def test_a_gateway_of_one_machine_is_no_gateway_for_pods():
    from orchestrator.gateway.wire import Registered

    with pytest.raises(GatewayError, match="serves one machine") as caught:
        asyncio.run(
            PodEntrance(["127.0.0.1:1"], "http://127.0.0.1:1").of(
                Registered(launch="x", agent_token="a", freezer_token="f"), 0
            )
        )
    assert caught.value.cause == "gateway_not_for_pods"


def test_addresses_are_found_once_and_again_when_a_gateway_did_not_answer(pods, monkeypatch):
    asked = []

    async def look_up(target):
        asked.append(target)
        return target

    monkeypatch.setattr("orchestrator.gateway.client.resolve", look_up)

    async def live():
        here = pods()
        client = client_of([here])
        for sample in (1, 2):
            async with here.running():
                await client.register(here.request(sample))
                await client.register(here.request(sample))
            if sample == 1:
                with pytest.raises(GatewayError):
                    await client.register(here.request())
        await client.close()
        return [f"{here.address}:8080", f"{here.address}:8082"]

    assert asked == asyncio.run(live()) * 2
