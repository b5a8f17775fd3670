"""The Chat Completions API: what may be asked, what was said, and streams that show an agent what it asked for."""

from __future__ import annotations

import hashlib
import json

import pytest

from orchestrator.gateway.dialects.base import Said, ServerEvent, StreamError
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.refusal import Refusal
from orchestrator.records.usage import Usage

USER = {"role": "user", "content": "hi"}
SAID = Said(
    id="1",
    model="m",
    text="some words of an answer, long enough for more than one piece",
    calls=(("a", "f", '{"x":1}'), ("b", "g", "{}")),
    tokens=Usage(uncached_input=3, cache_read=4, output=5, reasoning=2),
)


def refused(body, hosted=frozenset()):
    with pytest.raises(Refusal) as caught:
        CHAT.check({"messages": [USER], **body}, 10, hosted)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        {"n": 2},
        {"store": True},
        {"web_search_options": {}},
        {"extra_body": {"google": {"cached_content": "c"}}},
        {"litellm_params": {}},
        {"mock_tool_calls": [{}]},
        {"user_config": {"model_list": []}},
        {"deferred": True},
        {"aws_region_name": "x"},
        {"provider": {"order": ["x"]}},
        {"tools": [{"type": "web_search"}]},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]},
        {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]},
    ],
)
def test_state_and_tools_at_the_provider_are_found(body):
    assert refused(body).finding


def test_a_tool_that_the_task_lists_may_run_at_the_provider():
    CHAT.check(
        {"messages": [USER], "tools": [{"type": "web_search"}], "web_search_options": {}}, 10, frozenset({"web_search"})
    )
    assert refused({"tools": [{"type": "code_interpreter"}]}, frozenset({"web_search"})).kind == "hosted_tool"


@pytest.mark.parametrize("value", [1, "true", [], 0])
def test_whether_to_stream_is_said_in_one_way(value):
    assert refused({"stream": value}).kind == "invalid_request"


def test_what_means_nothing_is_taken():
    CHAT.check(
        {"messages": [USER], "n": 1, "store": False, "mcp_servers": [], "service_tier": "flex", "tools": []},
        10,
        frozenset(),
    )


def test_messages_have_one_form():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}}
    asked = CHAT.message({"role": "user", "name": "ann", "content": [{"type": "text", "text": "look"}, image]})
    digest = hashlib.sha256(b"\x00\x01\x02").hexdigest()
    media = {"type": "media", "media_type": "image/png", "url": None, "sha256": digest, "bytes": 3}
    assert asked == {"role": "user", "name": "ann", "parts": [{"type": "text", "text": "look"}, media]}
    result = CHAT.message({"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "42"}, image]})
    (part,) = result["parts"]
    assert (part["id"], part["content"], part["media"]) == ("a", "42\n[image/png]", [media])
    far = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    assert CHAT.message({"role": "user", "content": [far]})["parts"][0]["url"] == "https://example.org/a.png"


def test_the_same_words_are_the_same_entry():
    one = CHAT.items({"messages": [USER]})
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    assert CHAT.items({"messages": [{"role": "user", "content": [marked]}]}) == one


def test_an_answer_says_text_reasoning_and_calls():
    answer = CHAT.answer({}, SAID)
    answer["choices"][0]["message"]["reasoning_content"] = "hm"
    answer["choices"][0]["message"]["tool_calls"].append(
        {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** begin"}}
    )
    reply = CHAT.reply(answer)
    assert [part["type"] for part in reply.message["parts"]] == ["reasoning", "text", *["tool_call"] * 3]
    assert [(call["id"], call["name"], call["arguments"]) for call in reply.calls] == [
        *SAID.calls,
        ("c", "patch", "*** begin"),
    ]
    assert (reply.tokens, reply.finish_reason, reply.model) == (SAID.tokens, "tool_calls", "m")


@pytest.mark.parametrize(
    "choice", [None, {}, {"message": 3}, {"message": {"content": {"a": 1}, "tool_calls": [4, {"function": 5}]}}]
)
def test_a_malformed_answer_is_read_as_far_as_it_goes(choice):
    reply = CHAT.reply({"id": 4, "model": [], "choices": [choice], "usage": "x"})
    assert (reply.id, reply.model, reply.tokens) == (None, None, None)


def follow(events, **asked):
    reader = CHAT.reader(asked)
    shown = [out for event in events for out in reader.take(event)]
    return reader, shown


def test_usage_is_always_asked_for_and_shown_only_to_who_asked():
    sent = CHAT.outgoing({"stream": True, "messages": [USER], "stream_options": {"x": 1}}, "gpt")
    assert (sent["model"], sent["stream_options"]) == ("gpt", {"x": 1, "include_usage": True})
    assert "stream_options" not in CHAT.outgoing({"messages": [USER]}, "gpt")
    events = list(CHAT.events(CHAT.answer({}, SAID)))
    hidden, shown = follow(events)
    assert not any("usage" in event.data for event in shown)
    assert len(shown) == len(events) - 1
    asked, shown = follow(events, stream_options={"include_usage": True})
    assert shown == events
    assert CHAT.reply(hidden.answer()).tokens == CHAT.reply(asked.answer()).tokens == SAID.tokens


def test_usage_in_the_last_chunk_with_a_choice_is_hidden_there():
    last = {
        "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1},
    }
    reader, shown = follow([ServerEvent(json.dumps(last))])
    assert json.loads(shown[0].data) == {"choices": last["choices"]}
    assert (reader.done, reader.answer()["usage"]) == (True, {"prompt_tokens": 1})


def chunk(**delta):
    return ServerEvent(json.dumps({"choices": [{"index": 0, "delta": delta}]}))


def call(arguments="", **more):
    return {**more, "function": {"arguments": arguments, **({"name": more["id"]} if "id" in more else {})}}


@pytest.mark.parametrize(
    "calls",
    [
        [call("{", index=0, id="a"), call("}", index=0), call("{", index=1, id="b"), call("}", index=1)],
        [call("{", index=0, id="a"), call("{", index=1, id="b"), call("}", index=0), call("}", index=1)],
        [call("{}", index=0, id="a"), call("{}", index=0, id="b")],
        [call("{}", id="a"), call("{}", id="b")],
        [call("{", id="a"), call("}"), call("{", id="b"), call("}")],
        [call("{", index=0, id="a"), call("}", index=0, id="a"), call("{}", index=1, id="b")],
    ],
)
def test_parallel_calls_are_told_apart(calls):
    reader, _ = follow([chunk(tool_calls=[each]) for each in calls])
    found = CHAT.reply(reader.answer()).calls
    assert [(each["id"], each["name"], each["arguments"]) for each in found] == [("a", "a", "{}"), ("b", "b", "{}")]
    assert reader.calls == 2
    assert not reader.done


@pytest.mark.parametrize("data", ["", "{", "[]", "1", '{"a":' * 200 + "1" + "}" * 200])
def test_an_event_of_another_shape_is_told(data):
    with pytest.raises(ValueError):  # noqa: PT011  (the parser's own words)
        CHAT.reader({}).take(ServerEvent(data))


@pytest.mark.parametrize(
    "error", [{"message": "too busy", "code": 502}, {"message": "too busy", "type": "502"}, "too busy"]
)
def test_a_failure_inside_of_a_stream_is_raised(error):
    with pytest.raises(StreamError, match="too busy"):
        CHAT.reader({}).take(ServerEvent(json.dumps({"error": error})))
