"""Streams go through as they come: metered, limited and recorded like whole answers, whatever happens on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json

import aiohttp
import pytest
from aiohttp import web
from provider_world import ANSWER, HELLO, KEY, USAGE, call, chunk, error, provider, stream

from orchestrator.spec.agent import Price
from orchestrator.trace.read import read_events

PRICE = Price(input=2.0, output=8.0, cache_read=0.5)
COST = 40 * 2000 + 60 * 500 + 20 * 8000


async def streamed(inside, **body):
    """Return status and events of a streamed chat; a refusal comes as its body."""
    asked = {"model": "main", "messages": [{"role": "user", "content": "go"}], "stream": True, **body}
    headers = {"Authorization": f"Bearer {inside.registration.agent_token}"}
    async with (
        aiohttp.ClientSession(connector=inside.connector) as session,
        session.post(f"{inside.url}/v1/chat/completions", json=asked, headers=headers) as response,
    ):
        data = (await response.read()).decode()
        if response.content_type == "application/json":
            return response.status, json.loads(data)
        return response.status, [line.removeprefix("data: ") for line in data.split("\n") if line]


def play(world, steps, *, times=1, budgets=None, body=None, limits=None, **change):
    """Stream chats against the steps; return the answers, the seal, what came at the provider, and the events."""

    async def live():
        async with provider(*steps) as (url, seen):
            settings = {"base_url": url, "key": KEY, "backoff_seconds": 0.01, **change}
            here = world(providers={"openai": settings}, **({} if limits is None else {"limits": limits}))
            async with here.running():
                inside = await here.launch(
                    models={"main": "openai/gpt-x"},
                    scripts=None,
                    prices={"openai/gpt-x": PRICE},
                    budgets=budgets or {},
                )
                answers = [await streamed(inside, **(body or {})) for _ in range(times)]
                seal = await here.client.seal(inside.launch)
                return answers, seal, seen, list(read_events(await here.store.get(seal.trajectory.key)))

    return asyncio.run(live())


def of(events, kind):
    return [event.data for event in events if event.type == kind]


def texts(events):
    found = [json.loads(event) for event in events if event != "[DONE]"]
    return "".join(each["choices"][0]["delta"].get("content") or "" for each in found if each.get("choices"))


def test_a_stream_is_metered_though_nobody_asked_for_its_usage_and_does_not_show_it(world):
    [(status, events)], seal, seen, recorded = play(world, [stream(*HELLO)])
    assert (status, texts(events), events[-1]) == (200, "hello", "[DONE]")
    assert not any("usage" in json.loads(event) for event in events[:-1])
    assert seen[0][1]["stream_options"] == {"include_usage": True}
    assert (seal.steps, seal.usage.total, seal.usage.cost_nano_usd) == (1, 120, COST)
    [response] = of(recorded, "model_response")
    assert response["message"] == {"role": "assistant", "parts": [{"type": "text", "text": "hello"}]}
    assert (response["broken"], response["estimated"], response["model"]) == (False, False, "gpt-x-2026-01-01")
    assert 0 <= response["first_token_s"] <= response["seconds"]
    assert of(recorded, "model_request")[0]["stream"] is True


def test_usage_that_was_asked_for_is_shown(world):
    [(_, events)], _, _, _ = play(world, [stream(*HELLO)], body={"stream_options": {"include_usage": True}})
    assert json.loads(events[-2])["usage"] == ANSWER["usage"]


def test_parts_arrive_as_they_come(world):
    async def live():
        gate = asyncio.Event()

        async def answer(request):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(f"data: {json.dumps(chunk('first'))}\n\n".encode())
            await gate.wait()
            for event in HELLO[1:]:
                text = event if isinstance(event, str) else json.dumps(event)
                await response.write(f"data: {text}\n\n".encode())
            return response

        async with provider(answer) as (url, _), world(providers={"openai": {"base_url": url}}).running() as here:
            inside = await here.launch(models={"main": "openai/gpt-x"}, scripts=None)
            headers = {"Authorization": f"Bearer {inside.registration.agent_token}"}
            body = {"model": "main", "messages": [{"role": "user", "content": "go"}], "stream": True}
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{inside.url}/v1/chat/completions", json=body, headers=headers) as response,
            ):
                first = await response.content.readuntil(b"\n\n")
                gate.set()
                return first, await response.read(), dict(response.headers)

    first, rest, headers = asyncio.run(live())
    assert b"first" in first
    assert rest.endswith(b"data: [DONE]\n\n")
    assert headers["x-orchestrate-steps-left"] == "40"


def test_what_fails_before_the_first_part_is_tried_again(world):
    steps = [error(429), stream({"error": {"message": "busy", "code": "rate_limit_exceeded"}}), stream(cut=True)]
    [(status, events)], seal, seen, recorded = play(world, [*steps, stream(*HELLO)])
    assert (status, texts(events), len(seen)) == (200, "hello", 4)
    assert (seal.steps, seal.stopped, seal.usage.total) == (1, None, 120)
    assert [each["status"] for each in of(recorded, "model_error")] == [429, 429, 0]


@pytest.mark.parametrize(
    "last",
    [
        stream(chunk("half an answer"), cut=True),
        stream(chunk("half an answer")),
        stream(chunk("half an answer"), b"data: {oops\n\n", pause=0.05),
        stream(chunk("half an answer"), {"error": {"message": "down", "type": "server_error"}}, pause=0.05),
    ],
    ids=["cut", "ended", "garbled", "error"],
)
def test_a_stream_that_breaks_is_told_and_is_no_fault_of_the_agent(world, last):
    [(status, events)], seal, seen, recorded = play(world, [last])
    assert (status, len(seen)) == (200, 1)
    assert texts(events[:1]) == "half an answer"
    assert json.loads(events[-1])["error"]["type"] == "model_api_error"
    assert seal.stopped == "model_api_error"
    assert "stream_broken" in {finding.type for finding in seal.findings}
    [response] = of(recorded, "model_response")
    assert (response["broken"], response["estimated"]) == (True, True)
    assert response["tokens"]["output"] >= 4
    assert response["tokens"]["cost_nano_usd"] > 0


def test_an_agent_that_goes_on_after_a_broken_stream_is_not_ended(world):
    answers, seal, _, _ = play(world, [stream(chunk("half"), cut=True), stream(*HELLO)], times=2)
    assert texts(answers[1][1]) == "hello"
    assert (seal.stopped, seal.steps) == (None, 2)


def test_a_request_that_turns_out_wrong_in_its_stream_is_the_agents(world):
    wrong = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    [(status, answer)], seal, seen, _ = play(world, [stream(wrong)])
    assert (status, answer["error"]["code"], len(seen)) == (400, "context_length_exceeded", 1)
    assert seal.stopped == "context_exhausted"


def test_tool_calls_beyond_the_limit_never_reach_the_agent_in_a_stream(world):
    two = stream(chunk("I call"), call(0, "first"), call(1, "second"), chunk(finish="tool_calls"), USAGE, "[DONE]")
    [(_, events)], seal, _, _ = play(world, [two], budgets={"max_tool_calls": 1})
    assert "first" in "".join(events)
    assert "second" not in "".join(events)
    assert json.loads(events[-1])["error"] | {"message": ""} == {
        "type": "budget_exhausted",
        "code": "tool_call_cap",
        "message": "",
        "param": None,
    }
    assert (seal.stopped, seal.tool_calls, seal.usage.total) == ("tool_call_cap", 1, 120)


def test_a_stream_that_begins_with_a_call_too_many_is_a_plain_refusal(world):
    one = stream(call(0, "first"), chunk(finish="tool_calls"), USAGE, "[DONE]")
    answers, seal, _, _ = play(world, [one], times=2, budgets={"max_tool_calls": 1})
    assert [status for status, _ in answers] == [200, 403]
    assert answers[1][1]["error"]["code"] == "tool_call_cap"
    assert (seal.stopped, seal.tool_calls, seal.steps) == ("tool_call_cap", 1, 2)


def test_an_agent_that_hangs_up_has_used_what_was_answered(world):
    async def live():
        many = [chunk("x" * 1000)] * 50
        steps = [stream(*many, chunk(finish="stop"), USAGE, "[DONE]", pause=0.01)]
        async with provider(*steps) as (url, _), world(providers={"openai": {"base_url": url}}).running() as here:
            inside = await here.launch(models={"main": "openai/gpt-x"}, scripts=None)
            headers = {"Authorization": f"Bearer {inside.registration.agent_token}"}
            body = {"model": "main", "messages": [{"role": "user", "content": "go"}], "stream": True}
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{inside.url}/v1/chat/completions", json=body, headers=headers) as response,
            ):
                await response.content.readuntil(b"\n\n")
                response.close()
            while not (launch := here.registry.find(inside.launch)).meter.steps:
                assert launch.calls
                await asyncio.sleep(0.01)
            return await here.client.seal(inside.launch)

    seal = asyncio.run(live())
    assert (seal.steps, seal.usage.total, seal.stopped) == (1, 120, None)


def test_an_agent_that_does_not_read_is_left_and_holds_nothing(world):
    """The provider has far more than fits into the buffers between; its place is free once the agent's patience is used up."""

    async def live():
        big = [chunk("x" * 100_000)] * 100
        steps = [stream(*big, chunk(finish="stop"), USAGE, "[DONE]"), ANSWER]
        settings = {"base_url": "", "concurrency": 1}
        async with provider(*steps) as (url, _):
            here = world(providers={"openai": {**settings, "base_url": url}}, limits={"stall_seconds": 0.3})
            async with here.running():
                slow = await here.launch(1, models={"main": "openai/gpt-x"}, scripts=None)
                other = await here.launch(2, models={"main": "openai/gpt-x"}, scripts=None)
                body = json.dumps({"model": "main", "messages": [{"role": "user", "content": "go"}], "stream": True})
                head = (
                    f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {slow.registration.agent_token}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}"
                )
                with slow.raw(head.encode()):
                    while not here.registry.find(slow.launch).calls:
                        await asyncio.sleep(0.01)
                    answer = await other.chat()
                return answer[0], await here.client.seal(slow.launch)

    status, seal = asyncio.run(live())
    assert status == 200
    assert (seal.steps, seal.usage.total) == (1, 120)
    assert "slow_reader" in {finding.type for finding in seal.findings}


