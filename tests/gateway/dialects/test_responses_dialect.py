"""The Responses API: no state at the provider, items in one form, and streams that break anywhere."""

from __future__ import annotations

import json

import pytest

from orchestrator.gateway.dialects.base import Said, ServerEvent, StreamError
from orchestrator.gateway.dialects.embeddings import EMBEDDINGS
from orchestrator.gateway.dialects.responses import RESPONSES
from orchestrator.gateway.refusal import Refusal
from orchestrator.records.usage import Usage

PIXEL = "data:image/png;base64,AAEC"


def check(body, *hosted):
    RESPONSES.check({"input": "hi", **body}, 10, frozenset(hosted))


def item(**fields):
    return {"input": [fields]}


@pytest.mark.parametrize(
    "body",
    [
        {"store": True},
        {"background": True},
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"prompt": {"id": "pmpt_1"}},
        {"tools": [{"type": "web_search", "external_web_access": True}]},
        {"tools": [{"type": "mcp", "server_url": "https://example.org"}]},
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
        {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
        {"tools": [{"type": "tool_search"}]},
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "file_search"}]}]},
        item(type="additional_tools", role="developer", tools=[{"type": "image_generation"}]),
        item(type="item_reference", id="msg_1"),
        item(id="msg_1"),
        item(role="user", content=[{"type": "input_file", "file_id": "file_1"}]),
        item(role="user", content=[{"type": "input_image", "file_id": "file_1"}]),
        item(type="function_call_output", call_id="a", output=[{"type": "input_file", "file_id": "file_1"}]),
        item(type="computer_call_output", call_id="a", output={"type": "computer_screenshot", "file_id": "file_1"}),
    ],
)
def test_state_and_tools_at_the_provider_are_found(body):
    with pytest.raises(Refusal) as caught:
        check(body)
    assert caught.value.finding


