"""What each format says, in the one form."""

import asyncio
import json

import pytest
from import_world import START, TOOLS, atif, conversation, lines, otel, own, request, write

from orchestrator.dataset.metrics import trial_metrics
from orchestrator.dataset.steps import step_rows
from orchestrator.trace.read import read_events


def only(world, name, text, **more):
    (trace,), reader = world.read(write(world.folder, name, text), **more)
    assert reader.problems == []
    return trace


def events_of(trace):
    events = read_events(trace.path.read_bytes())
    assert events[-1].type == "seal"
    return events


def calls_of(trace):
    keep = ("tool", "known", "valid", "outcome")
    rows = step_rows(events_of(trace))
    return [tuple(row[name] for name in keep) for row in rows if row["type"] == "tool_call"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", lines(conversation())),
        ("a.json", json.dumps(conversation(), indent=2)),
        ("a.json", json.dumps([conversation()])),
        ("a.json", json.dumps(conversation())),
    ],
)
def test_a_conversation_in_any_file(world, name, text):
    trace = only(world, name, text)
    assert (trace.steps, trace.tool_calls, trace.reason) == (3, 3, "not_recorded")
    assert trace.unrecorded == ("tokens", "times", "waiting")
    assert calls_of(trace) == [
        ("get_order", True, True, "error"),
        ("odd", False, None, "ok"),
        ("get_order", True, True, "ok"),
    ]


@pytest.mark.parametrize("text", [json.dumps(conversation()["messages"], indent=1), lines(conversation()["messages"])])
def test_a_bare_list_of_messages_is_one_trace(world, text):
    assert only(world, "a.json", text).steps == 3


def test_a_conversation_of_the_messages_api(world):
    stated = {
        "system": "Be kind.",
        "tools": [{"name": "get_order", "input_schema": TOOLS[0]["function"]["parameters"]}],
        "messages": [
            {"role": "user", "content": "Where is it?"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "get_order", "input": {"id": 7}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}],
            },
            {"role": "assistant", "content": "I cannot say.", "usage": {"input_tokens": 9, "output_tokens": 4}},
        ],
    }
    trace = only(world, "a.jsonl", lines(stated))
    assert (trace.steps, trace.tool_calls) == (2, 1)
    assert calls_of(trace) == [("get_order", True, False, "error")]
    assert "Be kind." in trace.path.read_text()


def test_nothing_that_was_said_is_lost(world):
    events = events_of(only(world, "a.jsonl", lines(conversation())))
    told = json.dumps([event.data for event in events])
    for text in ("Be kind.", "Where is it?", "no such order", "It is on its way.", "Thanks."):
        assert text in told
    assert {event.source for event in events} == {"agent"}


def test_what_a_conversation_says_of_itself(world):
    stated = conversation(task_id=7, agent="Desk", model="gpt-4o", termination_reason="step_cap")
    stated["messages"][2]["usage"] = {"prompt_tokens": 5, "completion_tokens": 1}
    trace = only(world, "a.jsonl", lines(stated))
    assert (trace.task, trace.agent, trace.models, trace.reason) == ("task-7", "Desk", ("gpt-4o",), "step_cap")
    assert trace.usage is None, "two of three responses have no tokens"


def test_words_of_others_for_an_ending_are_not_taken_for_ours(world):
    assert only(world, "a.jsonl", lines(conversation(termination_reason="user_stop"))).reason == "not_recorded"


def test_tools_are_those_given_where_a_trace_has_none_and_do_not_change_what_it_is(world):
    bare = conversation()
    del bare["tools"]
    text = lines(bare)
    without, given = only(world, "a.jsonl", text), only(world, "a.jsonl", text, tools=_tools())
    assert [known for _, known, _, _ in calls_of(without)] == [None, None, None]
    assert [known for _, known, _, _ in calls_of(given)] == [True, False, True]
    assert without.identity == given.identity


def _tools():
    from orchestrator.wiring import dialect

    return dialect("chat").tools({"tools": TOOLS})


def test_atif(world):
    trace = only(world, "a.json", json.dumps(atif()))
    assert (trace.steps, trace.tool_calls, trace.agent, trace.models) == (2, 1, "Terminus 2", ("gpt-4o",))
    assert (trace.usage.uncached_input, trace.usage.cache_read, trace.usage.output) == (26, 4, 5)
    assert trace.usage.cost_nano_usd == 750_000_000
    assert trace.ended - trace.started == 10, "from the first step on, whoever took it"
    assert calls_of(trace) == [("get_order", True, True, "ok")]


