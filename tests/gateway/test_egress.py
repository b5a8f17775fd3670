"""The way out: CONNECT with the agent's token, to what the task lists, at the address that was checked."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import json
from contextlib import asynccontextmanager

import pytest

from orchestrator.trace.read import read_events

LOOPBACK = {"egress": {"allowed": ["127.0.0.0/8"], "connect_seconds": 2}}


async def closed(writer):
    """Close a connection, and wait until it is: what is left to the collector shows in another test."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def echo():
    """A server outside that says back what it hears, and tells how many came."""
    seen = []

    async def serve(reader, writer):
        seen.append(writer)
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write(b"bye")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()
        for writer in seen:
            await closed(writer)


def resolver(*answers):
    """Play a name server: each question gets the next answer, the last one again and again."""
    asked = []

    async def resolve(host, _port):
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return [ipaddress.ip_address(each) for each in found]

    return resolve, asked


class Agent:
    """Opens connections of an agent, and closes them all at the end."""

    def __init__(self):
        self._writers = []

    async def send(self, inside, data):
        """Send bytes on a connection of its own; return the head of the answer and the streams."""
        reader, writer = await asyncio.open_connection("127.0.0.1", inside.port)
        self._writers.append(writer)
        writer.write(data)
        return (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode(), reader, writer

    async def connect(self, inside, target, token=None, scheme="Basic", early=b""):
        """Ask for a host; return the head of the answer and the streams."""
        token = inside.registration.agent_token if token is None else token
        shown = base64.b64encode(f"orchestrate:{token}".encode()).decode() if scheme == "Basic" else token
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: {scheme} {shown}\r\n\r\n"
        return await self.send(inside, head.encode() + early)

    async def close(self):
        """Close all."""
        for writer in self._writers:
            await closed(writer)


@asynccontextmanager
async def playing(world, *answers, **config):
    """A gateway, an agent, and a name server with answers."""
    async with world(**(config or LOOPBACK)).running() as here:
        agent = Agent()
        here.registry.resolve, agent.asked = resolver(*(answers or (["127.0.0.1"],)))
        try:
            yield here, agent
        finally:
            await agent.close()


async def events(here, inside):
    """Seal the launch; return its egress events and the kinds of its findings."""
    seal = await here.client.seal(inside.launch)
    data = await here.store.get(seal.trajectory.key)
    found = [event.data for event in read_events(data) if event.type == "egress"]
    return found, {finding.type for finding in seal.findings}


def test_a_listed_host_is_reached_and_recorded(world):
    async def live():
        async with playing(world) as (here, agent), echo() as (port, _):
            inside = await here.launch(egress=(f"Example.COM:{port}",))
            head, reader, writer = await agent.connect(inside, f"example.com.:{port}", early=b"early ")
            writer.write(b"late")
            writer.write_eof()
            said = await reader.read()
            found, findings = await events(here, inside)
            return head, said, found, findings, agent.asked, port

    head, said, found, findings, asked, port = asyncio.run(live())
    assert head.startswith("HTTP/1.1 200 ")
    assert said == b"early latebye"
    assert asked == ["example.com"]
    assert not findings
    [event] = found
    assert (event["host"], event["port"], event["address"]) == ("example.com", port, "127.0.0.1")
    assert (event["outcome"], event["sent"], event["received"]) == ("open", 10, 13)


def test_a_bearer_token_will_do(world):
    async def live():
        async with playing(world) as (here, agent), echo() as (port, _):
            inside = await here.launch(egress=("*:*",))
            return (await agent.connect(inside, f"any.example:{port}", scheme="Bearer"))[0]

    assert asyncio.run(live()).startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("rules", "target", "kind"),
    [
        ((), "example.com:443", "egress_not_allowed"),
        (("example.com",), "example.org:443", "egress_not_allowed"),
        (("example.com",), "example.com:80", "egress_not_allowed"),
        (("*.example.com",), "example.com.evil.org:443", "egress_not_allowed"),
        (("example.com",), "example.com@evil.org:443", "invalid_request"),
        (("example.com",), "2130706433:443", "invalid_request"),
        (("*:*",), "rebound.example:443", "egress_not_public"),
        (("*:*",), "169.254.169.254:80", "egress_not_public"),
        (("*:*",), "[::ffff:127.0.0.1]:80", "egress_not_public"),
        (("*:*",), "[fd00:ec2::254]:80", "egress_not_public"),
    ],
)
def test_what_is_not_allowed_is_refused(world, rules, target, kind):
    async def live():
        async with playing(world, ["10.0.0.1", "127.0.0.1", "::1"], epoch=0) as (here, agent), echo() as (_, seen):
            inside = await here.launch(egress=rules)
            head, reader, _ = await agent.connect(inside, target)
            body = json.loads(await reader.read())
            _, findings = await events(here, inside)
            return head, body["error"]["type"], findings, seen

    head, found, findings, seen = asyncio.run(live())
    assert (found, seen) == (kind, [])
    assert " 40" in head
    assert kind == "invalid_request" or kind in findings


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ("CONNECT example.org:443", "CONNECT example.org:443"),
        ("GET http://example.org/a?key=secret", "GET http://example.org/a"),
    ],
)
def test_a_refusal_says_which_host_was_asked_for(world, head, what):
    async def live():
        async with playing(world) as (here, agent):
            inside = await here.launch(egress=("example.com",))
            token = base64.b64encode(f"x:{inside.registration.agent_token}".encode()).decode()
            lines = f"{head} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {token}\r\n\r\n"
            await agent.send(inside, lines.encode())
            seal = await here.client.seal(inside.launch)
            found = read_events(await here.store.get(seal.trajectory.key))
            return [event.data["what"] for event in found if event.type == "refusal"]

    assert asyncio.run(live()) == [what]


