"""What an agent can make a model say is never taken for a failure of the provider: that would buy the agent another launch."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from provider_world import CHUNK, HELLO, chunk, provider, stream

from orchestrator.gateway import metered_call
from orchestrator.gateway.dialects.shape import parsed
from orchestrator.gateway.provider import is_ours, status_of

MESSAGE = {
    "id": "x",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 10, "output_tokens": 5},
}


def asked(world, steps, path="/v1/chat/completions", kind="openai", after=None, **body):
    """Ask once, or twice with ``after``. Returns status and answer of each, the seal, and the number of requests that the provider got."""

    async def live():
        async with provider(*steps) as (url, seen):
            made = {"type": kind, "base_url": url, "backoff_seconds": 0}
            async with world(providers={"p": made}).running() as here:
                inside = await here.launch(models={"main": "p/m"}, scripts=None)
                answers = [await ask(inside, path, {"model": "main", **body}) for _ in range(2 if after else 1)]
                return answers, await here.client.seal(inside.launch), len(seen)

    return asyncio.run(live())


async def ask(inside, path, body):
    headers = {"Authorization": f"Bearer {inside.registration.agent_token}"}
    messages = {"messages": [{"role": "user", "content": "go"}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(inside.url + path, json={**messages, **body}, headers=headers) as response,
    ):
        return response.status, await response.read()


def told(text):
    return lambda _request: web.Response(text=text, content_type="application/json")


def test_half_of_a_surrogate_pair_is_no_garbage(world):
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "\ud800 and \U0001f600"}}
    [(status, answer)], seal, seen = asked(
        world, [told(json.dumps({**MESSAGE, "content": [block]}))], "/v1/messages", "anthropic", max_tokens=9
    )
    assert (status, seen, seal.stopped) == (200, 1, None)
    assert json.loads(answer)["content"][0]["input"]["a"] == "\ufffd and \U0001f600"


def test_nor_is_a_pair_that_a_stream_cuts(world):
    parts = [chunk("\ud83d"), chunk("\ude00"), *HELLO]
    [(status, answer)], seal, seen = asked(world, [stream(*parts)], stream=True)
    assert (status, seen, seal.stopped, seal.steps) == (200, 1, None, 1)
    assert b"\\ud83d" in answer


@pytest.mark.parametrize(
    "error",
    [
        {"code": 400, "type": "BadRequestError", "message": "this grammar is none"},
        {"code": "image_parse_error", "message": "no image"},
        {"code": "invalid_base64_image", "message": "no image"},
        {"code": "content_filter", "message": "no"},
    ],
)
def test_what_is_wrong_with_a_request_may_turn_out_in_its_stream(world, error):
    [(status, _)], seal, seen = asked(world, [stream({**CHUNK, "choices": [], "error": error})], stream=True)
    assert (status, seen, seal.stopped) == (400, 1, "model_request_error")


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        *((code, True) for code in ("502", "401", "429", "999", "server_error", "overloaded_error", None)),
        *((code, True) for code in ("invalid_api_key", "insufficient_quota")),
        *((code, False) for code in ("422", "invalid_prompt", "image_too_large")),
    ],
)
def test_words_for_failures_in_streams(code, ours):
    assert is_ours(status_of(code)) is ours


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (r'"\ud800"', "\ufffd"),
        (r'"\udc00\ud800"', "\ufffd\ufffd"),
        (r'"\ud83d\ude00\ud83d"', "\U0001f600\ufffd"),
        (r'"\\ud800 \ud800 \\\ud800"', "\\ud800 \ufffd \\\ufffd"),
        (r'{"\uDBFF": 1}', {"\ufffd": 1}),
        (
            r'{"NaN": [NaN, -Infinity, "a NaN \" NaN", "\\", Infinity, 1]}',
            {"NaN": [None, None, 'a NaN " NaN', "\\", None, 1]},
        ),
        ("[1e999, -1e999, 1.5, 7, -7, NaN]", [None, None, 1.5, 7, -7, None]),
        (f"[{'9' * 5000}, {'9' * 20}, {-(10**17)}, NaN]", [None, 1e20, -(10**17), None]),
        ('"a\x01\tb"', "a\x01\tb"),
        ('["a\udcff", NaN]', ["a\ufffd", None]),
    ],
)
def test_what_models_can_be_made_to_write_is_mended(text, means):
    found = parsed(text.encode("utf-8", "surrogateescape"))
    assert found == means
    assert orjson.loads(orjson.dumps(found)) == means  # what the agent and the trajectory get


@given(
    st.recursive(st.none() | st.floats() | st.integers() | st.text(st.characters(), max_size=4), st.lists, max_leaves=8)
)
def test_whatever_lenient_encoders_write_can_be_passed_on(value):
    text = json.dumps([value], ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert orjson.loads(orjson.dumps(parsed(text))) is not None


@pytest.mark.parametrize("levels", [150, 1500, 100_000])
def test_answers_may_nest_as_deep_as_they_like(world, levels):
    block = '{"type": "tool_use", "id": "c", "name": "f", "input": ' + '{"a":' * levels + "1" + "}" * levels + "}"
    text = json.dumps({**MESSAGE, "content": ["HERE"]}).replace('"HERE"', block)
    [(status, answer)], seal, seen = asked(world, [told(text)], "/v1/messages", "anthropic", max_tokens=9)
    assert (status, json.loads(answer)["error"]["code"], seen) == (422, "answer_too_deep", 1)
    assert (seal.stopped, seal.steps) == ("model_request_error", 1)
    assert seal.usage.total > 100


@pytest.mark.parametrize("text", ["", "{", r'"\u12"', r'"\ud800', '{"a": NaN', "nan"])
def test_what_is_no_json_stays_none(text):
    with pytest.raises(ValueError, match=r"."):
        parsed(text.encode())


def test_an_event_may_be_as_large_as_an_answer(world):
    """Responses repeat their request, of any size, in three events."""
    large = {**CHUNK, "choices": [], "echo": "x" * (9 << 20)}
    [(status, _)], seal, seen = asked(world, [stream(large, *HELLO)], stream=True)
    assert (status, seen, seal.stopped, seal.steps) == (200, 1, None, 1)


def test_thousands_of_calls_in_one_stream_take_no_longer_than_they_are_long(world):
    """Each call was looked for in all of the answer so far, also when the limit was reached: hours for what fits into one answer."""
    calls = [
        chunk(calls=[{"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}}]) for n in range(8000)
    ]
    data = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in calls)
    [(status, answer)], seal, _ = asked(world, [stream(data, chunk(finish="tool_calls"), "[DONE]")], stream=True)
    assert (json.loads(answer)["error"]["code"] if status == 403 else status) in ("tool_call_cap", 200)
    assert (seal.stopped, seal.tool_calls <= 100) == ("tool_call_cap", True)


def test_a_stream_that_a_provider_gives_up_for_a_reader_who_pauses(world, monkeypatch):
    monkeypatch.setattr(metered_call, "_PATIENT_SECONDS", 0.1)

    async def live():
        given_up = asyncio.Event()

        async def impatient(request):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            data = f"data: {json.dumps(chunk('x' * 200_000))}\n\n".encode()
            try:
                for _ in range(200):
                    await asyncio.wait_for(response.write(data), 0.4)
            except TimeoutError:
                request.transport.abort()
            given_up.set()
            return response

        async with provider(impatient) as (url, _), world(providers={"p": {"base_url": url}}).running() as here:
            inside = await here.launch(models={"main": "p/m"}, scripts=None)
            body = json.dumps(
                {"model": "main", "messages": [{"role": "user", "content": "x"}], "stream": True}
            ).encode()
            head = f"Authorization: Bearer {inside.registration.agent_token}\r\nContent-Length: {len(body)}\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", inside.port, limit=1 << 16)
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head.encode() + body
            )
            await reader.readuntil(b"\r\n\r\n")
            await given_up.wait()
            answer = await reader.read(-1)
            writer.close()
            return answer, await here.client.seal(inside.launch)

    answer, seal = asyncio.run(live())
    assert b"model_api_error" not in answer
    assert (seal.stopped, seal.steps) == ("model_request_error", 1)
    assert "slow_reader" in {finding.type for finding in seal.findings}


TOO_LARGE = "Request too large for gpt-x (for limit gpt-x) in organization org-a on tokens per min (TPM): Limit 30000, Requested {}. Less."
NOW_AND_THEN = "Rate limit reached for gpt-x in organization org-a on tokens per min (TPM): Limit 30000, Used 29000, Requested 3000."


def refused(status, **error):
    return lambda _request: web.json_response({"error": error}, status=status)


@pytest.mark.parametrize(
    ("step", "stopped", "tries"),
    [
        (
            refused(429, code="rate_limit_exceeded", type="tokens", message=TOO_LARGE.format(61337)),
            "model_request_error",
            1,
        ),
        (
            refused(429, code="rate_limit_exceeded", type="tokens", message=TOO_LARGE.format(29999)),
            "model_api_error",
            5,
        ),
        (refused(429, code="rate_limit_exceeded", type="tokens", message=NOW_AND_THEN), "model_api_error", 5),
        (refused(429, code="insufficient_quota", message=TOO_LARGE.format(61337)), "model_api_error", 5),
        (refused(429, code="rate_limit_exceeded", message="go: " + TOO_LARGE.format(61337)), "model_api_error", 5),
        (
            refused(403, code=403, message="flagged", metadata={"flagged_input": "go", "reasons": ["x"]}),
            "model_request_error",
            1,
        ),
        (refused(403, code="content_policy_violation", message="no"), "model_request_error", 1),
        (refused(403, type="permission_error", message="content_policy"), "model_api_error", 1),
        (refused(403, code=403, message="flagged_input"), "model_api_error", 1),
        (refused(401, code="content_filter", message="no"), "model_api_error", 1),
    ],
)
def test_what_never_passes_is_the_requests_and_the_rest_is_ours(world, step, stopped, tries):
    [(status, answer)], seal, seen = asked(world, [step])
    assert (seal.stopped, seen) == (stopped, tries)
    assert status == (502 if stopped == "model_api_error" else 413 if "Requested" in answer.decode() else 403)


def test_log_probabilities_that_are_no_numbers_are_null(world):
    body = json.dumps(
        {
            "id": "x",
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "logprobs": "HERE"}],
        }
    )
    [(status, answer)], seal, seen = asked(world, [told(body.replace('"HERE"', "[-Infinity]"))], logprobs=True)
    assert (status, seen, seal.stopped) == (200, 1, None)
    assert json.loads(answer)["choices"][0]["logprobs"] == [None]
