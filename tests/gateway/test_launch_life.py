"""The life of a launch at the gateway: registered, handed over, used, sealed, its state taken."""

from __future__ import annotations

import asyncio

import pytest
from gateway_world import hand_over, put_state

from orchestrator.errors import GatewayError, LeaseLostError, StoreError
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Seal
from orchestrator.records.state import FrozenState
from orchestrator.trace.read import is_whole, read_events

TRIAL = TrialId("task-1", "careful", 1)


def test_a_launch_from_registration_to_state(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch()
            status, answer, headers = await inside.chat()
            assert (status, answer["choices"][0]["message"]["content"]) == (200, "answer 0")
            assert headers["x-orchestrate-steps-left"] == "39"
            done = await inside.ask("POST", "/tools/finish", {"status": "completed", "confidence": 0.5})
            assert done[0] == 200
            seal = await here.client.seal(inside.launch)
            entries = await put_state(inside.registration, "entries", b"e" * 5000)
            changes = await put_state(inside.registration, "changes", b"")
            trajectory = await here.store.get(seal.trajectory.key)
            state = FrozenState.from_bytes(await here.store.get(keys.record("run-1", TRIAL, 1, 1, "state.json")))
            record = Seal.from_bytes(await here.store.get(keys.record("run-1", TRIAL, 1, 1, "seal.json")))
            return seal, entries, changes, trajectory, state, record

    seal, entries, changes, trajectory, state, record = asyncio.run(live())
    assert seal == record
    assert (seal.steps, seal.usage.total, seal.usage.cost_nano_usd) == (1, 15, 20_000)
    assert seal.finish is not None
    assert (seal.finish.status, seal.finish.confidence, seal.models, seal.stopped) == (
        "completed",
        0.5,
        ("careful",),
        None,
    )
    assert entries[0] == changes[0] == 200
    assert (state.entries.sha256, state.changes.size) == (entries[1]["sha256"], 0)
    assert is_whole(trajectory, seal.trajectory)
    assert [event.type for event in read_events(trajectory)] == [
        "launch",
        "model_request",
        "model_response",
        "tool_call",
        "finish",
        "tool_result",
        "seal",
    ]


def test_sealing_twice_and_after_a_restart_gives_the_same_seal(world):
    async def live():
        here = world()
        async with here.running():
            inside = await here.launch()
            await inside.chat()
            first, second = await asyncio.gather(here.client.seal(inside.launch), here.client.seal(inside.launch))
        async with here.running():
            return first, second, await here.client.seal(inside.launch)

    first, second, third = asyncio.run(live())
    assert first == second == third


def test_a_restarted_gateway_does_not_know_the_launch(world):
    async def live():
        here = world()
        async with here.running():
            inside = await here.launch()
        async with here.running():
            causes = []
            for call in (here.client.seal(inside.launch), here.client.stop_reason(inside.launch)):
                with pytest.raises(GatewayError) as caught:
                    await call
                causes.append(caught.value.cause)
            with pytest.raises(StoreError) as caught:
                await here.client.register(here.request())
            return [*causes, caught.value.cause]

    assert asyncio.run(live()) == ["gateway_restarted", "gateway_restarted", "trajectory_exists"]


def test_the_state_is_taken_after_the_seal_and_once(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch()
            early = await put_state(inside.registration, "entries", b"early")
            await here.client.seal(inside.launch)
            first = await put_state(inside.registration, "entries", b"first")
            second = await put_state(inside.registration, "entries", b"second")
            return early, first, second

    early, first, second = asyncio.run(live())
    assert (early[0], early[1]["error"]["type"]) == (409, "not_sealed")
    assert first[0] == 200
    assert second == (409, first[1])


def test_registering_again_makes_fresh_tokens_and_ends_the_old_ones(world):
    async def live():
        async with world().running() as here:
            old = await here.client.register(here.request())
            inside = await here.launch()
            assert inside.launch == old.launch
            good = await inside.ask("GET", "/tools")
            bad = await inside.ask("GET", "/tools", token=old.agent_token)
            with pytest.raises(RuntimeError, match="last registration"):
                await hand_over(old)
            return good[0], bad[0], bad[1]["error"]["type"]

    assert asyncio.run(live()) == (200, 403, "wrong_token")


def test_a_lower_epoch_is_refused(world):
    async def live():
        async with world().running() as here:
            await here.client.register(here.request(epoch=5))
            with pytest.raises(LeaseLostError, match="epoch 4 of run run-1 is over"):
                await here.client.register(here.request(sample=2, epoch=4))

    asyncio.run(live())


def test_a_sealed_launch_cannot_be_registered_again(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch()
            await here.client.seal(inside.launch)
            with pytest.raises(GatewayError) as caught:
                await here.client.register(here.request())
            return caught.value.cause

    assert asyncio.run(live()) == "already_sealed"


def test_waiting_for_a_stop_ends_when_the_launch_is_sealed(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch()
            waiting = asyncio.create_task(here.client.stop_reason(inside.launch))
            await here.client.spending("run-1")
            await here.client.seal(inside.launch)
            with pytest.raises(GatewayError) as caught:
                await waiting
            return caught.value.cause

    assert asyncio.run(live()) == "launch_sealed"
