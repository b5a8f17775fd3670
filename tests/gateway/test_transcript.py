"""What the gateway records of model traffic: only what is new, found by the conversation it belongs to."""

from __future__ import annotations

from orchestrator.gateway.calls import Timing
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.dialects.messages import MESSAGES
from orchestrator.gateway.dialects.responses import RESPONSES
from orchestrator.gateway.transcript import Answered, Transcript
from orchestrator.records.usage import Usage


class Recorder:
    """Keeps events in memory."""

    def __init__(self):
        self.events = []

    def append(self, kind, source, data):
        self.events.append((kind, source, data))
        return len(self.events) - 1

    def of(self, kind):
        return [data for found, _, data in self.events if found == kind]


def user(text):
    return {"role": "user", "content": text}


def call(name, arguments="{}"):
    return {"id": f"c-{name}", "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(*calls):
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    return {"id": "r", "model": "m", "choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": None}


def respond(transcript, asked, said):
    transcript.response(
        asked,
        Answered(
            reply=CHAT.reply(said),
            usage=Usage(),
            estimated=True,
            timing=Timing(0.1, 0.2),
            first_token_s=None,
            broken=False,
        ),
    )


def test_only_new_messages_are_recorded():
    recorder = Recorder()
    transcript = Transcript(recorder)
    first = [user("a" * 1000)]
    second = [*first, {"role": "assistant", "content": "b"}, user("c")]
    for messages in (first, second):
        transcript.request("p/m", CHAT, {"messages": messages, "temperature": 1})
    one, two = recorder.of("model_request")
    assert [m["parts"] for m in two["messages"]] == [[{"type": "text", "text": "b"}], [{"type": "text", "text": "c"}]]
    assert (one["kept"], two["kept"], two["total"], two["conversation"]) == (0, 1, 3, one["conversation"])
    assert one["sha256"] != two["sha256"]
    assert two["params"] == {"temperature": 1}


def test_a_side_call_is_a_conversation_of_its_own():
    recorder = Recorder()
    transcript = Transcript(recorder)
    main = [user("work")]
    transcript.request("p/m", CHAT, {"messages": main})
    transcript.request("p/m", CHAT, {"messages": [user("title?")]})
    transcript.request("p/m", CHAT, {"messages": [*main, {"role": "assistant", "content": "x"}]})
    assert [(r["conversation"], r["kept"]) for r in recorder.of("model_request")] == [(0, 0), (1, 0), (0, 1)]


def test_tool_calls_and_results_are_the_agents_word():
    recorder = Recorder()
    transcript = Transcript(recorder)
    asked = {
        "messages": [user("a")],
        "tools": [{"type": "function", "function": {"name": "known", "parameters": {"type": "object"}}}],
    }
    number = transcript.request("p/m", CHAT, asked)
    reply = answer(call("known", '{"x": 1}'), call("unknown", "{oops"))
    respond(transcript, number, reply)
    result = {"role": "tool", "tool_call_id": "c-known", "content": "42"}
    transcript.request("p/m", CHAT, {**asked, "messages": [*asked["messages"], reply["choices"][0]["message"], result]})
    calls = [
        (source, data["name"], data["known"], data["valid"])
        for kind, source, data in recorder.events
        if kind == "tool_call"
    ]
    assert calls == [("agent", "known", True, True), ("agent", "unknown", False, None)]
    results = [(source, data["id"], data["content"]) for kind, source, data in recorder.events if kind == "tool_result"]
    assert results == [("agent", "c-known", "42")]
    first, second = recorder.of("model_request")
    assert "tools" in first
    assert "tools" not in second
    assert [m["role"] for m in second["messages"]] == ["assistant"]


def test_a_retry_of_the_same_request_adds_nothing():
    recorder = Recorder()
    transcript = Transcript(recorder)
    for _ in range(2):
        transcript.request("p/m", CHAT, {"messages": [user("a")]})
    assert [len(r["messages"]) for r in recorder.of("model_request")] == [1, 0]


def test_a_conversation_that_shares_the_beginning_of_another_names_it():
    recorder = Recorder()
    transcript = Transcript(recorder)
    rules = {"role": "system", "content": "be good"}
    for messages in (
        [rules, user("a"), user("b")],
        [rules, user("a"), user("other")],
        [rules, user("new")],
        [user("x")],
    ):
        transcript.request("p/m", CHAT, {"messages": messages})
    found = [(each["conversation"], each["parent"], each["kept"]) for each in recorder.of("model_request")]
    assert found == [(0, None, 0), (1, 0, 0), (2, 1, 0), (3, None, 0)]


def test_cache_marks_that_move_do_not_begin_another_conversation():
    recorder = Recorder()
    transcript = Transcript(recorder)
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    plain = {"type": "text", "text": "a"}
    said = {"role": "assistant", "content": "b"}
    for content, more in ([marked], []), ([plain], [said, user("c")]), ("a", [said, user("c"), said, user("d")]):
        transcript.request("p/m", MESSAGES, {"messages": [user(content), *more]})
    assert [(each["conversation"], each["kept"]) for each in recorder.of("model_request")] == [(0, 0), (0, 1), (0, 3)]


def test_an_answer_of_several_items_is_known_when_it_comes_back():
    recorder = Recorder()
    transcript = Transcript(recorder)
    asked = [{"role": "user", "content": "a"}]
    answered = [
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "42"},
    ]
    for items in (asked, [*asked, *answered]):
        transcript.request("p/m", RESPONSES, {"instructions": "be good", "input": items})
    first, second = recorder.of("model_request")
    assert (first["total"], second["kept"], second["total"], second["conversation"]) == (2, 2, 5, 0)
    assert [part["type"] for message in second["messages"] for part in message["parts"]] == ["reasoning", "tool_call"]
    assert recorder.of("tool_result") == [
        {"conversation": 0, "index": 4, "id": "c", "content": "42", "is_error": False}
    ]


def test_a_message_of_results_and_words_is_told_apart():
    recorder = Recorder()
    transcript = Transcript(recorder)
    content = [
        {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True},
        {"type": "text", "text": "go on"},
    ]
    transcript.request("p/m", MESSAGES, {"messages": [user("a"), user(content)]})
    [request] = recorder.of("model_request")
    assert [message["parts"] for message in request["messages"]] == [
        [{"type": "text", "text": "a"}],
        [{"type": "text", "text": "go on"}],
    ]
    assert recorder.of("tool_result")[0]["is_error"] is True