def test_what_the_agent_runs_itself_is_taken():
    kinds = ["function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview"]
    check({"tools": [{"type": kind, "name": "x"} for kind in kinds]})
    check(
        {"tools": [{"type": "shell", "environment": {"type": "local"}}, {"type": "tool_search", "execution": "client"}]}
    )
    check({"store": False, "background": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k"})
    check({"tools": [{"type": "web_search_preview_2025_03_11"}]}, "web_search")
    check(item(type="mcp_list_tools", server_label="x", tools=[{"name": "a", "input_schema": {}}]))


@pytest.mark.parametrize("given", ["", [], None, 3, ["x"], [{"role": "user", "content": "x"}] * 11])
def test_an_input_of_another_shape_or_size_is_refused(given):
    with pytest.raises(Refusal):
        check({"input": given})


@pytest.mark.parametrize("store", [{}, {"store": None}, {"store": False}])
def test_the_provider_is_told_to_keep_nothing(store):
    assert RESPONSES.outgoing({"input": "x", **store}, "gpt")["store"] is False


def test_a_text_and_its_long_form_are_the_same_entry():
    long = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    items = RESPONSES.items({"input": "hi", "instructions": "be kind"})
    assert items == RESPONSES.items({"input": [long], "instructions": "be kind"})
    assert [RESPONSES.message(each)["role"] for each in items] == ["system", "user"]


def test_items_have_one_form():
    listed = [
        {"role": "developer", "content": "rules"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "42"},
        {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "*** begin"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "local_shell_call", "id": "x", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c", "output": "files"},
        {"type": "shell_call_output", "call_id": "d", "output": [{"stdout": "out", "stderr": "err"}]},
        {"type": "computer_call_output", "call_id": "e", "output": {"type": "computer_screenshot", "image_url": PIXEL}},
        {"type": "web_search_call", "id": "w"},
    ]  # fmt: skip
    found = [RESPONSES.message(each) for each in listed]
    assert [message["role"] for message in found] == [
        "developer", "assistant", "assistant", "tool", "assistant", "tool", "assistant", "tool", "tool", "tool", "assistant",
    ]  # fmt: skip
    parts = [message["parts"][0] for message in found]
    assert [part.get("name") for part in parts if part["type"] == "tool_call"] == ["f", "patch", "local_shell"]
    assert [(part["id"], part["content"]) for part in parts if part["type"] == "tool_result"] == [
        ("a", "42"), ("b", "ok"), ("c", "files"), ("d", "outerr"), ("e", "[image/png]"),
    ]  # fmt: skip
    assert parts[1] == {"type": "reasoning", "text": "hm"}
    assert parts[-1]["kind"] == "web_search_call"


def test_tools_of_a_namespace_are_offered_one_by_one():
    nested = {
        "type": "namespace",
        "name": "crm",
        "tools": [{"type": "function", "name": "find", "parameters": {"a": 1}}],
    }
    found = RESPONSES.tools({"tools": [nested, {"type": "local_shell"}], "input": []})
    assert [(tool["name"], tool["type"], tool["schema"]) for tool in found] == [
        ("find", "function", {"a": 1}), ("local_shell", "local_shell", None),
    ]  # fmt: skip


def test_a_scripted_call_has_the_form_of_its_tool():
    said = Said(
        id="1", model="m", text="", calls=(("a", "patch", '{"input":"*** begin"}'), ("b", "find", "{}")), tokens=Usage()
    )
    nested = {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}
    one, two = RESPONSES.answer({"tools": [{"type": "custom", "name": "patch"}, nested]}, said)["output"]
    assert (one["type"], one["input"]) == ("custom_tool_call", "*** begin")
    assert (two["type"], two["namespace"]) == ("function_call", "crm")


def test_a_scripted_call_knows_the_tools_that_the_input_adds():
    tools = [{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]
    said = Said(id="1", model="m", text="", calls=(("a", "exec", '{"input": "text(1)"}'),), tokens=Usage())
    [call] = RESPONSES.answer({"input": [{"type": "additional_tools", "tools": tools}]}, said)["output"]
    assert (call["type"], call["namespace"], call["input"]) == ("custom_tool_call", "functions", "text(1)")


SAID = Said(
    id="1",
    model="m",
    text="a text of some length, for several pieces",
    calls=(("a", "f", '{"key":"some long value of it"}'),),
    tokens=Usage(uncached_input=5, output=7),
)


def test_an_answer_that_breaks_off_keeps_what_came():
    reader = RESPONSES.reader({})
    for event in RESPONSES.events(RESPONSES.answer({}, SAID)):
        if "arguments.done" in event.data:
            break
        reader.take(event)
    reply = RESPONSES.reply(reader.answer())
    assert [part.get("text", part.get("arguments")) for part in reply.message["parts"]] == [SAID.text, SAID.calls[0][2]]
    assert (reader.calls, reader.done, reply.tokens) == (1, False, None)
    assert reader.characters == len(SAID.text) + len(SAID.calls[0][2])


@pytest.mark.parametrize("output", [{}, {"output": []}, {"output": None}])
def test_items_count_even_if_the_end_does_not_repeat_them(output):
    whole = RESPONSES.answer({}, SAID)
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": each}
        for index, each in enumerate(whole["output"])
    ]
    end = {"type": "response.completed", "response": {"id": "r", "usage": whole["usage"], **output}}
    reader = RESPONSES.reader({})
    for event in [*done, end]:
        reader.take(ServerEvent(json.dumps(event)))
    assert RESPONSES.reply(reader.answer()).message == RESPONSES.reply(whole).message
    assert (reader.calls, reader.characters) == (1, len(SAID.text) + len(SAID.calls[0][2]))


def test_an_answer_that_is_too_long_is_complete_and_says_why():
    answer = {
        **RESPONSES.answer({}, SAID),
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    reader = RESPONSES.reader({})
    for event in RESPONSES.events(answer):
        reader.take(event)
    assert (reader.done, RESPONSES.reply(reader.answer()).finish_reason) == (True, "max_output_tokens")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "broke"},
        {"type": "error", "error": {"type": "server_error", "message": "broke"}},
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "broke"}}},
    ],
)
def test_a_failure_inside_of_a_stream_is_raised(event):
    with pytest.raises(StreamError, match="broke") as caught:
        RESPONSES.reader({}).take(ServerEvent(json.dumps(event)))
    assert caught.value.code == "server_error"


@pytest.mark.parametrize("index", [None, -1, 10**9, "0"])
def test_an_event_of_another_shape_is_told(index):
    with pytest.raises(ValueError, match="output_index"):
        RESPONSES.reader({}).take(
            ServerEvent(json.dumps({"type": "response.output_item.added", "output_index": index}))
        )


@pytest.mark.parametrize(
    "body",
    [
        {"input": ""},
        {"input": [[1, 2], 3]},
        {"input": [True]},
        {"input": ["a"] * 11},
        {"input": "a", "stream": True},
        {"input": "a", "dimensions": 10**9},
        {"input": "a", "dimensions": "3"},
    ],
)
def test_what_cannot_be_embedded_is_refused(body):
    with pytest.raises(Refusal):
        EMBEDDINGS.check(body, 10, frozenset())


@pytest.mark.parametrize(("given", "parts"), [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2, 3]], 2)])
def test_inputs_are_recorded_one_by_one(given, parts):
    EMBEDDINGS.check({"input": given}, 10, frozenset())
    found = [EMBEDDINGS.message(each)["parts"][0] for each in EMBEDDINGS.items({"input": given})]
    assert len(found) == parts
    assert {part["type"] for part in found} <= {"text", "other"}
