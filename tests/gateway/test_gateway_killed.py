"""A gateway of a cluster that is killed: the process after it goes on with what was at rest, and ends what was not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from gateway_world import ENDLESS
from provider_world import ANSWER
from provider_world import provider as model
from tcp_world import Pod
from test_service_processes import Served

from orchestrator.errors import OrchestrateError, StoreError
from orchestrator.gateway import volume as volume_module
from orchestrator.gateway.registry import Registry
from orchestrator.records import keys
from orchestrator.records.outcome import Seal
from orchestrator.spec.bundle import scripts_bundle
from orchestrator.spec.scripts import Script
from orchestrator.storage.bundles import publish
from orchestrator.trace import write as write_module
from orchestrator.trace.read import read_events

MANY = 20


async def _hangs(request):
    await asyncio.sleep(3600)


def talk(*said):
    """A conversation as far as it has come."""
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(said)]


def use(here, url):
    """Give the gateway a provider."""
    said = json.loads(here.gateway_file.read_text())
    (here.folder / "key").write_text("k" * 20)
    said["providers"] = {"slow": {"base_url": url, "key_file": str(here.folder / "key")}}
    here.gateway_file.write_text(json.dumps(said))


async def many(here, url):
    use(here, url)
    script = Script.model_validate_json(json.dumps(ENDLESS))
    scripts = await publish(here.store, "world", scripts_bundle({"task-1": script}))
    models = {"main": "scripted/careful", "other": "slow/m"}
    async with here.service("gateway") as gateway, here.client:
        pods = []
        for sample in range(1, MANY + 1):
            pod = Pod(await here.client.register(here.request(sample, scripts=scripts, models=models)))
            await pod.begin()
            assert (await pod.chat(talk("go")))[0] == 200
            pods.append(pod)
        calls = [asyncio.create_task(pod.chat(talk("go"), model="other")) for pod in pods[::2]]
        stops = [asyncio.create_task(here.client.stop_reason(pod.launch)) for pod in pods[::2]]
        await asyncio.sleep(0.5)
        gateway.kill()
        broken = await asyncio.gather(*calls, return_exceptions=True)
        await gateway.wait()
        async with here.service("gateway"):
            late = [await pod.chat(talk("go", "answer 0", "on")) for pod in pods[1::2]]
            words = await asyncio.gather(*stops)
            seals = [await here.client.seal(pod.launch) for pod in pods]
    return broken, late, words, seals


def test_of_twenty_launches_those_at_rest_go_on(short_folder):
    here = Served(short_folder, str(short_folder / "store"), patience_s=30)

    async def live():
        async with model(_hangs) as (url, _):
            return await many(here, url)

    broken, late, words, seals = asyncio.run(live())
    assert all(isinstance(each, aiohttp.ClientError) for each in broken)
    assert [(status, answer["choices"][0]["message"]["content"]) for status, answer, _ in late] == [
        (200, "answer 1")
    ] * (MANY // 2)
    assert words == ["infra_lost"] * (MANY // 2)
    lost, kept = seals[::2], seals[1::2]
    assert {(seal.stopped, seal.steps) for seal in lost} == {("infra_lost", 1)}
    assert {(seal.stopped, seal.steps, seal.usage.output, seal.unheard) for seal in kept} == {(None, 2, 10, False)}
    assert all(0 < seal.waiting_s < 60 for seal in kept)
    events = read_events(asyncio.run(here.store.get(kept[0].trajectory.key)))
    second = [event for event in events if event.type == "model_request"][1]
    assert (second.data["conversation"], second.data["kept"], second.data["total"]) == (0, 1, 3)
    assert [event.seq for event in events] == list(range(len(events)))


@pytest.mark.slow
def test_what_is_under_way_at_sigterm_ends_first_and_what_comes_waits_for_the_next_gateway(short_folder):
    here = Served(short_folder, str(short_folder / "store"), patience_s=30)

    async def live():
        at_provider, answered = asyncio.Event(), asyncio.Event()

        async def held(_request):
            at_provider.set()
            await answered.wait()
            return web.json_response(ANSWER)

        async with model(held) as (url, _), here.client:
            use(here, url)
            async with here.service("gateway") as gateway:
                busy, other = [
                    Pod(await here.client.register(here.request(n, models={"main": "slow/m"}))) for n in (1, 2)
                ]
                await busy.begin()
                await other.begin()
                call = asyncio.create_task(busy.chat())
                await at_provider.wait()
                gateway.send_signal(signal.SIGTERM)
                while b"begins nothing new" not in here.logs["gateway"].read_bytes():
                    await asyncio.sleep(0.02)
                late = asyncio.create_task(other.chat())
                await asyncio.sleep(0.1)
                waits = not late.done()
                answered.set()
                status = (await call)[0]
                code = await gateway.wait()
                with pytest.raises(aiohttp.ClientError):
                    await late
            async with here.service("gateway"):
                again = (await other.chat())[0]
                return waits, status, code, again, [await here.client.seal(pod.launch) for pod in (busy, other)]

    waits, status, code, again, seals = asyncio.run(live())
    assert (waits, status, code, again) == (True, 200, 0, 200)
    assert [(seal.stopped, seal.steps) for seal in seals] == [(None, 1), (None, 1)]


def test_a_store_that_is_away_is_waited_for_by_who_takes_launches_up(pods, monkeypatch):
    monkeypatch.setattr("orchestrator.gateway.recovery._STORE_SECONDS", 0.01)
    failures = iter(range(3))

    async def live():
        here = pods()
        async with here.running():
            pod = await here.launch()
            assert (await pod.chat(talk("go")))[0] == 200
        lists = here.store.list

        async def away(prefix):
            if next(failures, None) is not None:
                msg = "it is away"
                raise StoreError(msg)
            return await lists(prefix)

        here.store.list = away
        async with here.running():
            return (await pod.chat(talk("go", "answer 0", "on")))[0], (await here.client.seal(pod.launch)).steps

    assert asyncio.run(live()) == (200, 2)
    assert next(failures, None) is None


def test_a_store_that_is_far_away_is_asked_about_many_launches_at_one_time(pods):
    many = asyncio.Barrier(12)

    async def live():
        here = pods()
        async with here.running():
            waiting = [await here.launch(n + 1) for n in range(many.parties)]
        lists = here.store.list

        async def far(prefix):
            await many.wait()
            return await lists(prefix)

        here.store.list = far
        async with asyncio.timeout(20), here.running():
            here.store.list = lists
            return [(await here.client.seal(pod.launch)).stopped for pod in waiting]

    assert asyncio.run(live()) == [None] * many.parties


class _KilledError(OSError):
    pass


class Clock:
    """Counts what reaches the volume; from a number on nothing does, as when the process has been killed before that."""

    def __init__(self, monkeypatch, last):
        self.last, self.done = last, 0
        for module, name in ((write_module, "_write"), (volume_module, "_replace"), (volume_module, "_write")):
            monkeypatch.setattr(module, name, self._until(getattr(module, name)))

    @property
    def is_over(self):
        return self.done >= self.last

    def _until(self, method):
        def counted(*words, **more):
            if self.is_over:
                raise _KilledError(5, "killed")
            self.done += 1
            return method(*words, **more)

        return counted


async def life(ask):
    """Do what driver, agent and freezer do, one after the other, again where nobody answered. Returns the last answer."""
    for step in (
        lambda here, _: here.client.register(here.request()),
        lambda _, pod: pod.begin(),
        lambda _, pod: pod.chat(talk("go")),
        lambda _, pod: pod.ask("POST", "/tools/finish", {"status": "completed"}),
        lambda here, pod: here.client.seal(pod.launch),
        lambda _, pod: pod.deliver(exit={"code": 0}),
        lambda here, pod: here.client.delivered(pod.launch),
    ):
        answer = await ask(step)
    return answer


@pytest.mark.parametrize("last", [0, 1, 2, 4, 7, 11, 15, 19, 23, 27, 31])
def test_a_launch_is_whole_or_lost_wherever_its_gateway_was_killed(pods, monkeypatch, last):
    here, clock = pods(), Clock(monkeypatch, last)
    state = SimpleNamespace(pod=None, is_killed=False)
    leave = Registry.leave

    async def ended(registry):
        await (registry.abandon() if clock.is_over else leave(registry))

    monkeypatch.setattr(Registry, "leave", ended)

    async def ask(step):
        """Ask the gateway that lives. Each question has one of its own; one that has died is followed by another, which is asked again."""
        while True:
            answer = None
            with contextlib.suppress(OrchestrateError, aiohttp.ClientError):
                async with here.running():
                    answer = await step(here, state.pod)
            if clock.is_over:
                clock.last, state.is_killed = 10**9, True
                continue
            assert answer is not None
            assert not isinstance(answer, tuple) or answer[0] in {200, 403, 409, 502}
            if state.pod is None:
                state.pod = Pod(answer)
            return answer

    async def live():
        async with asyncio.timeout(50):
            delivery = await life(ask)
        found = await here.store.get(keys.record("run-1", here.request().trial, 1, 1, "seal.json"))
        seal = Seal.from_bytes(found)
        return delivery, seal, read_events(await here.store.get(seal.trajectory.key))

    delivery, seal, events = asyncio.run(live())
    assert state.is_killed
    assert delivery.frozen.state is not None
    assert [event.seq for event in events] == list(range(len(events)))
    assert seal.stopped == "infra_lost" or (seal.stopped is None and seal.finish is not None)
    assert seal.steps in ({0, 1} if seal.stopped else {1, 2})
