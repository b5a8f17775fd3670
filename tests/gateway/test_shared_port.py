"""One port for all pods: what a hostile one cannot do to the others, nor to the freezer beside it."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from gateway_world import ENDLESS

from orchestrator.gateway.lanes import WAITING

SMALL = {"limits": {"connections": 2, "waiting": 3, "body_seconds": 20}}
CAP = 2 + 3 + 64


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
