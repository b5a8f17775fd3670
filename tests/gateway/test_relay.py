"""The relay takes each part of a state once, whole, from the freezer alone."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
from gateway_world import put_state

from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.state import FrozenState

TRIAL = TrialId("task-1", "careful", 1)


async def sealed(here):
    registration = await here.client.register(here.request())
    await here.client.seal(registration.launch)
    return registration


def test_a_broken_delivery_leaves_nothing_and_can_be_sent_again(world):
    def break_off(registration):
        with socket.socket(socket.AF_UNIX) as relay:
            relay.connect(registration.sink.socket)
            relay.sendall(
                b"PUT /launch/state/entries HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n"
                b"Authorization: Bearer " + registration.sink.token.encode() + b"\r\n\r\n5\r\nhello\r\n"
            )

    async def live():
        async with world().running() as here:
            registration = await sealed(here)
            await asyncio.to_thread(break_off, registration)
            status, blob = await put_state(registration, "entries", b"whole")
            blobs = await here.store.list(keys.blob("run-1", ""))
            return status, blob, [await here.store.get(key) for key in blobs if key == blob["key"]], len(blobs)

    status, blob, stored, count = asyncio.run(live())
    assert (status, blob["size"], stored) == (200, 5, [b"whole"])
    assert count == 2  # the trajectory and this one


def test_two_deliveries_at_one_time_are_one(world):
    async def live():
        async with world().running() as here:
            registration = await sealed(here)
            return await asyncio.gather(*(put_state(registration, "changes", b"x" * 100_000) for _ in range(5)))

    answers = asyncio.run(live())
    assert sorted(answer[0] for answer in answers) == [200, 409, 409, 409, 409]
    assert len({answer[1]["key"] for answer in answers}) == 1


def test_a_state_that_is_too_large_is_refused(world):
    async def live():
        async with world(max_state_bytes=10_000).running() as here:
            registration = await sealed(here)
            return await put_state(registration, "changes", b"x" * 20_000)

    status, answer = asyncio.run(live())
    assert (status, answer["error"]["type"]) == (413, "state_too_large")


def test_what_was_printed_is_kept_apart_from_the_state(world):
    async def live():
        async with world().running() as here:
            registration = await sealed(here)
            put = [await put_state(registration, part, part.encode()) for part in ("output", "entries", "changes")]
            return [await here.store.get(answer["key"]) for _, answer in put]

    assert asyncio.run(live()) == [b"output", b"entries", b"changes"]


def test_the_state_record_names_both_parts(world):
    async def live():
        async with world().running() as here:
            registration = await sealed(here)
            key = keys.record("run-1", TRIAL, 1, 1, "state.json")
            first = await put_state(registration, "changes", b"c")
            early = await here.store.exists(key)
            second = await put_state(registration, "entries", b"e")
            return first[1], second[1], early, FrozenState.from_bytes(await here.store.get(key))

    changes, entries, early, state = asyncio.run(live())
    assert not early
    assert (state.changes.sha256, state.entries.sha256) == (changes["sha256"], entries["sha256"])


def test_the_freezer_hears_of_the_stop(world):
    async def live():
        async with world(grace_seconds=0).running() as here:
            inside = await here.launch(budgets={"max_steps": 1})
            connector = aiohttp.UnixConnector(inside.registration.sink.socket)
            headers = {"Authorization": f"Bearer {inside.registration.sink.token}"}
            async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
                waiting = asyncio.create_task(session.get("http://relay/launch/stop"))
                for _ in range(2):
                    await inside.chat()
                async with await waiting as answer:
                    return answer.status, await answer.json()

    assert asyncio.run(live()) == (200, {"stopped": "step_cap", "sealed": False})


def test_the_admin_side_needs_the_admin_token(world):
    async def live():
        async with world().running() as here:
            registration = await here.client.register(here.request())
            found = []
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(here.config.socket)) as session:
                for token in ("", registration.sink.token, registration.agent_token):
                    headers = {"Authorization": f"Bearer {token}"}
                    path = f"http://gateway/admin/launches/{registration.launch}/seal"
                    async with session.post(path, headers=headers, json={}) as answer:
                        found.append(answer.status)
            return found

    assert asyncio.run(live()) == [401, 401, 401]
