"""Trials in pods: what prepare, agent and freezer ask, in order and out of it."""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import replace
from urllib.parse import urlencode

import aiohttp
import pytest
from gateway_world import ENDLESS
from tcp_world import TOKENS, Pod

from orchestrator.errors import GatewayError, LeaseLostError, StoreError
from orchestrator.gateway.client import GatewayClient, PodEntrance
from orchestrator.gateway.line import Line
from orchestrator.gateway.refusal import Refusal
from orchestrator.interfaces import BundleRef
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.state import FrozenState

TRIAL = TrialId("task-1", "careful", 1)


def lively(pods, live, **config):
    """Run ``live(here)`` in a world."""

    async def run():
        async with pods(**config).running() as here:
            return await live(here)

    return asyncio.run(run())


def test_a_launch_in_a_pod_from_registration_to_delivery(pods):
    async def live(here):
        pod = await here.launch()
        assert (await pod.chat())[0] == 200
        orders = asyncio.create_task(pod.as_freezer("GET", "/launch/stop"))
        early = await pod.put("entries", b"x"), await pod.as_freezer("POST", "/launch/frozen", {})
        delivered = asyncio.create_task(here.client.delivered(pod.launch))
        seal = await here.client.seal(pod.launch)
        final = base64.b64encode(b'{"status": "completed"}').decode()
        report = {"final_b64": final, "output_b64": base64.b64encode(b"bye").decode(), "exit": {"code": 3}}
        assert await orders == (200, {"stopped": None, "sealed": True})
        assert (await pod.as_freezer("POST", "/launch/frozen", report))[1]["error"]["type"] == "state_missing"
        assert (await pod.deliver(**report))[0] == 200
        key = keys.record("run-1", TRIAL, 1, 1, "state.json")
        return early, seal, await delivered, FrozenState.from_bytes(await here.store.get(key))

    early, seal, delivery, state = lively(pods, live)
    assert [(status, answer["error"]["type"]) for status, answer in early] == [(409, "not_sealed")] * 2
    assert (seal.steps, seal.stopped) == (1, None)
    assert delivery.frozen.state == state
    assert (delivery.frozen.final, delivery.frozen.output, delivery.exit.code) == (
        b'{"status": "completed"}',
        b"bye",
        3,
    )
    assert (delivery.frozen.output_blob.size, delivery.cancelled, delivery.interrupted) == (6, False, False)


def test_registering_again_gives_the_same_tokens_and_says_how_far_it_is(pods):
    async def live(here):
        first = await here.client.register(here.request())
        second = await here.client.register(here.request(epoch=2))
        await Pod(first).begin()
        third = await here.client.register(here.request(epoch=3))
        await here.client.seal(first.launch)
        return first, second, third, await here.client.register(here.request(epoch=4))

    found = [each.door for each in lively(pods, live)]
    assert [(door.known, door.begun, door.sealed) for door in found] == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
    ]
    assert len({(door.agent_token, door.prepare_token, door.token, door.instance) for door in found}) == 1
    assert len({found[0].agent_token, found[0].prepare_token, found[0].token}) == 3


def test_a_driver_whose_run_was_taken_has_no_say_in_anything(pods):
    async def live(here):
        pod = await here.launch()
        line = Line(here.admin_url, TOKENS["driver"])
        async with GatewayClient([line], PodEntrance([f"{here.address}:8080"], here.relay_url)) as later:
            await later.register(here.request(epoch=2))
            old, launch = here.client, pod.launch
            asked = [
                old.register(here.request()),
                old.stop(launch),
                old.stop_reason(launch),
                old.delivered(launch),
                old.seal(launch),
                old.seal_lost("run-1", TRIAL, 1, 1),
            ]
            told = await asyncio.gather(*asked, return_exceptions=True)
            orders = (await pod.as_freezer("GET", "/launch/stop?started=0"))[1]
            return told, orders, await later.seal(launch)

    told, orders, seal = lively(pods, live)
    assert [type(each) for each in told] == [LeaseLostError] * 6
    assert all("epoch 1 of run run-1 is over: a driver of epoch 2 has taken the run" in str(each) for each in told)
    assert orders == {"stopped": None, "sealed": False}
    assert seal.stopped is None


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_launch_is_named_in_full_and_as_in_the_path(pods, method):
    async def live(here):
        pod = await here.launch()
        other = {"run": "run-1", "trial": "task-1@careful:2", "launch": 1, "epoch": 1}
        found = []
        for name in ({}, other):
            path = f"/admin/launches/{pod.launch}/stop" + (f"?{urlencode(name)}" if method == "GET" else "")
            status, answer = await here.admin("driver", method, path, None if method == "GET" else name)
            found.append((status, answer["error"]["type"]))
        return found

    assert lively(pods, live) == [(400, "invalid_request"), (400, "launch_differs")]


