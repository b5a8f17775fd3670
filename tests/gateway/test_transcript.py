"""What the gateway records of model traffic: only what is new, found by the conversation it belongs to."""

from __future__ import annotations

from orchestrator.gateway.calls import Timing
from orchestrator.gateway.dialects.chat import CHAT
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
