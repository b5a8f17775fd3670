"""What other programs get of a run: whole, the same each time, without content where that is wished, and of odd events what can be told."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile

import pydantic_core
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from told_run import RUN, SECRET, called, events, lines, request, response, said, text, told_run

from orchestrator.dataset.rows import collect
from orchestrator.errors import InfrastructureError, SpecError
from orchestrator.exports import otlp
from orchestrator.exports.story import object_of, tell
from orchestrator.exports.write import Wish, export_traces
from orchestrator.settings import otlp_headers
from orchestrator.trace.read import read_events
from orchestrator.wiring import event_reader


def exported(folder, kind, found=None, **more):
    """Export a run into a folder of that kind's name. Returns what came of it and the files' bytes by name."""

    async def live():
        store = await told_run(folder, found)
        return await export_traces(
            event_reader(store), await collect(store, RUN), Wish(kind=kind, folder=folder / kind, **more)
        )

    done = asyncio.run(live())
    return done, {path.name: path.read_bytes() for path in sorted((folder / kind).iterdir())}


def attributes_of(item):
    return {each["key"]: next(iter(each["value"].values())) for each in item["attributes"]}


def spans(files):
    found = [json.loads(line) for line in files["traces.jsonl"].splitlines()]
    return [span for one in found for span in one["resourceSpans"][0]["scopeSpans"][0]["spans"]]


def test_the_story_has_whole_conversations_and_pairs_what_was_asked_with_what_was_seen():
    story = tell(read_events(lines()))
    main = [call for call in story.calls if call.conversation == story.main]
    assert [message["role"] for message in main[1].input] == ["system", "user", "assistant", "tool", "tool"]
    assert [message["role"] for message in main[2].input][-1] == "user"
    assert main[0].input[0] is main[2].input[0]
    assert [(use.name, use.source, use.result, use.outcome) for use in story.tools] == [
        ("shell", "agent", "a.py", None),
        ("shell", "agent", "what?", None),
        ("mcp__gateway__finish", "agent", "accepted", "ok"),
        ("ask_user", "gateway", "no", "refused"),
    ]


def test_a_sub_agent_that_begins_like_its_parent_has_that_beginning():
    first = [said("user", text("a"), index=0), said("user", text("b"), index=1)]
    found = [
        request(first, kept=0),
        response(0, text("x")),
        request([said("user", text("c"), index=1)], kept=1, conversation=1, parent=0),
    ]
    story = tell(read_events(lines(found)))
    assert [message["parts"][0]["text"] for message in story.calls[1].input] == ["a", "c"]


def test_spans_have_what_the_conventions_name(tmp_path):
    done, files = exported(tmp_path, "otel")
    assert done.trials == 2
    assert [why for _, why in done.left_out] == ["it left no trajectory", "no launch of it has ended"]
    found = spans(files)
    told = (
        [span for span in found if span["traceId"] == found[0]["traceId"]]
        if found[0]["name"] == "invoke_agent talker"
        else []
    )
    told = told or [
        s for s in found if s["traceId"] == next(x["traceId"] for x in found if x["name"] == "invoke_agent talker")
    ]
    root = told[0]
    facts = attributes_of(root)
    assert root["name"] == "invoke_agent talker"
    assert facts["eval.case_id"] == "fix"
    assert facts["eval.passed"] is True
    assert facts["gen_ai.usage.input_tokens"] == "100"
    assert all(span["parentSpanId"] == root["spanId"] for span in told[1:])
    chat = attributes_of(next(span for span in told if span["name"] == "chat gpt-x"))
    assert chat["gen_ai.provider.name"] == "openai"
    assert chat["gen_ai.response.model"] == "gpt-x-2026"
    assert chat["gen_ai.usage.input_tokens"] == "123"
    assert chat["gen_ai.usage.cache_read.input_tokens"] == "100"
    assert chat["gen_ai.request.temperature"] == 0.5
    assert json.loads(chat["gen_ai.system_instructions"]) == [{"type": "text", "content": f"Be brief. {SECRET}"}]
    assert json.loads(chat["gen_ai.output.messages"])[0]["parts"][2]["type"] == "tool_call"
    tools = [attributes_of(span) for span in told if span["name"].startswith("execute_tool")]
    assert [tool.get("error.type") for tool in tools] == [None, "tool_error", None, "refused"]
    failed = [span for span in told if span["name"] == "chat gpt-x"][-1]
    assert attributes_of(failed)["error.type"] == "bad_request"
    assert failed["status"] == {"code": 2}
    assert len({span["spanId"] for span in told}) == len(told)
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in found)
    logs = [json.loads(line)["resourceLogs"][0]["scopeLogs"][0] for line in files["logs.jsonl"].splitlines()]
    assert all(log["schemaUrl"].startswith("https://opentelemetry.io/schemas/") for log in logs)
    labels = [attributes_of(each)["gen_ai.evaluation.score.label"] for log in logs for each in log["logRecords"][:1]]
    assert sorted(labels) == ["failed", "passed"]


@pytest.mark.parametrize("kind", ["otel", "atif", "inspect"])
def test_a_second_export_is_the_same_bytes(tmp_path, kind):
    _, first = exported(tmp_path / "a", kind)
    _, second = exported(tmp_path / "b", kind)
    assert first == second


def unpacked(name, data, folder):
    if not name.endswith(".eval"):
        return data
    (folder / "x.zip").write_bytes(data)
    with zipfile.ZipFile(folder / "x.zip") as archive:
        return b"".join(archive.read(each) for each in archive.namelist())


@pytest.mark.parametrize("kind", ["otel", "atif", "inspect"])
def test_content_can_be_left_out(tmp_path, kind):
    _, whole = exported(tmp_path / "a", kind)
    assert any(SECRET.encode() in unpacked(name, data, tmp_path) for name, data in whole.items())
    _, bare = exported(tmp_path / "b", kind, content=False)
    told = b"".join(unpacked(name, data, tmp_path) for name, data in bare.items())
    for words in (SECRET, "a.py", "Let me see", '\\"ls\\"', '"ls"', "It works", "2 passed", 'hm"'):
        assert words.encode() not in told, words
    assert b"gpt-x-2026" in told


def test_atif_has_results_where_they_were_asked_for_and_sub_agents_apart(tmp_path):
    _, files = exported(tmp_path, "atif")
    found = json.loads(files["fix@talker:1.json"])
    assert [step["source"] for step in found["steps"]] == ["system", "user", "agent", "agent", "user", "agent"]
    first = found["steps"][2]
    assert [call["tool_call_id"] for call in first["tool_calls"]] == ["c1", "c2"]
    assert first["tool_calls"][1]["extra"]["unparsed"] == "not json"
    assert [result["content"] for result in first["observation"]["results"]] == ["a.py", "what?"]
    assert first["reasoning_content"] == "hm"
    assert first["metrics"]["prompt_tokens"] == 123
    assert found["steps"][-1]["llm_call_count"] == 0
    assert [each["trajectory_id"] for each in found["subagent_trajectories"]] == ["conversation-1"]
    assert json.loads(files["fix@mute:1.json"])["steps"][0]["llm_call_count"] == 0


def test_inspect_has_a_log_for_each_agent_and_its_messages_once(tmp_path):
    _, files = exported(tmp_path, "inspect")
    assert sorted(files) == ["mute.eval", "talker.eval"]
    with zipfile.ZipFile(tmp_path / "inspect/talker.eval") as log:
        names = log.namelist()
        sample = json.loads(log.read("samples/fix_epoch_1.json"))
        header = json.loads(log.read("header.json"))
    assert names[0] == "_journal/start.json"
    assert sample["scores"]["orchestrate"]["value"] == "C"
    assert header["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1.0
    calls = [event for event in sample["events"] if event["event"] == "model"]
    assert [sum(end - begin for begin, end in call["input_refs"]) for call in calls] == [2, 1, 5, 6]
    assert len(sample["events_data"]["messages"]) == 7
    with zipfile.ZipFile(tmp_path / "inspect/mute.eval") as log:
        sample = json.loads(log.read("samples/fix_epoch_1.json"))
    assert sample["limit"]["type"] == "turn"
    assert sample["scores"]["orchestrate"]["value"] == "I"


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.sampled_from(["", "text", "tool_call", "shell", "{}", "c1", "openai/gpt-x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "parts", "text", "name", "index"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_events_of_odd_shapes_are_told_as_far_as_they_can_be(tmp_path_factory, data):
    found = events()
    for number in data.draw(st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=6, unique=True)):
        kind, source, fields = found[number]
        name = data.draw(st.sampled_from(sorted(fields) or ["x"]))
        found[number] = kind, source, {**fields, name: data.draw(odd)}
    folder = tmp_path_factory.mktemp("odd")
    for kind in ("otel", "atif", "inspect"):
        done, _ = exported(folder / kind, kind, found)
        assert done.trials == 2


def members(name, data):
    if not name.endswith(".eval"):
        return [data]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [archive.read(each) for each in archive.namelist()]


ODD_ARGUMENTS = [
    '{"n": NaN}', '{"n": -Infinity}', '{"n": 1e999}', '{"n": ' + "1" * 500 + "}", '{"a": "\\ud800"}', '{"\\udfff": 1}',
    '{"d": ' * 300 + "1" + "}" * 300, '{"d": ' * 3000 + "1" + "}" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("arguments", ODD_ARGUMENTS, ids=range(len(ODD_ARGUMENTS)))
def test_arguments_that_only_some_programs_read_spoil_no_file(tmp_path, arguments):
    assert object_of(arguments) is None
    found = [
        request([said("user", text("x"), index=0)], kept=0),
        response(0, called("c1", "shell", arguments)),
        ("tool_call", "agent", {"request": 0, "conversation": 0, "id": "c1", "name": "shell", "arguments": arguments}),
    ]
    for kind in ("atif", "inspect"):
        _, files = exported(tmp_path / kind, kind, found)
        told = [data for name, raw in files.items() for data in members(name, raw)]
        assert all(pydantic_core.from_json(data, allow_inf_nan=False) is not None for data in told)


def test_arguments_of_long_numbers_keep_their_digits():
    assert object_of('{"n": 123456789012345678901234567890}') == {"n": 123456789012345678901234567890}


class Collector:
    """A collector that answers as it is told to."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.got = []

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/v1/{signal}", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _take(self, request):
        body = await request.json()
        self.got.append((request.match_info["signal"], request.headers, body))
        status, said = self.answers.pop(0) if self.answers else (200, {})
        return web.json_response(said, status=status)


