"""Every token on every endpoint: each opens its own, and no other."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from tcp_world import TOKENS

AGENT = [
    ("GET", "/tools", "agent"),
    ("GET", "/v1/models", "agent"),
    ("POST", "/v1/chat/completions", "agent"),
    ("POST", "/tools/finish", "agent"),
    ("GET", "/launch/canaries", "prepare"),
    ("GET", "/launch/bundle/sandbox/x", "prepare"),
    ("POST", "/launch/prepared", "prepare"),
    ("GET", "/launch/stop?started=0", "freezer"),
    ("POST", "/launch/dead", "freezer"),
    ("POST", "/launch/frozen", "freezer"),
]
ADMIN = [
    ("GET", "/admin/instance", "driver"),
    ("POST", "/admin/launches", "driver"),
    ("GET", "/admin/runs/run-1", "driver"),
    ("GET", "/admin/launches/{launch}/stop", "driver"),
    ("POST", "/admin/launches/{launch}/stop", "driver"),
    ("POST", "/admin/launches/{launch}/seal", "driver"),
    ("GET", "/admin/launches/{launch}/delivered", "driver"),
    ("POST", "/admin/probe", "driver"),
    ("POST", "/relay/admit", "relay"),
    ("POST", "/relay/parts", "relay"),
    ("POST", "/reaper/launches/{launch}/seal", "reaper"),
]
RELAY = [("PUT", f"/launch/state/{part}", "freezer") for part in ("output", "entries", "changes")]
REFUSED = {401, 403}


async def ask(url, method, path, token, pod):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"X-Orchestrate-Pod": f"uid-of-{pod.launch}", "X-Orchestrate-Gateway": "0"}
    async with (
        aiohttp.ClientSession(connector=pod.connector, headers=headers) as session,
        session.request(method, url + path.format(launch=pod.launch), data=b"{}") as response,
    ):
        return response.status


@pytest.mark.parametrize("port", ["agent", "admin", "relay"])
def test_each_token_opens_its_own_endpoints_and_no_others(pods, port):
    async def live():
        async with pods().running() as here:
            pod = await here.launch()
            door = pod.registration.door
            if port == "admin":  # so that nobody waits
                await here.client.seal(pod.launch)
                await pod.deliver()
            tokens = {**TOKENS, "agent": door.agent_token, "prepare": door.prepare_token, "freezer": door.token}
            others = {
                "nobody": "",
                "stranger": "x" * 40,
                "forger": door.token[:-1] + ("0" if door.token[-1] != "0" else "1"),
            }
            url = {"agent": here.agent_url, "admin": here.admin_url, "relay": here.relay_url}[port]
            endpoints = {"agent": AGENT, "admin": ADMIN, "relay": RELAY}[port]
            opened = {
                (method, path, who): await ask(url, method, path, token, pod) not in REFUSED
                for method, path, _ in endpoints
                for who, token in sorted({**tokens, **others}.items())
            }
            return opened, {(m, path, who): who == role for m, path, role in endpoints for who in {**tokens, **others}}

    opened, meant = asyncio.run(live())
    assert opened == meant


def test_what_only_one_machine_has_is_not_on_a_cluster(pods):
    async def live():
        async with pods().running() as here:
            pod = await here.launch()
            token = pod.registration.door.token
            return [
                await ask(here.admin_url, method, path, token, pod)
                for method, path in (("GET", "/launch/stop"), ("PUT", "/launch/state/entries"))
            ]

    assert asyncio.run(live()) == [404, 404]


def test_one_machine_has_no_endpoints_of_relays_and_reapers(world):
    async def live():
        async with world().running() as here:
            connector = aiohttp.UnixConnector(here.config.socket)
            found = []
            async with aiohttp.ClientSession(connector=connector) as session:
                for path in ("/relay/admit", "/relay/parts", "/reaper/launches/x/seal"):
                    async with session.post(f"http://gateway{path}") as answer:
                        found.append(answer.status)
            return found

    assert asyncio.run(live()) == [404, 404, 404]
