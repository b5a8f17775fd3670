"""Calls to a configured provider, with a small provider of ours at the other end of the wire."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from aiohttp import web
from provider_world import ANSWER, HEADER, KEY, error, provider

from orchestrator.gateway.usage import costs_otherwise
from orchestrator.settings import Price
from orchestrator.trace.read import read_events


def play(world, steps, *, chats=1, budgets=None, prices=None, body=None, **change):
    """Run chats against the steps; return the answers, the seal, the requests at the provider, and the trajectory's bytes."""

    async def live():
        async with provider(*steps) as (url, seen):
            settings = {"base_url": url, "key": KEY, "headers": {"x-more": HEADER}, "backoff_seconds": 0.02, **change}
            async with world(providers={"openai": settings}).running() as here:
                inside = await here.launch(
                    models={"main": "openai/gpt-x"}, prices=prices or {}, scripts=None, budgets=budgets or {}
                )
                answers = [await inside.chat(**(body or {})) for _ in range(chats)]
                seal = await here.client.seal(inside.launch)
                return answers, seal, seen, await here.store.get(seal.trajectory.key)

    return asyncio.run(live())


def test_a_call_is_passed_on_with_the_key_and_metered(world):
    price = Price(input=2.0, output=8.0, cache_read=0.5)
    answers, seal, seen, _ = play(world, [lambda _: ANSWER], prices={"openai/gpt-x": price}, body={"temperature": 0})
    status, answer, _ = answers[0]
    assert (status, answer) == (200, ANSWER)
    headers, body = seen[0]
    assert (headers["Authorization"], headers["x-more"]) == (f"Bearer {KEY}", HEADER)
    assert body == {"model": "gpt-x", "temperature": 0, "messages": [{"role": "user", "content": "go"}]}
    usage = seal.usage
    assert (usage.uncached_input, usage.cache_read, usage.output, usage.reasoning) == (40, 60, 20, 5)
    assert usage.cost_nano_usd == 40 * 2000 + 60 * 500 + 20 * 8000
    assert seal.models == ("gpt-x-2026-01-01",)


def test_the_agents_token_never_reaches_the_provider(world):
    _, _, seen, _ = play(world, [lambda _: ANSWER])
    assert "orc-agent" not in json.dumps(seen)


def test_passing_failures_are_retried_and_counted_as_waiting(world):
    slow = error(429, None, **{"Retry-After": "1"})
    answers, seal, seen, trajectory = play(world, [slow, error(500), error(503), lambda _: ANSWER])
    assert answers[0][0] == 200
    assert len(seen) == 4
    assert 1.0 <= seal.waiting_s < 5
    assert (seal.steps, seal.stopped) == (1, None)
    failures = [e.data["status"] for e in read_events(trajectory) if e.type == "model_error"]
    assert failures == [429, 500, 503]


def test_waiting_is_not_working_time(world):
    """One second of work is allowed and nearly two are waited: the launch goes on."""
    slow = error(429, None, **{"Retry-After": "2"})
    answers, seal, _, _ = play(world, [slow, lambda _: ANSWER], budgets={"max_wall_seconds": 1})
    assert answers[0][0] == 200
    assert seal.stopped is None
    assert seal.waiting_s >= 1.9


@pytest.mark.parametrize("status", [500, 401, 403, 302])
def test_a_provider_that_fails_for_good_is_infrastructure(world, status):
    answers, seal, seen, _ = play(world, [error(status)], attempts=2)
    assert (answers[0][0], answers[0][1]["error"]["type"]) == (502, "model_api_error")
    assert seal.stopped == "model_api_error"
    assert len(seen) == (2 if status == 500 else 1)


def test_a_provider_that_fails_for_good_stops_the_launch_at_once(world):
    async def live():
        async with provider(error(401)) as (url, _):
            here = world(providers={"openai": {"base_url": url, "key": KEY}}, grace_seconds=60)
            async with here.running():
                inside = await here.launch(models={"main": "openai/gpt-x"}, scripts=None)
                await inside.chat()
                return await here.client.stop_reason(inside.launch), await inside.chat()

    reason, again = asyncio.run(live())
    assert (reason, again[1]["error"]["type"]) == ("model_api_error", "model_api_error")


def test_a_bad_request_is_the_agents(world):
    said = {"error": {"message": "temperature is too hot", "code": "bad_temperature"}}
    answers, seal, seen, _ = play(world, [error(400, said)])
    status, answer, _ = answers[0]
    assert (status, answer["error"]["type"], answer["error"]["code"]) == (400, "model_request_error", "bad_temperature")
    assert "temperature is too hot" in answer["error"]["message"]
    assert (seal.stopped, seal.steps, len(seen)) == ("model_request_error", 0, 1)


