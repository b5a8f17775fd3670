"""Gateway and relay killed again and again under many launches: each ends in a state that is whole, or is known to be lost."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import pytest
from tcp_world import TOKENS, Pod
from test_service_processes import SCRIPT, Served

from orchestrator.errors import GatewayError
from orchestrator.gateway.client import GatewayClient, PodEntrance
from orchestrator.gateway.line import Line
from orchestrator.records import keys
from orchestrator.records.state import FrozenState
from orchestrator.spec.bundle import scripts_bundle
from orchestrator.storage.bundles import publish

PARTS = ("output", "entries", "changes")


class UnknownError(Exception):
    """The gateway that made the tokens is gone."""


async def insist(ask):
    """Ask until there is an answer, as the programs of a pod do."""
    while True:
        try:
            status, answer = await ask()
        except (aiohttp.ClientError, OSError):
            status, answer = 503, None
        if status == 401:
            raise UnknownError
        if status < 500 or status == 502:  # a call that was under way is lost, and the launch ends
            return status, answer
        await asyncio.sleep(0.05)


async def in_pod(pod, sample, begun):
    """What happens in a pod, whatever becomes of the services."""
    assert (await insist(pod.begin))[0] == 200
    begun.set()
    await insist(lambda: two(pod.chat()))
    while not (await insist(lambda: pod.as_freezer("GET", "/launch/stop")))[1]["sealed"]:
        pass
    for part in PARTS:
        status, _ = await insist(lambda part=part: pod.put(part, f"{part} of {sample}".encode() * 1000))
        assert status in {200, 409}
    assert (await insist(lambda: pod.as_freezer("POST", "/launch/frozen", {"exit": {"code": sample}})))[0] == 200


async def two(answer):
    return (await answer)[:2]


async def driven(here, client, sample, scripts):
    """What a driver sees of a launch: what was delivered, or why it is lost."""
    try:
        registration = await client.register(here.request(sample, scripts=scripts))
    except GatewayError as error:
        return error.cause
    begun = asyncio.Event()
    inside = asyncio.create_task(in_pod(Pod(registration), sample, begun))
    inside.add_done_callback(lambda _: begun.set())
    try:
        await begun.wait()
        await asyncio.sleep(random.random())
        await client.seal(registration.launch)
        return await client.delivered(registration.launch)
    except GatewayError as error:
        return error.cause
    finally:
        await asyncio.wait([inside])
        assert inside.exception() is None or isinstance(inside.exception(), UnknownError)


async def kept_up(here, name, seconds, stop):
    """Serve, and be killed every now and then."""
    while not stop.is_set():
        async with here.service(name):
            try:
                async with asyncio.timeout(random.uniform(*seconds)):
                    await stop.wait()
            except TimeoutError:
                continue  # leaving the context kills it


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_each_launch_is_whole_or_known_to_be_lost(short_folder, seed):
    random.seed(seed)
    here = Served(short_folder, str(short_folder / "store"))
    lines = [Line(here.admin_url, TOKENS["driver"], patience_s=60)]
    client = GatewayClient(lines, PodEntrance([f"{here.address}:8080"], here.relay_url))

    async def live():
        scripts = await publish(here.store, "world", scripts_bundle({"task-1": SCRIPT}))
        stop = asyncio.Event()
        services = [
            asyncio.create_task(kept_up(here, "gateway", (4, 7), stop)),
            asyncio.create_task(kept_up(here, "relay", (2, 5), stop)),
        ]
        found = {}
        for first in range(1, 41, 10):
            ends = await asyncio.gather(*(driven(here, client, n, scripts) for n in range(first, first + 10)))
            found |= dict(enumerate(ends, first))
        whole = {n: each for n, each in found.items() if not isinstance(each, str)}
        again = {n: (await client.register(here.request(n, scripts=scripts, epoch=2))).launch for n in whole}
        for sample, launch in again.items():
            assert await client.delivered(launch) == whole[sample]
        stop.set()
        await asyncio.gather(*services)
        await client.close()
        return found, whole

    found, whole = asyncio.run(live())
    assert {each for each in found.values() if isinstance(each, str)} <= {"gateway_restarted"}
    assert len(whole) > 10
    for sample, each in whole.items():
        assert each.exit.code == sample
        assert each.frozen.state is not None
        trial = here.request(sample).trial
        key = keys.record("run-1", trial, 1, 1, "state.json")
        data = asyncio.run(here.store.get(key))
        assert FrozenState.from_bytes(data) == each.frozen.state
        assert asyncio.run(here.store.get(each.frozen.state.changes.key)) == f"changes of {sample}".encode() * 1000