def test_only_one_pod_begins_a_launch(pods):
    async def live(here):
        pod = Pod(await here.client.register(here.request()))
        before = await pod.ask("GET", "/tools"), await pod.as_freezer("GET", "/launch/stop?started=0")
        first, again, other = await pod.begin(), await pod.begin(), await pod.begin("another")
        elsewhere = await Pod(pod.registration).begin("another")
        nobody = await pod.as_prepare("POST", "/launch/prepared")
        return before, first, again, other, elsewhere, nobody

    before, first, again, other, elsewhere, nobody = lively(pods, live)
    assert [(each[0], each[1]["error"]["type"]) for each in before] == [(403, "not_begun")] * 2
    assert first == again == (200, {"launch": first[1]["launch"]})
    assert [each[1]["error"]["type"] for each in (other, elsewhere)] == ["already_begun"] * 2
    assert (nobody[0], nobody[1]["error"]["type"]) == (400, "invalid_request")


def test_a_launch_that_is_over_cannot_begin(pods):
    async def live(here):
        pod = Pod(await here.client.register(here.request()))
        await here.client.seal(pod.launch)
        return await pod.begin()

    status, answer = lively(pods, live)
    assert (status, answer["error"]["type"]) == (403, "sealed")


def test_tokens_are_good_from_their_own_pod_alone(pods):
    async def live(here):
        mine, other = await here.launch(1), await here.launch(2)
        thief = Pod(mine.registration, other.address)
        found = [
            await thief.ask("GET", "/tools"),
            await thief.as_freezer("POST", "/launch/dead"),
            await thief.as_prepare("GET", "/launch/canaries"),
        ]
        assert (await mine.ask("GET", "/tools"))[0] == 200
        await here.client.seal(mine.launch)
        stolen = await thief.put("entries", b"forged")
        kinds = [finding.type for finding in (await here.client.seal(other.launch)).findings]
        return [(each[0], each[1]["error"]["type"]) for each in [*found, stolen]], kinds

    answers, kinds = lively(pods, live)
    assert answers == [(403, "wrong_token"), (403, "wrong_token"), (409, "already_begun"), (403, "wrong_token")]
    assert "wrong_token" in kinds  # written down against the pod that tried


def test_where_addresses_are_hidden_tokens_alone_count(pods):
    async def live(here):
        pod = await here.launch()
        return (await Pod(pod.registration).ask("GET", "/tools"))[0]

    assert lively(pods, live, pod_addresses=False) == 200


def test_prepare_gets_the_bundles_of_its_launch_alone(pods):
    async def live(here):
        for name in ("mine", "other"):
            await here.store.put_blob(keys.bundle("sandbox", name), name.encode() * 100_000)
        await here.store.put_blob(keys.bundle("solutions", "mine"), b"answer")
        bundles = (BundleRef(audience="sandbox", digest="sha256:mine"), BundleRef(audience="sandbox", digest="gone"))
        pod = Pod(await here.client.register(here.request(bundles=bundles)))
        paths = (
            "sandbox/sha256:mine",
            "sandbox/mine",
            "sandbox/other",
            "solutions/mine",
            "graders/mine",
            "sandbox/gone",
        )
        return [await pod.fetch(f"/launch/bundle/{path}") for path in paths]

    found = lively(pods, live)
    assert [status for status, _ in found] == [200, 200, 404, 404, 404, 503]
    assert found[0][1] == found[1][1] == b"mine" * 100_000


