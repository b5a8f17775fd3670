"""Cassettes of tasks: every mistake with file and line, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.spec.cassette import MAX_BYTES, MAX_CALLS, parse_cassette
from orchestrator.spec.load import load_task

HEAD: dict[str, Any] = {"format": "orchestrate-cassette", "version": 1, "tools": [{"name": "fetch_page"}]}
CALL: dict[str, Any] = {"number": 1, "tool": "fetch_page", "arguments": {"url": "a"}, "data": {"text": "A"}}
REFUSED = {"kind": "not_found", "message": "no such page", "status": 404}


def text(*lines: Any) -> bytes:
    return "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines).encode()


def mistakes(data: bytes) -> list[str]:
    cassette, problems = parse_cassette(data, "c")
    assert (cassette is None) == bool(problems)
    return [str(each) for each in problems]


def test_a_cassette_holds_tools_and_calls_in_order() -> None:
    failed = {"number": 2, "tool": "fetch_page", "outcome": "error", "error": REFUSED}
    cassette, problems = parse_cassette(text(HEAD, CALL, failed), "c")
    assert cassette is not None
    assert not problems
    assert [tool.name for tool in cassette.tools] == ["fetch_page"]
    assert [(call.number, call.outcome) for call in cassette.calls] == [(1, "ok"), (2, "error")]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "c:1: the line is empty"),
        (["{"], "c:1:2: this is no JSON"),
        (["[]"], "c:1: each line must be one JSON object"),
        ([CALL], "c:1: this is no header; the first line must be"),
        ([HEAD | {"version": 2}], "c:1: version: this program reads version 1 of cassettes, and this one has 2"),
        ([HEAD | {"version": True}], "c:1: version: this program reads version 1"),
        ([HEAD | {"tool": []}], "c:1: tool: unknown key (did you mean 'tools'?)"),
        ([HEAD | {"tools": [{"name": "finish"}]}], "c:1: tools[0]: the name 'finish' is taken"),
        ([HEAD | {"tools": [{"name": "a"}, {"name": "a"}]}], "c:1: tools[1]: there are two tools named 'a'"),
        (
            [HEAD | {"tools": [{"name": "a", "arguments": {"type": "array"}}]}],
            "c:1: tools[0].arguments: must be the JSON Schema",
        ),
        ([HEAD, CALL, CALL], "c:3: number: call 1 is on line 2 already"),
        ([HEAD, "", CALL], "c:2: the line is empty"),
        ([HEAD, CALL | {"args": {}}], "c:2: args: unknown key"),
        ([HEAD, CALL | {"error": REFUSED}], "c:2: a call that is ok has 'data' and no 'error'"),
        ([HEAD, CALL | {"outcome": "error"}], "c:2: a call that is ok has 'data' and no 'error'"),
        ([HEAD, CALL | {"number": 0}], "c:2: number: "),
        ([HEAD, '{"number": 1, "tool": "a", "data": {"a": NaN}}'], "c:2:42: this is no JSON"),
    ],
)
def test_mistakes_are_told_at_their_line(lines: list[Any], expected: str) -> None:
    found = mistakes(text(*lines))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_all_mistakes_are_told_at_once_up_to_a_bound() -> None:
    found = mistakes(text(HEAD, *["{"] * 100))
    assert len(found) == 21
    assert found[-1] == "c:22: there is more after this"


def test_sizes_are_bounded() -> None:
    assert "16,777,216 are the most" in mistakes(b" " * (MAX_BYTES + 1))[0]
    assert "10,000 are the most" in mistakes(text(HEAD, *["{}"] * (MAX_CALLS + 1)))[0]


@given(st.binary(max_size=300))
def test_any_bytes_give_a_cassette_or_mistakes(data: bytes) -> None:
    mistakes(data)
    mistakes(text(HEAD) + data)


def problems(suite: Path, fixtures: str, cassette: bytes) -> list[str]:
    task = suite / "one/task.yaml"
    task.write_text(task.read_text().replace("{cassette: fixtures/calls.jsonl}", fixtures))
    (suite / "one/fixtures/calls.jsonl").write_bytes(cassette)
    with pytest.raises(SpecError) as caught:
        load_task(suite / "one")
    return [str(each).removeprefix("small/one/") for each in caught.value.problems]


PLAIN = "{cassette: fixtures/calls.jsonl}"


@pytest.mark.parametrize(
    ("fixtures", "cassette", "expected"),
    [
        (PLAIN, text(HEAD, "{"), "fixtures/calls.jsonl:2:2: this is no JSON"),
        (
            PLAIN,
            text(HEAD, CALL | {"tool": "fetch_pag"}),
            "fixtures/calls.jsonl:2: tool: no tool 'fetch_pag' is answered from",
        ),
        (PLAIN, text(HEAD | {"tools": []}), "task.yaml:6:11: fixtures: nothing is answered from the cassette"),
        (
            PLAIN,
            text(HEAD | {"tools": [{"name": "list_t"}]}),
            "fixtures/calls.jsonl:1: tools[0]: 'list_t' is a tool of the world",
        ),
        (
            "{cassette: fixtures/calls.jsonl, tools: [list_s]}",
            text(HEAD),
            "task.yaml:6:52: fixtures.tools[0]: no tool of the task's world or upstreams is named 'list_s' (did you mean 'list_t'?)",
        ),
        (
            "{cassette: fixtures/calls.jsonl, volatile: ['a..b']}",
            text(HEAD),
            "task.yaml:6:55: fixtures.volatile[0]: must be names with dots between them",
        ),
    ],
)
def test_a_task_and_its_cassette_must_fit(suite: Path, fixtures: str, cassette: bytes, expected: str) -> None:
    [found] = problems(suite, fixtures, cassette)
    assert found.startswith(expected)


def test_a_listed_tool_of_the_world_may_be_recorded(suite: Path) -> None:
    task = suite / "one/task.yaml"
    task.write_text(task.read_text().replace(PLAIN, "{cassette: fixtures/calls.jsonl, tools: ['list_*']}"))
    (suite / "one/fixtures/calls.jsonl").write_bytes(text(HEAD, {"number": 1, "tool": "list_t", "data": {"all": []}}))
    loaded = load_task(suite / "one")
    assert loaded.task.fixtures is not None
    assert loaded.bundles.world.read("fixtures/calls.jsonl").startswith(b'{"format"')


@pytest.mark.parametrize("tools", ["[crm]", "['c*', 'wiki_*']", "[crm, wiki_search]"])
def test_tools_of_upstreams_may_be_recorded(suite: Path, tools: str) -> None:
    task = suite / "one/task.yaml"
    upstream = "upstream: [{name: crm, http: {}}, {name: wiki, mcp: {}}]\n"
    task.write_text(task.read_text().replace(PLAIN, f"{{cassette: fixtures/calls.jsonl, tools: {tools}}}") + upstream)
    call = {
        "number": 1,
        "tool": "crm",
        "arguments": {"method": "GET", "path": "/x"},
        "data": {"status": 200, "body": "y"},
    }
    (suite / "one/fixtures/calls.jsonl").write_bytes(text(HEAD, call))
    assert load_task(suite / "one").task.upstream[0].name == "crm"