def test_a_seal_ends_a_stream_that_is_open(world):
    async def live():
        steps = [stream(*[chunk("x" * 400)] * 1000, pause=0.02)]
        async with provider(*steps) as (url, _), world(providers={"openai": {"base_url": url}}).running() as here:
            inside = await here.launch(models={"main": "openai/gpt-x"}, scripts=None)
            task = asyncio.create_task(streamed(inside))
            while not any(call.done() is False for call in here.registry.find(inside.launch).calls):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            seal = await here.client.seal(inside.launch)
            with contextlib.suppress(aiohttp.ClientError):
                await task
            return seal

    seal = asyncio.run(live())
    assert (seal.steps, seal.usage.cost_nano_usd) == (0, None)
    assert seal.usage.output > 0
    assert [finding.type for finding in seal.findings] == ["call_aborted"]


@pytest.mark.parametrize(
    "made",
    [
        stream(b"<html>" * 1000, kind="text/html"),
        lambda _: web.json_response(ANSWER),
        stream(b"data: " + b"[" * 2000 + b"\n\n"),
        lambda _: web.Response(
            body=b"\x1f\x8b" + b"\0" * 100, headers={"Content-Encoding": "gzip", "Content-Type": "text/event-stream"}
        ),
    ],
    ids=["html", "whole", "deep", "compressed"],
)
def test_what_is_no_stream_is_tried_again(world, made):
    [(status, events)], _, seen, _ = play(world, [made, stream(*HELLO)])
    assert (status, texts(events), len(seen)) == (200, "hello", 2)


