"""Relays as services of their own: any number of them, any of which may die at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tcp_world import own_address

from orchestrator.gateway.relay import Relay
from orchestrator.gateway.relay_service import RelayConfig, running_relay
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.state import FrozenState

STATE = keys.record("run-1", TrialId("task-1", "careful", 1), 1, 1, "state.json")


@asynccontextmanager
async def another(here, **change):
    """One more relay on the same store; gives its address."""
    given = json.loads(here.relay_file.read_text())
    config = {
        "listen": f"{own_address()}:8082",
        "gateways": given["gateways"],
        "token": "token-of-the-relay-in-this-test",
    }
    config.update(change)
    async with running_relay(RelayConfig.model_validate_json(json.dumps(config)), here.store):
        yield f"http://{config['listen']}"


async def put(pod, relay, part, data, **change):
    headers = {"Authorization": f"Bearer {change.get('token', pod.registration.door.token)}"}
    if (index := change.get("index", "0")) is not None:
        headers["X-Orchestrate-Gateway"] = index
    async with (
        aiohttp.ClientSession(connector=pod.connector) as session,
        session.put(f"{relay}/launch/state/{part}", data=data, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


def sealed(pods, live, **config):
    async def run():
        async with pods(**config).running() as here:
            pod = await here.launch()
            await here.client.seal(pod.launch)
            return await live(here, pod)

    return asyncio.run(run())


async def blobs_of(here):
    return await here.store.list(keys.blobs("run-1"))


def test_a_part_that_went_to_one_relay_is_known_to_the_other(pods):
    async def live(here, pod):
        async with another(here) as second:
            entries = await put(pod, here.relay_url, "entries", b"entries")
            changes = await put(pod, second, "changes", b"changes")
            again = await put(pod, second, "entries", b"entries")
            return entries, changes, again, FrozenState.from_bytes(await here.store.get(STATE)), await blobs_of(here)

    entries, changes, again, state, blobs = sealed(pods, live)
    assert (entries[0], changes[0], again) == (200, 200, (409, entries[1]))
    assert (state.entries.key, state.changes.key) == (entries[1]["key"], changes[1]["key"])
    assert len(blobs) == 3  # with the trajectory: what was there was not taken again


def test_two_relays_that_take_the_same_part_at_one_time_agree(pods):
    async def live(here, pod):
        async with another(here) as second:
            started = asyncio.Event()

            async def slow():
                started.set()
                yield b"part"
                await put(pod, second, "entries", b"part")
                yield b""

            slower = await put(pod, here.relay_url, "entries", slow())
            return slower, await put(pod, second, "entries", b"part")

    slower, again = sealed(pods, live)
    assert slower == again
    assert slower[0] == 409


def test_a_relay_that_dies_in_the_middle_leaves_nothing(pods):
    async def live(here, pod):
        async def half(relay):
            yield b"half"
            await relay.aclose()
            yield b"never"

        relay = contextlib.AsyncExitStack()
        url = await relay.enter_async_context(another(here))
        with pytest.raises(aiohttp.ClientError):
            await put(pod, url, "entries", half(relay))
        done = await put(pod, here.relay_url, "entries", b"whole")
        return (
            done,
            [await here.store.get(key) for key in await blobs_of(here) if key == done[1]["key"]],
            await blobs_of(here),
        )

    done, data, blobs = sealed(pods, live)
    assert (done[0], data, len(blobs)) == (200, [b"whole"], 2)


def test_a_relay_that_dies_before_it_names_the_state_is_made_up_for(pods, monkeypatch):
    async def dies(*_):
        raise ConnectionResetError

    async def live(here, pod):
        async with another(here) as second:
            await put(pod, here.relay_url, "entries", b"entries")
            with monkeypatch.context() as broken:
                broken.setattr(Relay, "_mark", dies)
                first = await put(pod, here.relay_url, "changes", b"changes")
            missing = not await here.store.exists(STATE)
            again = await put(pod, second, "changes", b"changes")
            return first[0], missing, again[0], await here.store.exists(STATE)

    assert sealed(pods, live) == (400, True, 409, True)


def test_a_relay_whose_gateway_is_away_says_come_again(pods, monkeypatch):
    monkeypatch.setattr("orchestrator.gateway.relay_service._PATIENCE_SECONDS", 0.1)

    async def live(here, pod):
        async with another(here, gateways=["http://127.0.0.1:1"]) as lonely:
            return await put(pod, lonely, "entries", b"x")

    status, answer = sealed(pods, live)
    assert (status, answer["error"]["type"]) == (503, "gateway_unreachable")


def test_a_relay_with_a_wrong_token_of_its_own_is_no_fault_of_the_freezers(pods):
    async def live(here, pod):
        async with another(here, token="not-the-relays-token") as stranger:
            return await put(pod, stranger, "entries", b"x")

    status, answer = sealed(pods, live)
    assert (status, answer["error"]["type"]) == (503, "not_authorised")


@pytest.mark.parametrize("index", [None, "", "1", "-1", "x", "9" * 30, "²"])
def test_the_gateway_must_be_one_of_the_configured(pods, index):
    async def live(here, pod):
        return await put(pod, here.relay_url, "entries", b"x", index=index and index.encode("utf-8").decode("latin-1"))

    status, answer = sealed(pods, live)
    assert (status, answer["error"]["type"]) == (400, "invalid_request")


def test_a_token_that_is_no_freezers_is_not_even_asked_about(pods):
    async def live(here, pod):
        async with another(here, gateways=["http://127.0.0.1:1"]) as lonely:
            tokens = ("", "x", pod.registration.agent_token, pod.registration.door.prepare_token)
            return [(await put(pod, lonely, "entries", b"x", token=token))[0] for token in tokens]

    assert sealed(pods, live) == [401, 401, 403, 403]


def test_a_state_of_a_pod_that_is_too_large_is_refused(pods):
    async def live(here, pod):
        return await put(pod, here.relay_url, "changes", b"x" * 20_000), await blobs_of(here)

    (status, answer), blobs = sealed(pods, live, max_state_bytes=10_000)
    assert (status, answer["error"]["type"], len(blobs)) == (413, "state_too_large", 1)


def test_nothing_but_parts_is_taken(pods):
    async def live(here, pod):
        return [(await put(pod, here.relay_url, part, b"x"))[0] for part in ("other", "entries/x", "")]

    assert sealed(pods, live) == [404, 404, 404]


def test_a_freezer_that_is_still_reading_has_no_place_at_the_store(pods):
    async def live(here, pod):
        async with another(here, uploads=1) as relay:
            place, _, port = relay.removeprefix("http://").partition(":")
            head = (
                "PUT /launch/state/entries HTTP/1.1\r\nHost: relay\r\nX-Orchestrate-Gateway: 0\r\n"
                f"Authorization: Bearer {pod.registration.door.token}\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            reader, writer = await asyncio.open_connection(place, int(port), local_addr=(pod.address, 0))
            writer.write(head.encode())
            await writer.drain()
            async with asyncio.timeout(10):
                other = await put(pod, relay, "changes", b"changes")
                writer.write(b"4\r\nlate\r\n0\r\n\r\n")
                status = await reader.readline()
            writer.close()
            return other[0], status

    assert sealed(pods, live) == (200, b"HTTP/1.1 200 OK\r\n")
