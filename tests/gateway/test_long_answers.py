"""Whole answers that take longer than one is waited for: long ones are results, however long; providers that hang are not."""

from __future__ import annotations

import asyncio
import json

import pytest
from provider_world import ANSWER, HELLO, KEY, USAGE, call, chunk, error, provider, stream

from orchestrator.settings import Price
from orchestrator.trace.read import read_events

LIMIT_S = 0.25
"""How long a provider of these tests may be silent."""
PRICE = Price(input=1.0, output=1.0)


def named(kind, **more):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "x-1", "content": [], "stop_reason": None}
MESSAGES = (
    named("message_start", message={**MESSAGE, "usage": {"input_tokens": 7, "output_tokens": 1}}),
    named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    named("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"}),
    named("content_block_stop", index=0),
    named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
    named("message_stop"),
)
ITEM = {"type": "message", "id": "i", "role": "assistant", "status": "completed"}
WHOLE = {
    "id": "r",
    "object": "response",
    "status": "completed",
    "model": "x-1",
    "output": [{**ITEM, "content": [{"type": "output_text", "text": "hello", "annotations": []}]}],
    "usage": {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12},
}
RESPONSES = (
    named("response.created", response={**WHOLE, "status": "in_progress", "output": [], "usage": None}),
    named("response.output_item.added", output_index=0, item={**ITEM, "status": "in_progress", "content": []}),
    named("response.output_text.delta", output_index=0, content_index=0, item_id="i", delta="hello"),
    named("response.completed", response=WHOLE),
)
DIALECTS = {
    "chat/completions": ({"messages": [{"role": "user", "content": "go"}]}, HELLO),
    "messages": ({"max_tokens": 9, "messages": [{"role": "user", "content": "go"}]}, MESSAGES),
    "responses": ({"input": "go"}, RESPONSES),
}


async def hang(_request):
    await asyncio.sleep(30)


def play(world, steps, *, path="chat/completions", times=1, before_seal=None, body=None, **change):
    """Ask for whole answers; return them, the seal, the requests that came, and the events."""

    async def live():
        async with provider(*steps) as (url, seen):
            kind = "anthropic" if path == "messages" else "openai"
            settings = {"type": kind, "base_url": url, "key": KEY, "backoff_seconds": 0.01, "timeout_seconds": LIMIT_S}
            async with world(providers={"openai": {**settings, **change}}, settle_seconds=0).running() as here:
                inside = await here.launch(
                    models={"main": "openai/gpt-x"}, scripts=None, prices={"openai/gpt-x": PRICE}
                )
                request = {"model": "main", **DIALECTS[path][0], **(body or {})}
                asked = []
                for _ in range(times):
                    asked.append(asyncio.create_task(inside.ask("POST", f"/v1/{path}", request)))
                    await asyncio.wait(asked, timeout=before_seal)
                seal = await here.client.seal(inside.launch)
                answers = await asyncio.gather(*asked, return_exceptions=True)
                events = list(read_events(await here.store.get(seal.trajectory.key)))
                return answers, seal, [bool(body.get("stream")) for _, body in seen], events

    return asyncio.run(live())


@pytest.mark.parametrize("path", DIALECTS)
def test_a_long_answer_is_a_result_and_later_ones_are_streamed_at_once(world, path):
    events = DIALECTS[path][1]
    slow = stream(*events, pause=0.1)
    assert 0.1 * len(events) > LIMIT_S
    answers, seal, streamed, told = play(world, [hang, slow], path=path, times=2)
    assert [status for status, *_ in answers] == [200, 200]
    assert streamed == [False, True, True]
    assert all("hello" in json.dumps(answer) for _, answer, _ in answers)
    assert all("chunk" not in json.dumps(answer) for _, answer, _ in answers)
    assert (seal.stopped, seal.steps) == (None, 2)
    assert seal.usage.output >= 2 * 5
    assert seal.waiting_s < LIMIT_S / 2  # the first attempt was the beginning of a long answer: work
    assert [event.data["stream"] for event in told if event.type == "model_request"] == [False, False]
    found = [event.data for event in told if event.type == "model_response"]
    assert [(each["put_together"], each["waited_s"] < LIMIT_S / 2) for each in found] == [(True, True)] * 2


def test_a_provider_that_hung_once_has_been_waited_for(world):
    answers, seal, streamed, told = play(world, [hang, stream(*HELLO), ANSWER], times=2)
    assert [status for status, *_ in answers] == [200, 200]
    assert streamed == [False, True, False]
    assert seal.waiting_s >= LIMIT_S
    assert ["put_together" in event.data for event in told if event.type == "model_response"] == [True, False]


def test_a_provider_that_hangs_again_is_ours(world):
    answers, seal, streamed, _ = play(world, [hang, stream(chunk("he"), pause=5)])
    assert (answers[0][0], streamed) == (502, [False, True])
    assert (seal.stopped, seal.steps) == ("model_api_error", 0)
    assert seal.waiting_s >= 2 * LIMIT_S * 0.9


def test_tool_calls_of_a_long_answer_are_counted_once(world):
    asks = (call(0, "a"), call(1, "b"), chunk(finish="tool_calls"), USAGE, "[DONE]")
    answers, seal, _, _ = play(world, [hang, stream(*asks)])
    assert [each["function"]["name"] for each in answers[0][1]["choices"][0]["message"]["tool_calls"]] == ["a", "b"]
    assert (seal.steps, seal.tool_calls) == (1, 2)


