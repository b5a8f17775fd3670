"""A call to a model for no launch: what its refusal means, and that it never shows the key."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from provider_world import ANSWER, KEY, error, provider


def probe(world, *steps):
    """Return what came of a probe, and how often the provider was asked."""

    async def live():
        async with provider(*steps) as (url, seen):
            settings = {"base_url": url, "key": KEY, "backoff_seconds": 0.001, "attempts": 3}
            async with world(providers={"openai": settings}).running() as here:
                return await here.client.probe("openai/gpt-x"), len(seen)

    return asyncio.run(live())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_the_next_call_would_meet_too_is_a_refusal(world, status):
    found, asked = probe(world, error(status, {"error": {"message": f"no such model; your key is {KEY}"}}))
    assert (found.result, found.status, asked) == ("refused", status, 1)
    assert f"status {status}" in found.reason
    assert ("no such model" in found.reason) == (status not in {401, 403})  # those may repeat part of a key
    assert KEY not in found.reason


@pytest.mark.parametrize(("status", "times"), [(402, 1), (418, 1), (429, 3), (500, 3)])
def test_anything_else_has_failed_once_retries_are_used_up(world, status, times):
    found, asked = probe(world, error(status))
    assert (found.result, found.status, asked) == ("failed", status, times)


def test_a_provider_that_comes_round_has_answered(world):
    found, asked = probe(world, error(503), error(429), ANSWER)
    assert (found.result, found.reason, asked) == ("answered", "", 3)


def test_a_provider_that_is_not_there_has_failed(world):
    async def live():
        settings = {"base_url": "http://127.0.0.1:1/v1", "backoff_seconds": 0.001, "attempts": 2}
        async with world(providers={"openai": settings}).running() as here:
            return await here.client.probe("openai/gpt-x")

    found = asyncio.run(live())
    assert (found.result, found.status) == ("failed", 0)
    assert "could not be reached: connection refused" in found.reason


def test_a_provider_that_says_nothing_is_not_waited_for(world, monkeypatch):
    monkeypatch.setattr("orchestrator.gateway.probe._SECONDS", 0.05)

    async def silent(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    found, _ = probe(world, silent)
    assert (found.result, found.reason) == ("failed", "no answer came within 0.05 s")


def test_words_of_a_provider_are_one_short_line(world):
    found, _ = probe(world, error(404, {"error": {"message": "\x1b[2J\n" + "x" * 5000}}))
    assert "\x1b" not in found.reason
    assert "\n" not in found.reason
    assert len(found.reason) < 400
