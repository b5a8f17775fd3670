"""The vendors' own clients understand every answer, in every way in which they ask."""

from __future__ import annotations

import json

import pytest
from sdk_ways import WAYS, anthropic_client, chat_request, heard_of, messages_request, openai_client, responses_request
from speaking_world import speaking

from orchestrator.gateway.dialects.base import Said
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.dialects.embeddings import EMBEDDINGS
from orchestrator.gateway.dialects.messages import MESSAGES
from orchestrator.gateway.dialects.responses import RESPONSES
from orchestrator.records.usage import Usage

DIALECTS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
TURNS = {
    "words": ("It is fixed: “naïve” → 日本 🎉\nand a second line, long enough for several pieces.", ()),
    "parallel calls": ("", (("call_1", "f", '{"x":1}'), ("call_2", "g", '{"x":2}'), ("call_3", "f", "{}"))),
    "words and a call": ("Let me look.", (("call_1", "f", '{"x":3}'),)),
}
TOKENS = Usage(uncached_input=30, cache_read=20, cache_write=10, output=50, reasoning=5)


@pytest.fixture(scope="module", params=sorted(DIALECTS))
def served(request):
    with speaking(DIALECTS[request.param]) as (base, here):
        yield request.param, base, here


@pytest.mark.parametrize("turn", sorted(TURNS))
def test_every_way_of_asking_hears_the_same(served, turn):
    api, base, here = served
    text, calls = TURNS[turn]
    here.failure, here.said = None, Said(id="abc", model="m", text=text, calls=calls, tokens=TOKENS)
    parsed = [(call_id, name, json.loads(arguments)) for call_id, name, arguments in calls]
    for way in WAYS[api]:
        assert way(base, "key", "m") == heard_of(text, parsed, (60, 50), way), way.__name__


def opened(api, base):
    return anthropic_client(base, "key") if api == "messages" else openai_client(base, "key")


def ask(api, base, **more):
    with opened(api, base) as client:
        if api == "chat":
            made = client.chat.completions.create(**chat_request("m", **more))
        elif api == "responses":
            made = client.responses.create(**responses_request("m", **more))
        else:
            made = client.messages.create(**messages_request("m", **more))
        return list(made) if more else made


def errors(api):
    if api == "messages":
        import anthropic

        return anthropic
    import openai

    return openai


def test_a_refusal_is_an_exception_of_the_client_with_our_words(served):
    api, base, here = served
    here.failure = {"status": 403, "words": ("budget_exhausted", "step_cap", "the trial ends now")}
    with pytest.raises(errors(api).PermissionDeniedError, match="the trial ends now") as caught:
        ask(api, base)
    assert "budget_exhausted" in json.dumps(caught.value.body)


def test_a_stream_that_fails_half_way_is_an_exception_of_the_client(served):
    api, base, here = served
    here.said = Said(id="abc", model="m", text="a" * 500, calls=(), tokens=TOKENS)
    here.failure = {"late": True, "words": ("model_api_error", None, "the provider broke off")}
    with pytest.raises(errors(api).APIError, match="the provider broke off"):
        ask(api, base, stream=True)


PLAIN = {"model": "m", "messages": [{"role": "user", "content": "?"}]}


def of_an_answer(api, client, form):
    if api == "messages":
        return client.messages.parse(**PLAIN, max_tokens=10, output_format=form).parsed_output
    if api == "chat":
        return client.chat.completions.parse(**PLAIN, response_format=form).choices[0].message.parsed
    return client.responses.parse(model="m", input="?", text_format=form).output_parsed


def of_a_stream(api, client, form):
    if api == "messages":
        with client.messages.stream(**PLAIN, max_tokens=10, output_format=form) as stream:
            return stream.get_final_message().parsed_output
    if api == "chat":
        with client.chat.completions.stream(**PLAIN, response_format=form) as stream:
            return stream.get_final_completion().choices[0].message.parsed
    with client.responses.stream(model="m", input="?", text_format=form) as stream:
        return stream.get_final_response().output_parsed


@pytest.mark.parametrize("helper", [False, True])
def test_structured_answers_are_parsed_by_the_clients(served, helper):
    from pydantic import BaseModel

    class Verdict(BaseModel):
        fixed: bool

    api, base, here = served
    here.failure, here.said = None, Said(id="abc", model="m", text='{"fixed": true}', calls=(), tokens=TOKENS)
    with opened(api, base) as client:
        found = (of_a_stream if helper else of_an_answer)(api, client, Verdict)
    assert found == Verdict(fixed=True)


def test_embeddings_arrive_in_both_encodings():
    with speaking(EMBEDDINGS) as (base, here):
        here.said = Said(id="a", model="m", text="", calls=(), tokens=Usage(uncached_input=8))
        with openai_client(base, "key") as client:
            packed = client.embeddings.create(model="m", input=["a", "b", "a"], dimensions=4)
            plain = client.embeddings.create(model="m", input=["a"], dimensions=4, encoding_format="float")
    assert [request.get("encoding_format") for request in here.asked] == ["base64", "float"]
    one, two, again = (each.embedding for each in packed.data)
    assert one == again == pytest.approx(plain.data[0].embedding)
    assert one != two
    assert (len(one), packed.usage.prompt_tokens) == (4, 8)
