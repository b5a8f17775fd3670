"""Questions to a provider that are no steps: few, and nothing that a provider says to them is held against the calls of others."""

from __future__ import annotations

import asyncio
import time

from provider_world import error, provider

COUNT = "/v1/messages/count_tokens"
BODY = {"model": "main", "messages": [{"role": "user", "content": "go"}]}


def test_too_many_counts_pause_and_slow_nobody_else(world):
    """The provider limits counting apart. An agent that floods it could have kept all trials waiting for a minute each time."""

    async def live():
        async with provider(error(429, **{"Retry-After": "30"})) as (url, seen):
            made = {"type": "anthropic", "base_url": url}
            async with world(providers={"p": made}).running() as here:
                inside = await here.launch(models={"main": "p/m"}, scripts=None)
                [status, _, _] = await inside.ask("POST", COUNT, BODY)
                limiter = here.registry.models.configured("p/m").limiter
                seal = await here.client.seal(inside.launch)
                return status, len(seen), limiter.window.places, limiter.window.resume_at, seal.stopped

    status, asked, places, resume_at, stopped = asyncio.run(live())
    assert (status, asked, places, stopped) == (502, 1, 64, None)
    assert resume_at < time.monotonic()


def test_counts_are_bounded_by_the_steps(world):
    async def live():
        async with provider({"input_tokens": 3}) as (url, seen):
            made = {"type": "anthropic", "base_url": url}
            async with world(providers={"p": made}).running() as here:
                inside = await here.launch(models={"main": "p/m"}, scripts=None, budgets={"max_steps": 1})
                statuses = [(await inside.ask("POST", COUNT, BODY))[0] for _ in range(12)]
                seal = await here.client.seal(inside.launch)
                return statuses, len(seen), {finding.type for finding in seal.findings}, seal.steps

    assert asyncio.run(live()) == ([200] * 10 + [429] * 2, 10, {"too_many_requests"}, 0)


def test_so_are_requests_that_the_provider_refuses(world):
    """They are no steps, and without a bound they would be a flood that the provider holds against the key of all."""

    async def live():
        refuse = error(400, {"error": {"message": "no"}})
        async with provider(refuse) as (url, seen), world(providers={"p": {"base_url": url}}).running() as here:
            inside = await here.launch(models={"main": "p/m"}, scripts=None, budgets={"max_steps": 1})
            statuses = [(await inside.chat())[0] for _ in range(12)]
            seal = await here.client.seal(inside.launch)
            return statuses, len(seen), seal.stopped, seal.steps

    assert asyncio.run(live()) == ([400] * 10 + [429] * 2, 10, "model_request_error", 0)
