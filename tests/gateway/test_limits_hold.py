"""A race never exceeds a limit by more than the calls that were in flight when it was reached."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider_world import ANSWER, USAGE, call, chunk, provider, stream

from orchestrator.gateway.meter import NANO, BudgetSpentError, Meter
from orchestrator.records.usage import Usage
from orchestrator.spec.task import Budgets

calls = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(0, 5), st.booleans()), min_size=1, max_size=50
)
"""Tokens, tool calls, how long it takes, and whether it fails."""


class Race:
    """Plays calls against a meter and watches what it lets through."""

    def __init__(self, budgets):
        self.meter = Meter(budgets)
        self.in_flight = 0
        self.at_limit = None
        """Calls in flight when tokens or cost reached their limit."""
        self.after = 0
        """Calls that were let through after that."""
        self.passed_tools = 0
        self.refused = 0

    def reached(self):
        used, budgets = self.meter.usage, self.meter.budgets
        return used.total >= budgets.max_tokens or used.cost_nano_usd >= round(budgets.max_cost_usd * NANO)

    async def play(self, tokens, tools, rounds, fails):
        try:
            await self.meter.reserve()
        except BudgetSpentError:
            self.refused += 1
            return
        self.after += self.at_limit is not None
        self.in_flight += 1
        for _ in range(rounds):
            await asyncio.sleep(0)
        self.in_flight -= 1
        await self.meter.settle(None if fails else Usage(output=tokens, cost_nano_usd=tokens * 1000))
        if self.at_limit is None and self.reached():
            self.at_limit = self.in_flight
        if not fails:
            with contextlib.suppress(BudgetSpentError):
                self.meter.take_tool_calls(tools)
                self.passed_tools += tools


@given(calls, st.integers(1, 20), st.integers(1, 400), st.integers(1, 400), st.integers(1, 60))
def test_whatever_the_order(played, steps, tokens, micro_usd, tools):
    budgets = Budgets(max_steps=steps, max_tokens=tokens, max_cost_usd=micro_usd / 10**6, max_tool_calls=tools)

    async def live():
        race = Race(budgets)
        await asyncio.gather(*(race.play(*each) for each in played))
        return race

    race = asyncio.run(live())
    assert race.meter.steps <= steps
    assert race.passed_tools <= tools
    assert race.meter.tool_calls == race.passed_tools
    assert race.after == 0
    assert race.meter.usage.total < tokens + 40 * (1 + (race.at_limit or 0))
    assert race.refused + race.meter.steps + sum(fails for *_, fails in played) >= len(played)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("budgets", "code"), [({"max_tokens": 600}, "token_budget"), ({"max_cost_usd": 0.0006}, "cost_budget")]
)
def test_fifty_parallel_calls(world, streams, budgets, code):
    """120 tokens a call, five at one time at the provider: after five the limit is reached, and at most as many were under way."""
    whole = [chunk("hello"), chunk(finish="stop"), USAGE, "[DONE]"]

    async def live():
        step = stream(*whole, pause=0.01) if streams else ANSWER
        async with provider(step) as (url, _):
            made = {"base_url": url, "concurrency": 5}
            async with world(providers={"openai": made}, limits={"calls": 5}).running() as here:
                inside = await here.launch(
                    models={"main": "openai/gpt-x"},
                    scripts=None,
                    budgets=budgets,
                    prices={"openai/gpt-x": {"input": 1.0, "output": 1.0}},
                )
                body = {"model": "main", "messages": [{"role": "user", "content": "go"}], "stream": streams}
                asked = [raw(inside, body) for _ in range(50)]
                answers = await asyncio.gather(*asked)
                return answers, await here.client.seal(inside.launch)

    answers, seal = asyncio.run(live())
    assert seal.stopped == code
    assert 5 <= seal.steps <= 5 + 4
    good = [status for status, _ in answers if status == 200]
    assert len(good) == seal.steps
    assert {json.loads(data)["error"]["code"] for status, data in answers if status != 200} <= {code}


async def raw(inside, body):
    import aiohttp

    headers = {"Authorization": f"Bearer {inside.registration.agent_token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{inside.url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        return response.status, await response.read()


def test_parallel_streams_share_the_limit_of_tool_calls(world):
    """Ten streams of two calls each, seven allowed: exactly seven begin, and none is seen twice."""

    async def live():
        step = stream(chunk("x"), call(0, "a"), call(1, "b"), chunk(finish="tool_calls"), USAGE, "[DONE]", pause=0.01)
        async with provider(step) as (url, _), world(providers={"openai": {"base_url": url}}).running() as here:
            inside = await here.launch(
                models={"main": "openai/gpt-x"}, scripts=None, prices={}, budgets={"max_tool_calls": 7}
            )
            body = {"model": "main", "messages": [{"role": "user", "content": "go"}], "stream": True}
            answers = await asyncio.gather(*(raw(inside, body) for _ in range(10)))
            return b"".join(data for _, data in answers), await here.client.seal(inside.launch)

    data, seal = asyncio.run(live())
    assert data.count(b'"name"') == 7
    assert (seal.tool_calls, seal.stopped) == (7, "tool_call_cap")
