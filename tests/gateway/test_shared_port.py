"""One port for all pods: what a hostile one cannot do to the others, nor to the freezer beside it."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import aiohttp
from gateway_world import ENDLESS

from orchestrator.gateway import front
from orchestrator.gateway.front import PODS_RATE
from orchestrator.gateway.greeting import SILENT, SILENT_SECONDS
from orchestrator.gateway.lanes import WAITING, Rate
from orchestrator.sandbox.keeper.http import head as head_of

SMALL = {"limits": {"connections": 2, "waiting": 3, "body_seconds": 20}}
CAP = 2 + 3 + 64
LENGTH = (("Content-Length", "2"),)


def head(pod, length):
    token = pod.registration.agent_token
    return (
        f"POST /tools/finish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def status_of(connection):
    connection.settimeout(10)
    return connection.recv(65536)[:12]


def held(here):
    """How many connections the gateway process holds on its agent port."""
    here_, port = here.address, 8080
    wanted = f"{int.from_bytes(socket.inet_aton(here_), 'little'):08X}:{port:04X}"
    with open("/proc/net/tcp") as file:
        return sum(line.split()[1] == wanted and line.split()[3] == "01" for line in file)


def flooded(pods, count, data, attack):
    """Hold ``count`` connections of one pod that have sent ``data``, and run ``attack(here, mine, other)`` beside."""

    async def live():
        async with pods(**SMALL).running() as here:
            mine, other = await here.launch(1, ENDLESS), await here.launch(2, ENDLESS)
            with contextlib.ExitStack() as stack:
                flood = [stack.enter_context(await asyncio.to_thread(mine.raw, data(mine))) for _ in range(count)]
                return await attack(here, mine, other, flood)

    return asyncio.run(live())


def test_a_pod_that_opens_connections_without_end_loses_its_own(pods):
    async def attack(here, mine, other, _flood):
        status, _ = await mine.as_freezer("GET", "/launch/stop?started=0")
        return status, (await other.chat())[0], (await mine.chat())[0], held(here)

    freezer, others, own, connections = flooded(pods, 3 * CAP, lambda _: b"GET /tools HTTP/1.1\r\nX-A: ", attack)
    assert (freezer, others, own) == (200, 200, 200)
    assert connections <= CAP + WAITING


def test_an_agent_that_floods_its_own_lane_does_not_keep_out_the_freezer_beside_it(pods):
    async def attack(here, mine, _other, flood):
        with contextlib.ExitStack() as stack:
            said = head_of("POST", "/launch/dead", mine.registration.door.token, LENGTH) + b"{}"
            dead = stack.enter_context(await asyncio.to_thread(mine.raw, said))
            for _ in range(2 * WAITING):
                stack.enter_context(await asyncio.to_thread(mine.raw, b"GET "))
            status = await asyncio.to_thread(status_of, dead)
            return status, here.registry.find(mine.launch).sealed.is_set()

    # what its rate lets in, and as many more as may wait
    count = PODS_RATE.burst + SILENT + 2 * WAITING
    assert flooded(pods, count, lambda _: b"GET ", attack) == (b"HTTP/1.1 200", True)


def test_an_agent_whose_requests_have_to_wait_delays_nobody(pods, monkeypatch):
    monkeypatch.setattr(front, "_REQUESTS_RATE", Rate(per_second=0.001, burst=5))

    async def attack(here, mine, other, _flood):
        async with aiohttp.ClientSession(connector=mine.connector) as session:

            async def ask():
                async with session.get(f"{mine.url}/healthz") as answer:
                    return answer.status

            assert [await ask() for _ in range(5)] == [200] * 5
            late = asyncio.create_task(ask())
            done = [(await mine.as_freezer("GET", "/launch/stop?started=0"))[0] for _ in range(7)]
            done.append((await other.chat())[0])
            assert not late.done()
            late.cancel()
            return done

    assert flooded(pods, 0, lambda _: b"", attack) == [200] * 8


def test_who_says_nothing_at_first_is_heard_later(pods):
    async def attack(here, mine, _other, _flood):
        reader, writer = await asyncio.open_connection(mine.host, 8080, local_addr=(mine.address, 0))
        await asyncio.sleep(2 * SILENT_SECONDS + 0.2)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer[:12]

    assert flooded(pods, 0, lambda _: b"", attack) == b"HTTP/1.1 200"


def test_a_request_under_way_is_never_cut_off_by_a_flood(pods):
    async def attack(here, mine, _other, _flood):
        waiting = asyncio.create_task(mine.as_freezer("GET", "/launch/stop"))
        while here.registry.find(mine.launch).clock.started is None:
            await asyncio.sleep(0.01)
        with contextlib.ExitStack() as stack:
            for _ in range(2 * CAP):
                stack.enter_context(await asyncio.to_thread(mine.raw, b"GET "))
            await here.client.stop(mine.launch)
            return await waiting

    assert flooded(pods, 0, lambda _: b"", attack) == (200, {"stopped": "cancelled", "sealed": False})


def test_requests_that_never_end_take_no_more_places_than_a_launch_has(pods):
    async def attack(here, mine, other, flood):
        refused = [await asyncio.to_thread(status_of, connection) for connection in flood[5:]]
        status, _ = await mine.as_freezer("GET", "/launch/stop?started=0")
        served = (await other.chat())[0]
        seal = await here.client.seal(mine.launch)
        return set(refused), status, served, {finding.type for finding in seal.findings}

    refused, freezer, served, kinds = flooded(pods, 5 + CAP, lambda pod: head(pod, 100) + b"{", attack)
    assert refused == {b"HTTP/1.1 429"}
    assert (freezer, served) == (200, 200)
    assert "too_many_requests" in kinds


def test_those_who_show_no_token_are_sent_away_at_once(pods):
    async def attack(here, mine, other, flood):
        ends = [await asyncio.to_thread(status_of, connection) for connection in flood]
        return set(ends), (await other.chat())[0], held(here)

    data = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n{"
    ends, served, connections = flooded(pods, 100, lambda _: data, attack)
    assert (ends, served) == ({b"HTTP/1.1 401"}, 200)
    assert connections <= 3


def test_all_pods_together_hold_no_more_than_there_is_room_for(pods, monkeypatch):
    monkeypatch.setattr("orchestrator.gateway.cluster.most_connections", lambda: 40)

    async def live():
        async with pods(**SMALL).running() as here:
            first, *others = [await here.launch(n, ENDLESS) for n in range(1, 4)]
            with contextlib.ExitStack() as stack:
                for _ in range(60):
                    stack.enter_context(await asyncio.to_thread(first.raw, b"GET "))
                kept = [stack.enter_context(await asyncio.to_thread(pod.raw, b"GET ")) for pod in others]
                for pod, connection in zip(others, kept, strict=True):
                    connection.sendall(f"/healthz HTTP/1.1\r\nHost: {pod.address}\r\n\r\n".encode())
                return [await asyncio.to_thread(status_of, each) for each in kept], held(here)

    answers, connections = asyncio.run(live())
    assert answers == [b"HTTP/1.1 200"] * 2  # the greedy one gave way
    assert connections <= 40
