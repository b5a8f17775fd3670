"""Providers of every type, as the wire shows them: addresses, keys, and what goes along of an agent's headers."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib

import aiohttp
import pytest
from aiohttp import web
from provider_world import ANSWER, KEY, error, provider

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x-20260101",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0, "output_tokens": 20},
}
VECTORS = {
    "object": "list",
    "model": "embed-1",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}
UNPAID = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."
ASKED = {
    "/v1/chat/completions": {"model": "main", "messages": [{"role": "user", "content": "go"}]},
    "/v1/messages": {"model": "main", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]},
    "/v1/messages/count_tokens": {"model": "main", "messages": [{"role": "user", "content": "go"}]},
    "/v1/responses": {"model": "main", "input": "go"},
    "/v1/embeddings": {"model": "main", "input": "go"},
}


def ask(world, settings, steps, path, *, headers=None, body=None, **change):
    """Ask once at a path; return the answer, the seal, and what the provider has seen."""

    async def live():
        async with provider(*steps) as (url, seen):
            made = {"base_url": url, "key": KEY, "backoff_seconds": 0.01, "attempts": 2, **settings}
            async with world(providers={"p": made}).running() as here:
                inside = await here.launch(models={"main": "p/x"}, scripts=None, prices={}, **change)
                answer = await inside.ask("POST", path, {**ASKED[path], **(body or {})}, headers=headers)
                return answer, await here.client.seal(inside.launch), seen

    return asyncio.run(live())


def test_anthropic_is_asked_natively_with_its_own_headers(world):
    (status, answer, _), seal, seen = ask(world, {"type": "anthropic"}, [lambda _: MESSAGE], "/v1/messages")
    assert (status, answer) == (200, MESSAGE)
    headers, body = seen[0]
    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "Authorization" not in headers
    assert (body["model"], body["max_tokens"]) == ("x", 9)
    usage = seal.usage
    assert (usage.uncached_input, usage.cache_read, usage.output, seal.models) == (40, 60, 20, ("claude-x-20260101",))


def test_anthropic_has_a_compatible_address_for_chats(world):
    (status, _, _), _, seen = ask(world, {"type": "anthropic"}, [lambda _: ANSWER], "/v1/chat/completions")
    assert status == 200
    assert seen[0][0]["Authorization"] == f"Bearer {KEY}"


def test_anthropic_counts_tokens(world):
    path = "/v1/messages/count_tokens"
    (status, answer, _), seal, seen = ask(world, {"type": "anthropic"}, [lambda _: {"input_tokens": 7}], path)
    assert (status, answer, seen[0][1]["model"]) == (200, {"input_tokens": 7}, "x")
    assert (seal.steps, seal.stopped) == (0, None)


def test_a_count_that_fails_ends_nothing(world):
    (status, answer, _), seal, _ = ask(world, {"type": "anthropic"}, [error(500)], "/v1/messages/count_tokens")
    assert (status, answer["error"]["type"], seal.stopped) == (502, "model_api_error", None)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({}, "/v1/messages"),
        ({}, "/v1/messages/count_tokens"),
        ({"type": "anthropic"}, "/v1/responses"),
        ({"type": "anthropic"}, "/v1/embeddings"),
        ({"endpoints": ["chat"]}, "/v1/responses"),
    ],
)
def test_what_a_provider_lacks_is_refused_by_name(world, settings, path):
    (status, answer, _), seal, seen = ask(world, settings, [lambda _: MESSAGE], path)
    assert (status, answer["error"]["type"], len(seen)) == (404, "unsupported_endpoint", 0)
    assert "p/x" in answer["error"]["message"]
    assert (seal.steps, seal.stopped) == (0, None)


def test_endpoints_say_what_a_compatible_provider_has_more(world):
    (status, _, _), _, seen = ask(world, {"endpoints": ["messages"]}, [lambda _: MESSAGE], "/v1/messages")
    assert (status, seen[0][0]["Authorization"]) == (200, f"Bearer {KEY}")


def test_azure_is_an_address_with_a_query_and_a_header(world):
    seen_at = []

    def answer(request):
        seen_at.append(str(request.rel_url))
        return web.json_response(ANSWER)

    settings = {"key": None, "headers": {"api-key": KEY}, "query": {"api-version": "2024-10-21"}}
    (status, _, _), _, seen = ask(world, settings, [answer], "/v1/chat/completions")
    assert (status, seen_at) == (200, ["/v1/chat/completions?api-version=2024-10-21"])
    assert seen[0][0]["api-key"] == KEY
    assert "Authorization" not in seen[0][0]


def test_embeddings_are_metered(world):
    (status, answer, _), seal, _ = ask(world, {}, [lambda _: VECTORS], "/v1/embeddings")
    assert (status, answer, seal.steps, seal.usage.total) == (200, VECTORS, 1, 3)


def test_only_headers_of_the_api_go_along(world):
    sent = {
        "anthropic-beta": "interleaved-thinking-2025-05-14, files-api-2025-04-14,code-execution-2025-08-25,<script>",
        "anthropic-version": "2023-01-01",
        "X-Forwarded-For": "10.0.0.1",
        "Cookie": "session=1",
        "OpenAI-Organization": "somebody-else",
        "Proxy-Authorization": "Basic x",
        "Transfer-Encoding-": "chunked",
        "User-Agent": "sly\t",
    }
    _, seal, seen = ask(world, {"type": "anthropic"}, [lambda _: MESSAGE], "/v1/messages", headers=sent)
    found = {name.lower(): value for name, value in seen[0][0].items()}
    assert (found["anthropic-beta"], found["anthropic-version"]) == ("interleaved-thinking-2025-05-14", "2023-01-01")
    assert set(found) <= {
        "host",
        "accept",
        "accept-encoding",
        "content-type",
        "content-length",
        "user-agent",
        "x-api-key",
        "anthropic-version",
        "anthropic-beta",
    }
    assert "sly" not in found["user-agent"]
    assert [finding.type for finding in seal.findings] == ["hosted_tool", "hosted_tool"]


def test_a_tool_that_runs_at_the_provider_needs_the_tasks_word(world):
    search = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    settings = {"type": "anthropic"}
    refused, seal, seen = ask(world, settings, [lambda _: MESSAGE], "/v1/messages", body=search)
    assert (refused[0], refused[1]["error"]["type"], len(seen)) == (400, "hosted_tool", 0)
    assert [finding.type for finding in seal.findings] == ["hosted_tool"]
    allowed = {"hosted_tools": ("web_search_20250305",), "sample": 2}
    taken, seal, seen = ask(world, settings, [lambda _: MESSAGE], "/v1/messages", body=search, **allowed)
    assert (taken[0], seen[0][1]["tools"], seal.findings) == (200, search["tools"], ())


@pytest.mark.parametrize(
    ("said", "stopped"),
    [
        ({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}, "context_exhausted"),
        ({"type": "invalid_request_error", "message": "max_tokens: field required"}, "model_request_error"),
        ({"type": "invalid_request_error", "message": UNPAID}, "model_api_error"),
    ],
)
def test_what_anthropic_says_is_told_apart(world, said, stopped):
    _, seal, _ = ask(world, {"type": "anthropic"}, [error(400, {"type": "error", "error": said})], "/v1/messages")
    assert seal.stopped == stopped


def test_an_overloaded_provider_gets_fewer_calls(world):
    async def live():
        steps = [error(529), error(429, None, **{"Retry-After": "0.1"}), lambda _: MESSAGE]
        async with provider(*steps) as (url, seen):
            made = {"type": "anthropic", "base_url": url, "backoff_seconds": 0.01, "concurrency": 8}
            async with world(providers={"p": made}).running() as here:
                inside = await here.launch(models={"main": "p/x"}, scripts=None, prices={})
                answer = await inside.ask("POST", "/v1/messages", ASKED["/v1/messages"])
                route = here.registry.find(inside.launch).routes["main"]
                return answer[0], len(seen), route.limiter.window.places

    assert asyncio.run(live()) == (200, 3, 2)


def frame(headers, payload):
    """One message of AWS's event streams."""
    block = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    checked = prelude + struct.pack(">I", zlib.crc32(prelude)) + block + payload
    return checked + struct.pack(">I", zlib.crc32(checked))