def test_canaries_are_those_that_the_gateway_has_just_reached(pods):
    async def live():
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with pods(canaries=[f"localhost:{port}", "127.0.0.1:1"]).running() as here:
            pod = Pod(await here.client.register(here.request()))
            while not (alive := (await pod.as_prepare("GET", "/launch/canaries"))[1]["canaries"]):
                await asyncio.sleep(0.02)
            server.close()
            await server.wait_closed()
            while (await pod.as_prepare("GET", "/launch/canaries"))[1]["canaries"]:
                await asyncio.sleep(0.1)
            return alive, port

    alive, port = asyncio.run(live())
    assert alive == [f"127.0.0.1:{port}"]


def test_the_freezer_is_told_to_stop_at_a_limit_and_when_an_operator_asks(pods):
    async def live(here):
        limited, halted = await here.launch(1, budgets={"max_steps": 1}), await here.launch(2)
        waits = [asyncio.create_task(pod.as_freezer("GET", "/launch/stop")) for pod in (limited, halted)]
        for _ in range(2):
            await limited.chat()
        for _ in range(2):
            await here.client.stop(halted.launch)
        told = [(await wait)[1]["stopped"] for wait in waits]
        again = (await halted.as_freezer("GET", "/launch/stop"))[1]
        for pod in (limited, halted):
            await here.client.stop(pod.launch)
            await here.client.seal(pod.launch)
            await pod.deliver()
            await here.client.stop(pod.launch)
        found = [await here.client.delivered(pod.launch) for pod in (limited, halted)]
        return told, again, [each.cancelled for each in found], await here.client.seal(halted.launch)

    told, again, cancelled, seal = lively(pods, live)
    assert told == ["step_cap", "cancelled"]
    assert again == {"stopped": "cancelled", "sealed": False}
    assert cancelled == [False, True]  # the limit came first
    assert seal.stopped is None


def test_the_freezer_may_prove_the_death_itself(pods):
    async def live(here):
        pod = await here.launch()
        waiting = asyncio.create_task(here.client.stop_reason(pod.launch))
        first, second = await pod.as_freezer("POST", "/launch/dead"), await pod.as_freezer("POST", "/launch/dead")
        with pytest.raises(GatewayError) as caught:
            await waiting
        over = await pod.chat()
        await pod.deliver(interrupted=True)
        adopted = await here.client.register(here.request(epoch=2))
        return first, second, caught.value.cause, over, adopted.door, await here.client.delivered(pod.launch)

    first, second, cause, over, door, delivery = lively(pods, live)
    assert first == second == (200, {"stopped": None, "sealed": True})
    assert (cause, over[0], over[1]["error"]["type"]) == ("launch_sealed", 403, "sealed")
    assert (door.known, door.begun, door.sealed, delivery.interrupted) == (True, True, True, True)


def test_the_reaper_seals_what_its_driver_left(pods):
    async def live(here):
        pod = await here.launch()
        path = f"/reaper/launches/{pod.launch}/seal"
        first, second = await here.admin("reaper", "POST", path), await here.admin("reaper", "POST", path)
        unknown = await here.admin("reaper", "POST", f"/reaper/launches/{'0' * 24}/seal")
        return first, second, unknown

    first, second, unknown = lively(pods, live)
    assert first == second
    assert (first[0], first[1]["trial"], unknown[0]) == (200, "task-1@careful:1", 404)


def test_the_working_clock_starts_with_the_agent(pods):
    async def live(here):
        pod = await here.launch()
        clock = here.registry.find(pod.launch).clock
        await pod.as_freezer("GET", "/launch/stop?started=0")
        waiting = clock.started
        poll = asyncio.create_task(pod.as_freezer("GET", "/launch/stop"))
        while clock.started is None:
            await asyncio.sleep(0.01)
        poll.cancel()
        other = await here.launch(2)
        await other.ask("GET", "/tools")
        return waiting, here.registry.find(other.launch).clock.started

    waiting, other = lively(pods, live)
    assert waiting is None
    assert other <= time.monotonic()


