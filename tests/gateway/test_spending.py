"""Budgets hold, in parallel too, and the reason stays right whatever the agent does afterwards."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from gateway_world import ENDLESS, put_state

from orchestrator.errors import GatewayError
from orchestrator.interfaces import Spending


def calls(*names, usage=None):
    turn: dict[str, Any] = {"calls": [{"name": name} for name in names]}
    return {**turn, "usage": usage} if usage else turn


def turns(*listed):
    return {"conversations": [{"turns": list(listed)}]}


def after(count):
    """Messages of a conversation in which the model has answered so often."""
    return [{"role": "user", "content": "go"}, *[{"role": "assistant", "content": "x"}] * count]


def test_fifty_parallel_calls_never_exceed_the_steps(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch(budgets={"max_steps": 7})
            answers = await asyncio.gather(*(inside.chat() for _ in range(50)))
            return answers, await here.client.seal(inside.launch)

    answers, seal = asyncio.run(live())
    good = [answer for answer in answers if answer[0] == 200]
    bad = [answer for answer in answers if answer[0] != 200]
    assert (len(good), seal.steps, seal.usage.total, seal.stopped) == (7, 7, 7 * 15, "step_cap")
    assert {answer[0] for answer in bad} == {403}
    assert {answer[1]["error"]["code"] for answer in bad} == {"step_cap"}
    assert bad[0][1]["error"] == {
        "type": "budget_exhausted",
        "code": "step_cap",
        "message": "the limit of 7 model responses is reached; the trial ends now",
        "param": None,
    }


def test_using_all_steps_without_asking_for_more_is_no_ending(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch(budgets={"max_steps": 1})
            answer = await inside.chat()
            done = await inside.ask("POST", "/tools/finish", {"status": "completed"})
            return answer[0], done[0], await here.client.seal(inside.launch)

    first, second, seal = asyncio.run(live())
    assert (first, second, seal.stopped) == (200, 200, None)


def test_a_step_that_failed_is_given_to_one_that_waits(world):
    script = turns({"error": 400}, {"text": "never"})

    async def live():
        async with world().running() as here:
            inside = await here.launch(script=script, budgets={"max_steps": 1})
            answers = await asyncio.gather(*(inside.chat() for _ in range(3)))
            return [answer[0] for answer in answers], await here.client.seal(inside.launch)

    statuses, seal = asyncio.run(live())
    assert statuses == [400, 400, 400]
    assert (seal.steps, seal.stopped) == (0, "model_request_error")


def test_the_stop_comes_after_a_moment_and_names_the_first_reason(world):
    async def live():
        async with world(grace_seconds=0.3).running() as here:
            inside = await here.launch(budgets={"max_steps": 1})
            waiting = asyncio.create_task(here.client.stop_reason(inside.launch))
            await inside.chat()
            spent = await inside.chat()
            began = time.monotonic()
            finish = await inside.ask("POST", "/tools/finish", {"status": "completed"})
            reason = await waiting
            return spent[0], finish[0], reason, time.monotonic() - began, await here.client.seal(inside.launch)

    spent, finish, reason, seconds, seal = asyncio.run(live())
    assert (spent, finish, reason) == (403, 200, "step_cap")
    assert 0.1 < seconds < 5
    assert seal.stopped == "step_cap"


def test_tool_calls_beyond_the_limit_never_reach_the_agent(world):
    script = turns(calls("a", "b"), calls("c"), calls("d", "e"))

    async def live():
        async with world().running() as here:
            inside = await here.launch(script=script, budgets={"max_tool_calls": 3})
            answers = [await inside.chat(after(count)) for count in range(3)]
            return answers, await here.client.seal(inside.launch)

    answers, seal = asyncio.run(live())
    assert [answer[0] for answer in answers] == [200, 200, 403]
    assert answers[2][1]["error"]["code"] == "tool_call_cap"
    assert (seal.tool_calls, seal.steps, seal.stopped) == (3, 3, "tool_call_cap")


@pytest.mark.parametrize(
    ("budgets", "code"),
    [({"max_tokens": 30}, "token_budget"), ({"max_cost_usd": 0.00004}, "cost_budget")],
)
def test_tokens_and_cost_stop_the_next_call(world, budgets, code):
    async def live():
        async with world().running() as here:
            inside = await here.launch(budgets=budgets)
            answers = [await inside.chat() for _ in range(3)]
            return answers, await here.client.seal(inside.launch)

    answers, seal = asyncio.run(live())
    assert [answer[0] for answer in answers] == [200, 200, 403]
    assert (seal.stopped, seal.usage.total, seal.usage.cost_nano_usd) == (code, 30, 40_000)


def test_a_cost_limit_needs_a_price(world):
    async def live():
        async with world().running() as here:
            with pytest.raises(GatewayError, match="model scripted/careful has no price") as caught:
                await here.launch(budgets={"max_cost_usd": 1.0}, prices={})
            return caught.value.cause

    assert asyncio.run(live()) == "unpriced_model"


def test_without_a_price_the_cost_is_unknown_and_not_zero(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch(prices={})
            await inside.chat()
            return await here.client.seal(inside.launch)

    assert asyncio.run(live()).usage.cost_nano_usd is None


def test_the_wall_clock_stops_at_once(world):
    async def live():
        async with world(grace_seconds=60).running() as here:
            inside = await here.launch(budgets={"max_wall_seconds": 1})
            began = time.monotonic()
            reason = await here.client.stop_reason(inside.launch)
            seconds = time.monotonic() - began
            answer = await inside.chat()
            return reason, seconds, answer, await here.client.seal(inside.launch)

    reason, seconds, answer, seal = asyncio.run(live())
    assert (reason, seal.stopped, answer[1]["error"]["code"]) == ("wall_clock",) * 3
    assert 0.8 < seconds < 3


def test_the_working_clock_starts_at_the_hand_over(world):
    async def live():
        async with world().running() as here:
            registration = await here.client.register(here.request())
            clock = here.registry.find(registration.launch).clock
            before = clock.working(time.monotonic())
            inside = await here.launch()
            await inside.chat()
            return before, clock.working(time.monotonic())

    before, after_a_call = asyncio.run(live())
    assert before == 0
    assert after_a_call > 0


def test_the_spending_of_a_run_counts_launches_that_run_ended_and_were_forgotten(world, monkeypatch):
    monkeypatch.setattr("orchestrator.gateway.registry._REMEMBERED", 1)

    async def live():
        async with world().running() as here:
            nothing = await here.client.spending("run-1")
            for sample in (1, 2, 3):
                inside = await here.launch(sample)
                await inside.chat()
                if sample < 3:
                    await here.client.seal(inside.launch)
                    for part in ("entries", "changes"):
                        await put_state(inside.registration, part, b"x")
            other = await here.client.spending("another run/1")
            return nothing, other, await here.client.spending("run-1"), len(here.registry._launches)

    nothing, other, found, remembered = asyncio.run(live())
    assert nothing == other == Spending()
    assert found == Spending(running=1, steps=3, cost_nano_usd=3 * 20_000)
    assert remembered < 3


def test_headers_say_what_is_left(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch(script=ENDLESS, budgets={"max_steps": 5, "max_tokens": 100, "max_cost_usd": 1.0})
            return (await inside.chat())[2]

    headers = asyncio.run(live())
    found = {name: headers[f"x-orchestrate-{name}-left"] for name in ("steps", "tokens", "usd", "tool-calls")}
    assert found == {"steps": "4", "tokens": "85", "usd": "0.999980", "tool-calls": "100"}