def test_a_stream_without_an_end_is_cut_off_and_paid_for(world):
    async def endless(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        piece = f"data: {json.dumps(chunk('x' * (1 << 20)))}\n\n".encode()
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                await response.write(piece)
        return response

    [(status, events)], seal, _, _ = play(world, [endless])
    assert status == 200
    assert json.loads(events[-1])["error"]["code"] == "answer_too_large"
    assert (seal.stopped, seal.steps) == ("model_request_error", 1)
    assert seal.usage.output > 5_000_000


def test_a_provider_that_falls_silent_in_a_stream_is_left(world):
    async def silent(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {json.dumps(chunk('half'))}\n\n".encode())
        await asyncio.sleep(30)
        return response

    [(_, events)], seal, _, _ = play(world, [silent], timeout_seconds=0.3)
    assert json.loads(events[-1])["error"]["code"] == "provider_timeout"
    assert seal.stopped == "model_api_error"


def test_a_key_that_a_stream_repeats_reaches_nobody(world):
    leak = stream(chunk(f"it is {KEY}"), *HELLO[2:])
    [(_, events)], _, _, recorded = play(world, [leak])
    assert KEY not in "".join(events) + json.dumps([event.data for event in recorded])
    assert texts(events) == "it is [hidden]"


def test_scripted_models_stream_too(either):
    async def live():
        async with either().running() as here:
            inside = await here.launch(
                script={"conversations": [{"turns": [{"text": "a long answer " * 40, "calls": [{"name": "f"}]}]}]}
            )
            return await streamed(inside), await here.client.seal(inside.launch)

    (status, events), seal = asyncio.run(live())
    assert (status, texts(events)) == (200, "a long answer " * 40)
    assert len(events) > 4
    assert (seal.steps, seal.tool_calls) == (1, 1)


def test_a_fault_of_ours_in_a_stream_is_told_in_it_and_is_infrastructure(world, monkeypatch):
    from orchestrator.gateway.dialects.chat_stream import ChatReader

    taken = ChatReader.take

    def faulty(self, event):
        if "lo" in event.data:
            raise RuntimeError
        return taken(self, event)

    monkeypatch.setattr(ChatReader, "take", faulty)
    [(status, events)], seal, seen, _ = play(world, [stream(*HELLO, pause=0.05)])
    assert (status, texts(events[:1]), len(seen)) == (200, "hel", 1)
    assert json.loads(events[-1])["error"]["type"] == "gateway_fault"
    assert seal.stopped == "model_api_error"


def test_a_call_that_breaks_off_is_no_mistake_of_the_model(world):
    function = {"name": "f", "arguments": '{"x": '}
    half = chunk(calls=[{"index": 0, "id": "c0", "type": "function", "function": function}])
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["x"]}}}
    _, seal, _, recorded = play(world, [stream(half, cut=True, pause=0.05)], body={"tools": [tool]})
    [made] = of(recorded, "tool_call")
    assert (made["known"], made["valid"], made["problem"]) == (True, None, "the answer broke off")
    assert seal.stopped == "model_api_error"