def test_a_state_that_cannot_be_had_is_reported_all_the_same(pods):
    async def live(here):
        pod = await here.launch()
        await here.client.seal(pod.launch)
        status, _ = await pod.as_freezer("POST", "/launch/frozen", {"lost": "the freezer ran out of memory"})
        later = await pod.as_freezer("POST", "/launch/frozen", {"lost": "another reason"})
        return status, later[0], await here.client.delivered(pod.launch)

    status, later, delivery = lively(pods, live)
    assert (status, later, delivery.frozen.state) == (200, 200, None)
    assert [(each.type, each.detail) for each in delivery.frozen.findings] == [
        ("state_lost", "the freezer ran out of memory")
    ]


@pytest.mark.parametrize(
    "report", [{"output_b64": "%%%"}, {"extra": 1}, {"disk_bytes": -1}, {"final_b64": "x" * 100_000}, []]
)
def test_a_report_that_is_none_is_refused(pods, report):
    async def live(here):
        pod = await here.launch()
        await here.client.seal(pod.launch)
        return await pod.as_freezer("POST", "/launch/frozen", report)

    assert lively(pods, live)[0] == 400


@pytest.mark.parametrize("nonsense", [True, "x", [], {"code": "x"}, -1e400, 10**400])
def test_advice_that_an_agent_may_have_written_never_refuses_a_report(pods, nonsense):
    async def live(here):
        pod = await here.launch()
        await here.client.seal(pod.launch)
        status, _ = await pod.deliver(exit=nonsense, started=nonsense, ended=nonsense, cause=nonsense)
        return status, await here.client.delivered(pod.launch)

    status, delivery = lively(pods, live)
    assert (status, delivery.exit, delivery.started, delivery.ended) == (200, None, None, None)
    assert delivery.cause is None
    assert delivery.frozen.state is not None


def test_a_report_of_any_size_is_refused_unread(pods):
    async def live(here):
        pod = await here.launch()
        token = pod.registration.door.token
        head = f"POST /launch/frozen HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {1 << 30}\r\n\r\n"
        with pod.raw(head.encode()) as connection:
            return await asyncio.to_thread(connection.recv, 12)

    assert lively(pods, live) == b"HTTP/1.1 413"


def test_a_gateway_without_its_volume_gives_back_what_was_delivered(pods):
    async def live():
        here = pods()
        async with here.running():
            done, sealed, idle = await here.launch(1), await here.launch(2), await here.launch(3)
            seals = [await here.client.seal(pod.launch) for pod in (done, sealed)]
            await done.deliver(exit={"code": 7}, cause="out_of_memory")
            first = await here.client.delivered(done.launch)
        here.lose_volume()
        async with here.running():
            waited = await here.client.delivered(done.launch)  # by the driver that registered it
            seal = await here.client.seal(done.launch)
            causes = []
            for call in (
                here.client.stop_reason(idle.launch),
                here.client.delivered(idle.launch),
                here.client.stop_reason(sealed.launch),
                here.client.stop_reason(done.launch),
            ):
                with pytest.raises(GatewayError) as caught:
                    await call
                causes.append(caught.value.cause)
            lost = await here.client.seal_lost("run-1", TrialId("task-1", "careful", 2), 1, 2)
            never = await here.client.seal_lost("run-1", TrialId("task-1", "careful", 3), 1, 2)
            old = await idle.ask("GET", "/tools"), await idle.as_freezer("POST", "/launch/dead")
            adopted = await here.client.register(here.request(1, epoch=2))
            later = await here.client.delivered(adopted.launch)
            assert (seal, lost, never) == (*seals, None)
            return first, waited, later, adopted.door, done.registration.door, causes, [each[0] for each in old]

    first, waited, later, new, old, causes, statuses = asyncio.run(live())
    assert first == waited == later
    assert (first.exit.code, first.cause) == (7, "out_of_memory")
    assert (new.known, new.begun, new.sealed) == (True, True, True)
    assert new.instance != old.instance
    assert causes == [*["gateway_restarted"] * 3, "launch_sealed"]  # only what was delivered is not lost
    assert statuses == [401, 401]