def test_a_bad_request_that_the_agent_recovers_from_is_forgotten(world):
    _, seal, _, _ = play(world, [error(422), lambda _: ANSWER], chats=2)
    assert (seal.stopped, seal.steps) == (None, 1)


def test_a_full_context_has_a_reason_of_its_own(world):
    said = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    _, seal, _, _ = play(world, [error(400, said)])
    assert seal.stopped == "context_exhausted"


@pytest.mark.parametrize("escaped", [False, True])
def test_a_key_that_the_provider_echoes_reaches_nobody(world, escaped, capfd, caplog):
    text = json.dumps({"error": {"message": f"bad key {KEY} and {HEADER}", "code": KEY}})
    if escaped:
        text = text.replace("sk-very", "\\u0073k-very")
    echo = lambda _: web.Response(status=400, text=text)  # noqa: E731
    leak = {**ANSWER, "choices": [{"message": {"role": "assistant", "content": f"it is {KEY}"}}]}
    answers, _, _, trajectory = play(world, [echo, lambda _: leak], chats=2)
    everything = json.dumps(answers) + trajectory.decode() + "".join(capfd.readouterr()) + caplog.text
    assert "[hidden]" in answers[0][1]["error"]["message"]
    assert KEY not in everything
    assert HEADER not in everything


@pytest.mark.parametrize(
    "broken",
    [
        lambda _: web.Response(text='{"choices": [{"mess'),
        lambda _: web.Response(text="[]"),
        lambda _: web.Response(text='{"choices": []}'),
        lambda _: web.Response(text='{"choices": ' + "[" * 900 + "]" * 900 + "}"),
    ],
)
def test_a_garbled_answer_is_tried_again(world, broken):
    answers, seal, seen, _ = play(world, [broken, lambda _: ANSWER])
    assert (answers[0][0], len(seen), seal.steps) == (200, 2, 1)


def test_a_connection_that_breaks_is_tried_again(world):
    def cut(request):
        request.transport.abort()
        return web.Response()

    answers, _, seen, _ = play(world, [cut, lambda _: ANSWER])
    assert (answers[0][0], len(seen)) == (200, 2)


def test_a_provider_that_hangs_is_left_and_tried_again(world):
    async def hang(_request):
        await asyncio.sleep(30)

    answers, seal, seen, _ = play(world, [hang, lambda _: ANSWER], timeout_seconds=0.5)
    # Its second attempt asks for a stream, which this provider does not give.
    assert (answers[0][0], [bool(body.get("stream")) for _, body in seen]) == (200, [False, True, False])
    assert seal.waiting_s >= 0.5
    # The provider may have worked on the first one, and charge for it.
    assert seal.usage.uncached_input > 100 - 60
    assert seal.steps == 1
    assert "call_timed_out" in {finding.type for finding in seal.findings}


def test_what_never_comes_in_time_is_not_paid_again_and_again(world):
    async def hang(_request):
        await asyncio.sleep(30)

    answers, seal, seen, _ = play(world, [hang], timeout_seconds=0.2)
    assert (answers[0][0], len(seen)) == (502, 2)
    assert (seal.stopped, seal.steps) == ("model_api_error", 0)
    assert seal.usage.total > 0


@pytest.mark.parametrize(
    "reported",
    [
        None,
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": -5, "completion_tokens": 3},
        {"prompt_tokens": 10**30, "completion_tokens": 3},
        {"prompt_tokens": 1e3, "completion_tokens": "3"},
    ],
)
def test_an_answer_without_usage_is_estimated_and_its_cost_unknown(world, reported):
    bare = {**ANSWER, "usage": reported}
    _, seal, _, _ = play(world, [lambda _: bare], prices={"openai/gpt-x": Price(input=1.0, output=1.0)})
    assert seal.usage.total > 0
    assert seal.usage.cost_nano_usd is None
    assert [finding.type for finding in seal.findings] == ["usage_missing"]