def test_usage_that_a_stream_does_not_tell_is_estimated(world):
    answers, seal, _, _ = play(world, [hang, stream(chunk("hello"), chunk(finish="stop"), "[DONE]")])
    assert answers[0][0] == 200
    assert seal.usage.total > 0
    assert "usage_missing" in {finding.type for finding in seal.findings}


@pytest.mark.parametrize("refusal", [error(400, {"error": {"message": "no streams here"}}), error(404), error(422)])
def test_that_a_provider_does_not_stream_is_no_act_of_the_agent(world, refusal):
    answers, seal, streamed, _ = play(world, [hang, refusal, hang])
    assert (answers[0][0], streamed) == (502, [False, True, False])
    assert seal.stopped == "model_api_error"


def test_a_conversation_that_is_too_long_is_the_agents_also_then(world):
    long = error(400, {"error": {"message": "prompt is too long", "code": "context_length_exceeded"}})
    answers, seal, _, _ = play(world, [hang, long])
    assert (answers[0][0], seal.stopped) == (400, "context_exhausted")


def test_a_stream_that_breaks_off_is_tried_again(world):
    answers, seal, streamed, _ = play(world, [hang, stream(chunk("hel"), cut=True), stream(*HELLO)])
    assert (answers[0][0], streamed) == (200, [False, True, True])
    assert "hello" in json.dumps(answers[0][1])
    assert seal.steps == 1


ENDLESS = stream(*([chunk("x")] * 600), pause=0.02)


@pytest.mark.parametrize(("second", "is_waiting"), [(ENDLESS, False), (hang, True)])
def test_a_seal_in_the_middle_ends_it_and_what_was_lost_is_waiting_unless_it_was_long(world, second, is_waiting):
    # At its seal the second attempt of a provider that hangs has not timed out yet: a lively one lasts longer than that.
    before = 3 * LIMIT_S if second is ENDLESS else 1.5 * LIMIT_S
    answers, seal, streamed, _ = play(world, [hang, second], before_seal=before)
    assert streamed == [False, True]
    assert isinstance(answers[0], Exception) or answers[0][0] != 200
    assert "call_aborted" in {finding.type for finding in seal.findings}
    assert (seal.waiting_s >= LIMIT_S * 0.9) is is_waiting


def test_a_stream_that_is_silent_has_hung_however_long_the_next_one_takes(world):
    slow = stream(*HELLO, pause=0.1)
    answers, seal, streamed, _ = play(world, [hang, slow, hang, slow], times=2)
    assert [status for status, *_ in answers] == [200, 200]
    assert streamed == [False, True, True, True]
    assert LIMIT_S * 0.9 <= seal.waiting_s < 2 * LIMIT_S


def test_an_answer_without_an_end_is_the_agents(world):
    answers, seal, streamed, _ = play(world, [hang, ENDLESS], stream_seconds=2 * LIMIT_S)
    assert (answers[0][0], answers[0][1]["error"]["code"]) == (413, "answer_too_long")
    assert (streamed, seal.stopped, seal.steps) == ([False, True], "model_request_error", 1)
    assert seal.usage.output > 0


def test_signs_of_life_without_an_answer_are_no_answer(world):
    pings = stream(*[b'event: ping\ndata: {"type": "ping"}\n\n'] * 600, pause=0.02)
    answers, seal, _, _ = play(world, [hang, pings], path="messages", stream_seconds=2 * LIMIT_S)
    assert (answers[0][0], seal.stopped) == (502, "model_api_error")


FILTERED = {"error": {"code": "content_filter", "message": "no"}}


@pytest.mark.parametrize("second", [stream(chunk("he"), FILTERED), error(403, FILTERED)])
def test_an_answer_that_is_filtered_is_the_agents_also_then(world, second):
    answers, seal, streamed, _ = play(world, [hang, second])
    assert (streamed, seal.stopped) == ([False, True], "model_request_error")
    assert answers[0][1]["error"]["code"] == "content_filter"


def test_nothing_that_was_asked_for_is_missing(world):
    piece = chunk("hi")
    piece["choices"][0]["logprobs"] = {"content": [{"token": "hi", "logprob": -1.5}], "refusal": None}
    asked = {"logprobs": True, "stream_options": {"unknown": 1}}
    answers, _, _, _ = play(world, [hang, stream(piece, piece, *HELLO[2:])], body=asked)
    [choice] = answers[0][1]["choices"]
    assert choice["logprobs"] == {"content": [{"token": "hi", "logprob": -1.5}] * 2}
    assert (choice["message"]["content"], answers[0][1]["usage"]) == ("hihi", USAGE["usage"])


def test_an_agent_that_hangs_up_has_used_what_was_answered(world):
    async def live():
        settings = {"timeout_seconds": LIMIT_S, "backoff_seconds": 0.01}
        async with (
            provider(hang, stream(*HELLO, pause=0.05)) as (url, _),
            world(providers={"openai": {**settings, "base_url": url}}).running() as here,
        ):
            inside = await here.launch(models={"main": "openai/gpt-x"}, scripts=None)
            asked = asyncio.create_task(inside.chat())
            while not here.registry.find(inside.launch).calls:
                await asyncio.sleep(0.01)
            asked.cancel()
            while not (launch := here.registry.find(inside.launch)).meter.steps:
                assert launch.calls
                await asyncio.sleep(0.01)
            return await here.client.seal(inside.launch)

    seal = asyncio.run(live())
    assert (seal.steps, seal.stopped) == (1, None)
    assert seal.usage.total >= USAGE["usage"]["prompt_tokens"]