def test_a_store_that_fails_while_a_bundle_is_sent_leaves_half_a_bundle_and_no_whole_one(pods, monkeypatch):
    async def broken(_key):
        yield b"x" * 1000
        msg = "away"
        raise StoreError(msg)

    async def live(here):
        monkeypatch.setattr(here.store, "stream", broken)
        pod = Pod(await here.client.register(here.request(bundles=(BundleRef(audience="sandbox", digest="d"),))))
        await pod.fetch("/launch/bundle/sandbox/d")

    with pytest.raises(aiohttp.ClientError):
        lively(pods, live)


def test_a_launch_that_everybody_left_is_sealed_and_forgotten_at_last(pods, monkeypatch):
    monkeypatch.setattr("orchestrator.gateway.cluster.SWEEP_SECONDS", 0.01)
    monkeypatch.setattr("orchestrator.gateway.registry._REMEMBERED", 1)

    async def live(here):
        left, other = await here.launch(1), await here.launch(2)
        launch = here.registry.find(left.launch)
        launch.expires = 1
        await asyncio.wait_for(launch.sealed.wait(), 10)
        record = keys.record("run-1", TRIAL, 1, 1, "seal.json")
        await here.client.register(here.request(3))
        with pytest.raises(GatewayError) as caught:
            await here.client.stop_reason(left.launch)
        return await here.store.exists(record), caught.value.cause, (await other.chat())[0]

    assert lively(pods, live) == (True, "gateway_restarted", 200)


def test_a_launch_has_its_time_from_when_it_begins_however_long_it_has_waited(pods, monkeypatch):
    now, ahead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: now() + ahead[0])
    day = 24 * 3600

    async def live(here):
        first = await here.client.register(here.request())
        ahead[0] = 13.9 * day  # in a queue
        pod = Pod(first)
        begun = await pod.begin()
        again = await here.client.register(here.request(epoch=2))
        statuses = [begun[0], (await pod.chat())[0]]
        ahead[0] += 1.9 * day
        statuses.append((await pod.chat())[0])
        left = here.registry.expired()
        ahead[0] += 1.1 * day
        statuses += [(await pod.chat())[0], (await pod.as_freezer("GET", "/launch/stop"))[0]]
        return first.door == replace(again.door, known=False, begun=False), statuses, left, here.registry.expired()

    same, statuses, left, later = lively(pods, live)
    assert (same, statuses, left) == (True, [200, 200, 200, 401, 401], [])
    assert len(later) == 1


def test_a_launch_that_never_began_and_is_sealed_takes_no_memory(pods, monkeypatch):
    monkeypatch.setattr("orchestrator.gateway.registry._REMEMBERED", 1)

    async def live(here):
        waited, runs = await here.client.register(here.request(1)), await here.launch(2)
        seals = [await here.client.seal(each.launch) for each in (waited, runs)]
        await here.client.register(here.request(3))
        with pytest.raises(Refusal, match="not known here"):
            here.registry.find(waited.launch)
        here.registry.find(runs.launch)  # its state may be on its way
        return seals[0] == await here.client.seal(waited.launch)

    assert lively(pods, live)


def test_a_script_of_a_pod_is_played_like_any_other(pods):
    async def live(here):
        pod = await here.launch(script=ENDLESS)
        return [(await pod.chat())[0] for _ in range(3)]

    assert lively(pods, live) == [200, 200, 200]


@pytest.mark.parametrize("epoch", [1, 2], ids=["another process of its driver", "another driver"])
def test_a_launch_that_was_sealed_before_a_restart_is_over_and_does_not_begin_anew(pods, epoch):
    async def live():
        here = pods()
        async with here.running():
            pod = await here.launch()
            await pod.chat()
            seal = await here.client.seal(pod.launch)
        async with here.running():
            found = await here.client.register(here.request(epoch=epoch))
            return seal, found.door, await Pod(found, pod.address).begin(), await here.client.seal(found.launch)

    before, door, begun, after = asyncio.run(live())
    assert (door.known, door.sealed, begun[0]) == (True, True, 403)
    assert before == after
    assert after.steps == 1