def test_an_answer_by_a_service_with_other_prices_has_an_unknown_cost(world):
    dear = {**ANSWER, "service_tier": "priority"}
    _, seal, _, _ = play(world, [lambda _: dear], prices={"openai/gpt-x": Price(input=1.0, output=1.0)})
    assert seal.usage.total == 120
    assert seal.usage.cost_nano_usd is None
    [finding] = seal.findings
    assert finding.type == "price_unknown"
    assert finding.detail == "what openai/gpt-x answered was given by the service 'priority': its cost is not known"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, None),
        ({"service_tier": "default", "usage": {"service_tier": "standard", "speed": "standard"}}, None),
        ({"service_tier": None, "usage": None, "output": None}, None),
        ({"service_tier": 7, "usage": [], "output": [7, {"type": "function_call"}]}, None),
        (
            {"usage": {"prompt_tokens_details": {"audio_tokens": 0}, "server_tool_use": {"web_search_requests": 0}}},
            None,
        ),
        ({"usage": {"speed": "fast"}}, "was given by the service 'fast'"),
        ({"usage": {"service_tier": "flex"}}, "was given by the service 'flex'"),
        ({"usage": {"input_tokens_details": {"audio_tokens": 3}}}, "has to do with sound"),
        (
            {"usage": {"server_tool_use": {"web_search_requests": 2}}},
            "is the work of tools that ran at the provider, too",
        ),
        ({"output": [{"type": "web_search_call"}]}, "is the work of tools that ran at the provider, too"),
        ({"output": [{"type": ["web_search_call"]}]}, None),
    ],
)
def test_what_costs_otherwise_than_tokens_is_seen(answer, why):
    assert costs_otherwise(answer) == why


def test_calls_wait_their_turn_at_a_provider(world):
    busy = 0
    most = 0

    async def count(_request):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.05)
        busy -= 1
        return ANSWER

    async def live():
        async with (
            provider(count) as (url, _),
            world(providers={"openai": {"base_url": url, "concurrency": 2}}).running() as here,
        ):
            both = [await here.launch(n, models={"main": "openai/gpt-x"}, scripts=None) for n in (1, 2)]
            await asyncio.gather(*(inside.chat() for inside in both for _ in range(4)))
            return [await here.client.seal(inside.launch) for inside in both]

    seals = asyncio.run(live())
    assert (most, [seal.steps for seal in seals]) == (2, [4, 4])
    assert sum(seal.waiting_s for seal in seals) >= 0.1


def test_a_seal_ends_a_call_that_is_open(world):
    async def hang(_request):
        await asyncio.sleep(30)

    async def live():
        async with provider(hang) as (url, seen), world(providers={"openai": {"base_url": url}}).running() as here:
            inside = await here.launch(models={"main": "openai/gpt-x"}, scripts=None)
            call = asyncio.create_task(inside.chat())
            while not seen:
                await asyncio.sleep(0.01)
            seal = await here.client.seal(inside.launch)
            await asyncio.gather(call, return_exceptions=True)
            return seal

    seal = asyncio.run(live())
    assert (seal.steps, seal.usage.cost_nano_usd) == (0, None)
    assert [finding.type for finding in seal.findings] == ["call_aborted"]


def test_a_provider_that_nobody_configured_is_named(world):
    async def live():
        async with world().running() as here:
            with pytest.raises(Exception, match="needs a provider 'openai', and there are only: scripted"):
                await here.launch(models={"main": "openai/gpt-x"}, scripts=None)

    asyncio.run(live())


@pytest.mark.parametrize(("calls", "concurrency"), [(2, 3), (16, 2)])
def test_waiting_for_calls_of_ones_own_is_no_waiting_for_the_provider(world, calls, concurrency):
    busy = 0
    most = 0

    async def count(_request):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.05)
        busy -= 1
        return ANSWER

    async def live():
        async with (
            provider(count) as (url, _),
            world(
                providers={"openai": {"base_url": url, "concurrency": concurrency}}, limits={"calls": calls}
            ).running() as here,
        ):
            inside = await here.launch(models={"main": "openai/gpt-x"}, scripts=None)
            await asyncio.gather(*(inside.chat() for _ in range(8)))
            return await here.client.seal(inside.launch)

    seal = asyncio.run(live())
    assert (most, seal.steps) == (2, 8)
    assert seal.waiting_s < 0.05


def test_an_answer_too_large_to_pass_on_is_the_agents_and_is_paid_for(world):
    async def flood(request):
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                await response.write(b" " * (1 << 20))
        return response

    answers, seal, seen, _ = play(world, [flood], prices={"openai/gpt-x": Price(input=1.0, output=1.0)})
    assert (answers[0][0], answers[0][1]["error"]["code"]) == (413, "answer_too_large")
    assert (seal.stopped, seal.steps, len(seen)) == ("model_request_error", 1, 1)
    assert seal.usage.output > 1_000_000
    assert seal.usage.cost_nano_usd is None
