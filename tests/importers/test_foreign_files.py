"""Files as they come: broken, huge, deep, packed, hostile."""

import gzip
import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from import_world import World, atif, conversation, lines, otel, own, request, write

from orchestrator.dataset.steps import step_rows
from orchestrator.errors import Problem
from orchestrator.importers import read, values
from orchestrator.importers.values import Value, read_values
from orchestrator.trace.read import read_events

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=4), max_size=5)


def data_of(path):
    return [value.data if isinstance(value, Value) else str(value) for value in read_values(path)]


@given(OBJECTS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_list_is_gone_through_by_elements_however_it_is_written(tmp_path, objects):
    for indent in (None, 2):
        assert data_of(write(tmp_path, "a.json", json.dumps(objects, indent=indent, ensure_ascii=False))) == objects
    assert data_of(write(tmp_path, "a.jsonl", lines(*objects))) == objects


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_break_it(tmp_path, content):
    for name in ("a.json", "a.jsonl", "a.json.gz"):
        (tmp_path / name).write_bytes(content)
        assert all(isinstance(value, Value | Problem) for value in read_values(tmp_path / name))


ODD = (None, True, False, 0, -1, 2**63, 1e300, "", "x", [], {}, [[]], [None], {"a": []}, [{}], {"text": None}, "\ud800")


def mutated(value, chance):
    """Return the value with some inner values replaced by odd ones, and some left out."""
    if isinstance(value, dict):
        return {key: mutated(_odd(inner, chance), chance) for key, inner in value.items() if chance.random() > 0.01}
    if isinstance(value, list):
        return [mutated(_odd(inner, chance), chance) for inner in value if chance.random() > 0.02]
    return value


def _odd(value, chance):
    return chance.choice(ODD) if chance.random() < 0.04 else value


def reads_any_shape(folder, examples, seed):
    """Replace parts of each format at random, and read what comes of it."""
    chance = random.Random(seed)
    formats = (conversation(), atif(), request(*otel()), own())
    for number in range(examples):
        value = mutated(formats[number % len(formats)], chance)
        world = World(Path(tempfile.mkdtemp(dir=folder)))
        text = lines(*value) if isinstance(value, list) else lines(value)
        traces, reader = world.read(write(world.folder, "a.jsonl", text))
        assert traces or reader.problems, value
        for trace in traces:
            step_rows(read_events(trace.path.read_bytes()))


def test_no_shape_breaks_it(tmp_path):
    reads_any_shape(tmp_path, 200, 1)


@pytest.mark.slow
def test_no_shape_of_many_breaks_it(tmp_path):
    for seed in range(2, 12):
        reads_any_shape(tmp_path, 1000, seed)


def test_every_bad_line_is_told_at_once_and_costs_no_other(world):
    text = lines(conversation(id=1)) + '{"messages": [\nnull\n\n"text"\n{"a": 1}\n' + lines(conversation(id=2)) + "{"
    path = write(world.folder, "a.jsonl", text)
    traces, reader = world.read(path, world.folder / "nowhere.json")
    assert len(traces) == 2
    assert [problem.line for problem in reader.problems] == [2, 3, 5, 6, 8, 0]
    assert "none of these" in str(reader.problems[3])


def test_a_document_that_breaks_off_keeps_what_came_before(world):
    text = json.dumps([conversation(id=1), conversation(id=2)], indent=1)[:-40]
    traces, reader = world.read(write(world.folder, "a.json", text))
    assert len(traces) == 1
    assert "never closed" in str(reader.problems[0])


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000])
def test_depth_is_a_problem_and_no_crash(world, text):
    for name in ("a.json", "a.jsonl"):
        traces, reader = world.read(write(world.folder, name, text))
        assert traces == []
        assert reader.problems


def test_a_giant_is_a_problem_and_its_neighbours_are_read(world, monkeypatch):
    monkeypatch.setattr(values, "MOST_VALUE", 4000)
    giant = conversation(id=2)
    giant["messages"][0]["content"] = "x" * 5000
    for name, text in (
        ("a.jsonl", lines(conversation(id=1), giant)),
        ("a.json", json.dumps([giant, conversation(id=1)])),
    ):
        traces, reader = world.read(write(world.folder, name, text))
        assert (len(traces), len(reader.problems)) == (1, 1)


def test_a_trace_of_many_lines_has_a_limit(world, monkeypatch):
    monkeypatch.setattr(read, "MOST_HELD", 500)
    traces, reader = world.read(write(world.folder, "a.jsonl", lines(*own(), conversation())))
    assert [trace.steps for trace in traces] == [3]
    assert any("larger than" in str(problem) for problem in reader.problems)


def test_packed_files_are_unpacked_to_a_limit(world, monkeypatch):
    path = world.folder / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines(conversation()).encode()))
    assert len(world.read(path)[0]) == 1
    monkeypatch.setattr(values, "MOST_UNPACKED", 100)
    traces, reader = world.read(path)
    assert (traces, len(reader.problems)) == ([], 1)
    path.write_bytes(gzip.compress(lines(conversation()).encode())[:-9])
    assert "cannot be read" in str(world.read(path)[1].problems[0])


def test_folders_are_searched_and_links_are_not_followed(world):
    inner = world.folder / "in" / "deep"
    inner.mkdir(parents=True)
    write(inner, "a.jsonl", lines(conversation(id=1)))
    write(inner, "notes.txt", "no trace")
    (inner / "b.jsonl").symlink_to(inner / "a.jsonl")
    traces, reader = world.read(world.folder / "in")
    assert (len(traces), reader.files, reader.problems) == (1, 1, [])


def test_spans_of_something_else_are_said_to_be_that(world):
    spans = [{"traceId": "ab", "spanId": "1", "attributes": []}]
    traces, reader = world.read(write(world.folder, "a.json", json.dumps(request(*spans))))
    assert traces == []
    assert "gen_ai" in str(reader.problems[0])


def test_a_place_names_only_what_is_known_of_it():
    found = [str(Problem("a", message="m")), str(Problem("a", 3, message="m")), str(Problem("a", 3, 5, "f", "m"))]
    assert found == ["a: m", "a:3: m", "a:3:5: f: m"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"# Notes\n[link](a)\n{b}\n[c]\n", "this is no JSON: it begins with '#' where an object or a list must be"),
        (b"\x7fELF\0\1\2{[", "this is a binary file, no JSON"),
        (b"  hello [1]", "this is no JSON: it begins with 'hello' where an object or a list must be"),
    ],
)
def test_a_file_that_is_no_json_is_one_problem(tmp_path: Path, data: bytes, why: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(data)
    (found,) = read_values(file)
    assert isinstance(found, Problem)
    assert found.message == why