def pushed(folder, collector, monkeypatch):
    monkeypatch.setattr(otlp, "_FIRST_PAUSE", 0.01)

    async def live():
        store = await told_run(folder)
        async with collector:
            wish = Wish(kind="otel", endpoint=collector.url, headers={"x-key": "hidden-key"})
            return await export_traces(event_reader(store), await collect(store, RUN), wish)

    return asyncio.run(live())


def test_a_collector_gets_traces_and_logs_again_when_it_was_busy(tmp_path, monkeypatch):
    collector = Collector((503, {}), (429, {}))
    assert pushed(tmp_path, collector, monkeypatch).trials == 2
    assert [signal for signal, _, _ in collector.got] == ["traces", "traces", "traces", "logs", "traces", "logs"]
    assert collector.got[0][2] == collector.got[2][2]
    assert {headers["x-key"] for _, headers, _ in collector.got} == {"hidden-key"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {"message": "who are you"}), "status 401"),
        ((200, {"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too big"}}), "left out 3"),
    ],
)
def test_a_collector_that_refuses_is_an_error_without_the_key(tmp_path, monkeypatch, answer, said):
    with pytest.raises(InfrastructureError, match=said) as caught:
        pushed(tmp_path, Collector(answer), monkeypatch)
    assert "hidden-key" not in str(caught.value)


def test_words_that_do_not_go_together(tmp_path):
    for wish, said_ in (
        (Wish(kind="atif", endpoint="http://x"), "--endpoint goes with --format otel"),
        (Wish(kind="otel"), "--out DIR, or --endpoint URL"),
        (Wish(kind="otel", endpoint="localhost:4318"), "no address of a collector"),
    ):
        with pytest.raises(SpecError, match=said_):
            asyncio.run(_try(tmp_path / said_[:3], wish))


async def _try(folder, wish):
    store = await told_run(folder)
    await export_traces(event_reader(store), await collect(store, RUN), wish)


def test_headers_come_as_opentelemetry_has_them():
    assert otlp_headers({"OTEL_EXPORTER_OTLP_HEADERS": "a=b, api%20key = x%3Dy=z"}) == {"a": "b", "api key": "x=y=z"}
    assert otlp_headers({}) == {}