def test_a_name_that_changes_its_mind_is_asked_once(world):
    """The address that was checked is the one that is connected to."""

    async def live():
        async with playing(world, ["127.0.0.1"], ["10.0.0.1"], **LOOPBACK) as (here, agent), echo() as (port, seen):
            inside = await here.launch(egress=("*:*",))
            first, _, _ = await agent.connect(inside, f"a.example:{port}")
            second, _, _ = await agent.connect(inside, f"a.example:{port}")
            return first, second, agent.asked, len(seen)

    first, second, asked, seen = asyncio.run(live())
    assert first.startswith("HTTP/1.1 200 ")
    assert second.startswith("HTTP/1.1 403 ")
    assert (asked, seen) == (["a.example"] * 2, 1)


@pytest.mark.parametrize("answer", [["127.0.0.1"], OSError("no such name")])
def test_what_cannot_be_reached_is_told(world, answer):
    async def live():
        async with playing(world, answer, **LOOPBACK) as (here, agent):
            inside = await here.launch(egress=("*:*",))
            head, reader, _ = await agent.connect(inside, "a.example:1")
            return head, json.loads(await reader.read())["error"]["type"], (await events(here, inside))[0]

    head, kind, [event] = asyncio.run(live())
    assert head.startswith("HTTP/1.1 502 ")
    assert (kind, event["outcome"]) == ("unreachable", "failed")


def test_only_the_launch_s_own_token_opens_the_way(world):
    async def live():
        async with playing(world) as (here, agent), echo() as (port, seen):
            inside, other = [await here.launch(n, egress=("*:*",)) for n in (1, 2)]
            tokens = ["", "nonsense", other.registration.agent_token, inside.registration.sink.token]
            heads = [(await agent.connect(inside, f"a.example:{port}", token=token))[0] for token in tokens]
            return [head.split(" ")[1] for head in heads], seen

    assert asyncio.run(live()) == (["401", "401", "403", "403"], [])


def test_the_seal_ends_connections_and_records_them(world):
    async def live():
        async with playing(world) as (here, agent), echo() as (port, _):
            inside = await here.launch(egress=("*:*",))
            _, reader, writer = await agent.connect(inside, f"a.example:{port}")
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            [event], _ = await events(here, inside)
            return event, await asyncio.wait_for(reader.read(), 5)

    event, more = asyncio.run(live())
    assert more == b""
    assert (event["sent"], event["received"], event["reason"]) == (5, 5, "the trial ended")


def test_an_agent_that_hangs_up_while_its_host_is_looked_for_ends_nothing(world):
    """Else an agent could end its trial as a failure of ours, and have another launch."""

    async def live():
        async with playing(world) as (here, agent), echo() as (port, seen):
            asked, found = asyncio.Event(), asyncio.Event()

            async def resolve(_host, _port):
                asked.set()
                await found.wait()
                return [ipaddress.ip_address("127.0.0.1")]

            here.registry.resolve = resolve
            inside = await here.launch(egress=("*:*",))
            waiting = asyncio.create_task(agent.connect(inside, f"a.example:{port}"))
            await asyncio.wait_for(asked.wait(), 5)
            await agent.close()
            with pytest.raises(asyncio.IncompleteReadError):
                await waiting
            await asyncio.sleep(0.05)  # the gateway hears of it
            found.set()
            seal = await here.client.seal(inside.launch)
            return seal.stopped, {finding.type for finding in seal.findings}, seen

    assert asyncio.run(live()) == (None, set(), [])