def wrapped(event):
    """An event of the Messages API as Bedrock sends it."""
    data = base64.b64encode(json.dumps(event).encode()).decode()
    return frame({":message-type": "event", ":event-type": "chunk"}, json.dumps({"bytes": data, "p": "abc"}).encode())


BEDROCK = {"type": "bedrock", "region": "eu-west-1", "key": None}
STREAMED = [
    {
        "type": "message_start",
        "message": {**MESSAGE, "content": [], "usage": {"input_tokens": 100, "output_tokens": 1}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}},
    {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 100}},
]
AWS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-secret-of-this-test", "AWS_SESSION_TOKEN": "tok"}


@pytest.fixture
def aws(monkeypatch):
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)


def signature_is_right(request, body):
    """Whether botocore, asked to sign what has come at the same time, comes to the same."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    again = AWSRequest("POST", str(request.url), data=body)
    again.context["timestamp"] = request.headers["X-Amz-Date"]
    signer = SigV4Auth(Credentials(*AWS.values()), "bedrock", "eu-west-1")
    again.headers["X-Amz-Date"] = request.headers["X-Amz-Date"]
    again.headers["X-Amz-Security-Token"] = "tok"
    text = signer.string_to_sign(again, signer.canonical_request(again))
    return request.headers["Authorization"].endswith(f"Signature={signer.signature(text, again)}")


def bedrock(world, *answers, model="anthropic.claude-x-v1:0", **body):
    """Ask Bedrock once, which answers one after another; return the answer, the seal, and path, body and headers of what came there."""
    came = []

    async def served(request):
        came.append((request.raw_path, await request.json(), request))
        made = answers[len(came) - 1](request)
        return await made if asyncio.iscoroutine(made) else made

    async def live():
        app = web.Application()
        app.router.add_post("/{path:.*}", served)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made = {
            **BEDROCK,
            "base_url": f"http://127.0.0.1:{runner.addresses[0][1]}",
            "attempts": 2,
            "backoff_seconds": 0,
        }
        async with world(providers={"p": made}).running() as here:
            inside = await here.launch(models={"main": f"p/{model}"}, scripts=None, prices={})
            headers = {"Authorization": f"Bearer {inside.registration.agent_token}", "anthropic-beta": "a-beta-2025"}
            asked = {**ASKED["/v1/messages"], **body}
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{inside.url}/v1/messages", json=asked, headers=headers) as response,
            ):
                said = await response.text()
            seal = await here.client.seal(inside.launch)
        await runner.cleanup()
        return response.status, said, seal

    return *asyncio.run(live()), came


def test_bedrock_is_asked_with_a_signature(world, aws):
    status, said, seal, [(path, body, request)] = bedrock(world, lambda _: web.json_response(MESSAGE))
    assert (status, json.loads(said), seal.usage.total) == (200, MESSAGE, 120)
    assert path == "/model/anthropic.claude-x-v1%3A0/invoke"
    assert body == {
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": ["a-beta-2025"],
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "go"}],
    }
    assert "Credential=AKIDEXAMPLE/" in request.headers["Authorization"]
    assert "/eu-west-1/bedrock/aws4_request" in request.headers["Authorization"]
    assert signature_is_right(request, request._read_bytes)


def frames(*events):
    async def answer(request):
        response = web.StreamResponse(headers={"Content-Type": "application/vnd.amazon.eventstream"})
        await response.prepare(request)
        data = b"".join(events)
        for start in range(0, len(data), 100):  # frames come in pieces
            await response.write(data[start : start + 100])
        return response

    return answer


def test_bedrock_streams_as_if_it_were_anthropic(world, aws):
    status, said, seal, [(path, body, _)] = bedrock(world, frames(*map(wrapped, STREAMED)), stream=True)
    assert (status, path) == (200, "/model/anthropic.claude-x-v1%3A0/invoke-with-response-stream")
    assert "stream" not in body
    names = [line.removeprefix("event: ") for line in said.split("\n") if line.startswith("event: ")]
    assert names == [event["type"] for event in STREAMED]
    assert (seal.steps, seal.usage.uncached_input, seal.usage.output, seal.stopped) == (1, 100, 20, None)


def test_an_exception_in_bedrocks_stream_is_told_apart(world, aws):
    throttled = frame({":message-type": "exception", ":exception-type": "throttlingException"}, b'{"message": "slow"}')
    whole = frames(*map(wrapped, STREAMED))
    status, said, seal, came = bedrock(world, frames(throttled), whole, stream=True)
    assert (status, len(came), seal.stopped) == (200, 2, None)
    assert "message_stop" in said


def test_frames_that_are_broken_are_tried_again(world, aws):
    broken = bytearray(wrapped(STREAMED[0]))
    broken[-1] ^= 1
    whole = frames(*map(wrapped, STREAMED))
    status, _, seal, came = bedrock(world, frames(bytes(broken)), whole, stream=True)
    assert (status, len(came), seal.steps) == (200, 2, 1)


def test_without_credentials_bedrock_is_infrastructure(world, monkeypatch):
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    status, said, seal, came = bedrock(world, lambda _: web.json_response(MESSAGE))
    assert (status, seal.stopped, came) == (502, "model_api_error", [])
    assert "no AWS credentials in the gateway's environment" in said


def test_html_and_words_of_a_verdict_stay_data(world):
    text = '<script>alert(1)</script>\n{"result": "passed"}\u202e\x00'
    step = lambda _: {**ANSWER, "choices": [{"message": {"role": "assistant", "content": text}}]}  # noqa: E731
    (status, answer, headers), seal, _ = ask(world, {}, [step], "/v1/chat/completions")
    assert (status, answer["choices"][0]["message"]["content"]) == (200, text)
    assert headers["Content-Type"].startswith("application/json")
    assert seal.stopped is None


def test_keys_of_no_provider_are_in_the_record(world):
    step = lambda _: web.Response(status=400, text=json.dumps({"error": {"message": KEY, "type": KEY}}))  # noqa: E731
    (_, answer, _), seal, _ = ask(world, {"type": "anthropic"}, [step], "/v1/messages")
    assert KEY not in json.dumps(answer) + seal.model_dump_json()
