"""The Messages API: what may be asked, what was said, and usage that comes in two parts."""

from __future__ import annotations

import json

import pytest

from orchestrator.gateway.dialects.base import Said, ServerEvent, StreamError
from orchestrator.gateway.dialects.messages import MESSAGES
from orchestrator.gateway.refusal import Refusal
from orchestrator.records.usage import Usage

USER = {"role": "user", "content": "hi"}


def check(body, *hosted):
    MESSAGES.check({"messages": [USER], **body}, 10, frozenset(hosted))


def block(**fields):
    return {"messages": [{"role": "user", "content": [fields]}]}


@pytest.mark.parametrize(
    "body",
    [
        {"mcp_servers": [{"type": "url", "url": "https://example.org"}]},
        {"container": "container_1"},
        {"thread": {"type": "create"}},
        {"fallbacks": [{"model": "other"}]},
        {"workspace_id": "w"},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"tools": [{"type": "code_execution_20260521", "name": "code_execution"}]},
        {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "other"}]},
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]},
        {"tools": [{"type": "bash_20250124_x", "name": "bash"}]},
        {"tools": [{"type": ["bash_20250124"], "name": "bash"}]},
        {"tools": [{"type": "surprise_20300101"}]},
        block(type="document", source={"type": "file", "file_id": "file_1"}),
        block(type="container_upload", file_id="file_1"),
        block(type="tool_result", tool_use_id="a", content=[{"type": "image", "source": {"file_id": "file_1"}}]),
        block(type="tool_addition", tool={"definition": {"type": "web_fetch_20250910"}, "type": "tool_definition"}),
    ],
)
def test_state_and_tools_at_the_provider_are_found(body):
    with pytest.raises(Refusal) as caught:
        check(body)
    assert caught.value.finding


def test_tools_that_the_agent_runs_are_taken():
    kinds = [
        "bash_20250124",
        "text_editor_20250728",
        "computer_20251124",
        "memory_20250818",
        "computer_toolset_20260801",
    ]
    check({"tools": [{"type": kind} for kind in kinds]})
    check({"tools": [{"name": "a", "defer_loading": True}, {"type": "custom", "name": "b"}], "mcp_servers": []})
    check({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}, "service_tier": "auto"})


def test_a_tool_that_the_task_lists_is_taken_in_each_version():
    for kind in ("web_search_20250305", "web_search_20260318"):
        check({"tools": [{"type": kind, "name": "web_search"}]}, "web_search")
    check({"tools": [{"type": "web_search_20250305"}]}, "web_search_20250305")


def test_instructions_come_first_and_changing_marks_do_not_matter():
    marked = {"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}
    one = MESSAGES.items({"system": "be kind", "messages": [USER]})
    assert one == MESSAGES.items(
        {"system": [marked], "messages": [{"role": "user", "content": [{**marked, "text": "hi"}]}]}
    )
    assert [MESSAGES.message(item)["role"] for item in one] == ["system", "user"]


def test_blocks_have_one_form():
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"b": 1, "a": [2]}},
        {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": [{"type": "text", "text": "no"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "plain"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        {"type": "server_tool_use", "id": "s"},
    ]
    parts = MESSAGES.message({"role": "user", "content": content})["parts"]
    assert [part["type"] for part in parts] == [
        "reasoning", "reasoning", "tool_call", "tool_result", "tool_result", "media", "media", "text", "other",
    ]  # fmt: skip
    assert parts[2] == {"type": "tool_call", "id": "a", "name": "f", "arguments": '{"a":[2],"b":1}'}
    assert [(part["id"], part["content"], part["is_error"]) for part in parts[3:5]] == [
        ("a", "no", True),
        ("b", "plain", False),
    ]
    assert (parts[5]["bytes"], parts[6]["media_type"], parts[7]["text"]) == (3, "application/pdf", "words")


def test_tools_are_those_of_the_request_and_of_its_messages():
    definition = {"name": "late", "input_schema": {"type": "object"}}
    body = block(type="tool_addition", tool={"type": "tool_definition", "definition": definition})
    body["tools"] = [{"name": "early", "description": "d"}, {"type": "bash_20250124", "name": "bash"}]
    assert [(tool["name"], tool["type"], tool["schema"]) for tool in MESSAGES.tools(body)] == [
        ("early", "function", None), ("bash", "bash_20250124", None), ("late", "function", {"type": "object"}),
    ]  # fmt: skip


def event(kind, **fields):
    return ServerEvent(json.dumps({"type": kind, **fields}), kind)


def test_usage_is_put_together_from_what_a_stream_tells_of_it():
    reader = MESSAGES.reader({})
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 7, "output_tokens": 1}
    usage["cache_creation"] = {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 6}
    sent = [
        event("message_start", message={"id": "m", "model": "claude", "usage": usage}),
        event("ping"),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 40, "input_tokens": None}),
        event("message_delta", delta={}, usage={"output_tokens": 50, "output_tokens_details": {"thinking_tokens": 20}}),
    ]
    assert [out for each in sent for out in reader.take(each)] == sent
    assert not reader.done
    reply = MESSAGES.reply(reader.answer())
    assert reply.tokens == Usage(
        uncached_input=3, cache_read=7, cache_write=10, cache_write_1h=6, output=50, reasoning=20
    )
    assert (reply.id, reply.model, reply.finish_reason) == ("m", "claude", "end_turn")


def test_an_answer_that_is_cut_keeps_the_arguments_that_came():
    said = Said(id="1", model="m", text="t", calls=(("a", "f", '{"key": "some long value of it"}'),), tokens=Usage())
    reader = MESSAGES.reader({})
    for each in MESSAGES.events(MESSAGES.answer({}, said)):
        if each.event == "content_block_stop" and reader.calls:
            break
        if reader.calls and reader.characters > 10:
            break
        reader.take(each)
    (call,) = MESSAGES.reply(reader.answer()).calls
    assert call["arguments"] == '{"key":"some lon'
    assert not reader.done


@pytest.mark.parametrize("arguments", ["1", "[", "[" * 300 + "]" * 300])
def test_arguments_that_are_no_object_stay_what_they_are(arguments):
    reader = MESSAGES.reader({})
    reader.take(event("content_block_start", index=0, content_block={"type": "tool_use", "id": "a", "input": {}}))
    reader.take(event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": arguments}))
    (call,) = MESSAGES.reply(reader.answer()).calls
    assert call["arguments"] == arguments


def test_a_failure_inside_of_a_stream_is_raised():
    with pytest.raises(StreamError, match="Overloaded") as caught:
        MESSAGES.reader({}).take(event("error", error={"type": "overloaded_error", "message": "Overloaded"}))
    assert caught.value.code == "overloaded_error"


@pytest.mark.parametrize("index", [None, "0", {}])
def test_an_event_of_another_shape_is_told(index):
    with pytest.raises(ValueError, match="no index"):
        MESSAGES.reader({}).take(event("content_block_delta", index=index, delta={}))