def test_there_are_limits(world):
    """Connections at one time, bytes in all, and stillness."""
    limits = {"connections": 2, "bytes": 1000, "idle_seconds": 0.2}

    async def live():
        async with playing(world, egress={**LOOPBACK["egress"], **limits}) as (here, agent), echo() as (port, _):
            inside = await here.launch(egress=("*:*",))
            (_, still, _), (_, busy, writer) = [await agent.connect(inside, f"a.example:{port}") for _ in range(2)]
            third = (await agent.connect(inside, f"a.example:{port}"))[0].split(" ")[1]
            writer.write(b"x" * 2000)
            for reader in (busy, still):
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 5)
            return third, [event["reason"] for event in (await events(here, inside))[0]]

    third, reasons = asyncio.run(live())
    assert third == "429"
    assert reasons == ["the trial has moved as many bytes as it may", "nothing moved for 0.2 s"]


def test_a_side_that_does_not_read_stops_the_other(world):
    """An agent that sends without end to a server that does not read costs this process no memory."""

    async def live():
        stuck = asyncio.Event()

        over = asyncio.Event()

        async def serve(_reader, writer):
            await stuck.wait()
            await closed(writer)
            over.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
        port = server.sockets[0].getsockname()[1]
        async with playing(world) as (here, agent):
            inside = await here.launch(egress=("*:*",))
            _, _, writer = await agent.connect(inside, f"a.example:{port}")
            sent = 0
            try:
                async with asyncio.timeout(3):
                    while True:
                        writer.write(b"x" * (1 << 20))
                        await writer.drain()
                        sent += 1
            except TimeoutError:
                pass
            stuck.set()
            await over.wait()
            server.close()
            return sent

    assert asyncio.run(live()) < 64


def test_plain_http_to_other_hosts_is_refused(world):
    async def live():
        async with playing(world) as (here, agent), echo() as (port, seen):
            inside = await here.launch(egress=("*:*",))
            token = inside.registration.agent_token
            head = f"GET http://127.0.0.1:{port}/v1/models HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
            return (await agent.send(inside, head.encode()))[0], seen

    head, seen = asyncio.run(live())
    assert head.startswith("HTTP/1.1 403 ")
    assert seen == []


def test_a_gateway_that_reaches_nothing_refuses_such_tasks(world):
    async def live():
        async with world(egress={"enabled": False}).running() as here:
            with pytest.raises(Exception, match="may reach nothing outside"):
                await here.launch(egress=("example.com",))

    asyncio.run(live())


def test_names_that_nobody_answers_for_hold_two_threads_of_all(world):
    """A thread that asks for a name cannot be stopped, and there are eight: one agent must not take them from all others."""

    async def live():
        asked = []
        never = asyncio.get_running_loop().create_future()

        async def resolve(host, _port):
            asked.append(host)
            return await never if host.startswith("slow") else [ipaddress.ip_address("127.0.0.1")]

        config = {"egress": {**LOOPBACK["egress"], "connect_seconds": 0.2}}
        async with playing(world, **config) as (here, agent), echo() as (port, _):
            here.registry.resolve = resolve
            inside = await here.launch(1, egress=("*:*",))
            other = await here.launch(2, egress=("*:*",))
            heads = await asyncio.gather(*(agent.connect(inside, f"slow{n}.example:443") for n in range(6)))
            again, _, _ = await agent.connect(inside, "slow.example:443")
            good, _, _ = await agent.connect(other, f"a.example:{port}")
            slow = [host for host in asked if host.startswith("slow")]
            never.set_result([])
            after, _, _ = await agent.connect(inside, f"b.example:{port}")
            return [head for head, _, _ in heads], again, good, slow, after

    heads, again, good, slow, after = asyncio.run(live())
    assert {head.split()[1] for head in [*heads, again]} == {"502"}
    assert (good.split()[1], len(slow), after.split()[1]) == ("200", 2, "200")