def test_atif_totals_stand_where_steps_have_no_tokens_and_subagents_are_conversations(world):
    document = atif()
    for step in document["steps"]:
        step.pop("metrics", None)
    document["final_metrics"] = {"total_prompt_tokens": 7, "total_completion_tokens": 2, "total_cost_usd": 0.1}
    document["subagent_trajectories"] = [{**atif(), "trajectory_id": "sub"}]
    trace = only(world, "a.json", json.dumps(document))
    assert (trace.steps, trace.usage.uncached_input, trace.usage.cost_nano_usd) == (4, 7, 100_000_000)
    assert {event.data.get("conversation") for event in events_of(trace) if event.type == "model_request"} == {0, 1}


def test_atif_steps_that_asked_no_model_are_no_model_responses(world):
    document = atif()
    document["steps"][1] |= {"llm_call_count": 0}
    document["steps"][2] |= {"is_copied_context": True}
    assert (only(world, "a.json", json.dumps(document)).steps) == 0


def test_spans_of_a_trace_are_found_wherever_they_are(world):
    spans = otel()
    one, two = write(world.folder, "1.jsonl", lines(request(*spans[3:]), request(spans[0]))), lines(request(*spans[:3]))
    (trace,), reader = world.read(one, write(world.folder, "2.json", two))
    assert reader.problems == []
    assert (trace.steps, trace.tool_calls, trace.agent, trace.reason) == (2, 2, "Order Desk", "completed")
    assert (trace.started, trace.ended) == (START, START + 30)
    assert (trace.usage.uncached_input, trace.usage.output) == (3000, 300)
    assert trace.usage.cost_nano_usd == 6_000_000, "3000 at 1 dollar and 300 at 10 for a million"
    assert list(trace.prices) == ["openai/gpt-4o"]
    assert calls_of(trace) == [("get_order", None, None, "error"), ("get_order", None, None, "ok")]
    assert json.dumps([event.data for event in events_of(trace)]).count("Where is it?") == 1


def test_a_span_that_ended_in_an_error_is_an_ending_and_one_that_says_nothing_is_none(world):
    for status, reason in ((2, "unhandled_exception"), (0, "not_recorded")):
        spans = otel()
        spans[0]["status"] = {"code": status}
        assert only(world, f"{status}.json", json.dumps(request(*spans))).reason == reason


def test_logs_and_metrics_beside_spans_are_left_out(world):
    traces, reader = world.read(
        write(world.folder, "a.jsonl", lines({"resourceLogs": []}, request(*otel()), {"resourceMetrics": []}))
    )
    assert (len(traces), reader.left_out, reader.problems) == (1, 2, [])
    assert [event.t for event in events_of(traces[0])][:2] == [START, START + 1]


def test_a_trajectory_of_ours_stays_what_it_is(world):
    text = lines(*own())
    trace = only(world, "trajectory.jsonl", text)
    assert trace.path.read_text() == text
    assert (trace.task, trace.agent, trace.reason, trace.ended_as) == ("fix-login", "careful", "declined", "declined")
    assert (trace.steps, trace.tool_calls, trace.waiting_s, trace.unrecorded) == (1, 1, 0.5, ())
    assert trace.final is not None
    assert trace.final.status == "declined"
    assert trace.usage.cost_nano_usd == 7


def test_trajectories_after_one_another_in_a_file_are_several(world):
    events = own()
    events[0] = {**events[0], "trial": "other@careful:1"}
    traces, _ = world.read(write(world.folder, "a.jsonl", lines(*own(), *events)))
    assert [trace.task for trace in traces] == ["fix-login", "other"]


def test_a_trajectory_that_lacks_an_event_is_told_by_file_and_line(world):
    path = write(world.folder, "a.jsonl", lines(conversation(), *own()[1:]))
    traces, reader = world.read(path)
    assert len(traces) == 1
    assert [(problem.file, problem.line) for problem in reader.problems] == [(str(path), 2)]


def test_metrics_of_an_imported_trace_are_reported_ones(world):
    path = write(world.folder, "a.jsonl", lines(conversation()))
    done = asyncio.run(world.bring(path))
    (row,) = asyncio.run(world.data(done.runs[0])).rows
    seen, said = trial_metrics(row, step_rows(events_of(world.read(path)[0][0])))
    assert (seen.steps, seen.calls, seen.termination_reason) == (None, 0, None)
    assert (said.steps, said.calls, said.right_calls, said.schema_calls) == (3, 3, 2, 3)
    assert (said.error_episodes, said.recovered_episodes, said.completed) == (1, 1, None)
