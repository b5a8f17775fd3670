"""Long texts stand in a trajectory once, and readers get them back everywhere."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.trace import write
from orchestrator.trace.read import EventReader, read_events
from orchestrator.trace.sharing import LONG, Restorer, Sharer, has_long_text, long_texts
from orchestrator.trace.write import TrajectoryFolder

texts = st.sampled_from(["", "short", "a" * LONG, "b" * LONG, "ä" * (LONG + 1), "\ud800" * LONG])
values = st.recursive(
    texts | st.none() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "at", "shared"]), inner, max_size=3)
    ),
    max_leaves=8,
)
HEAD = {"v": 1, "t": 1.0, "source": "agent", "type": "tool_result"}


def written(folder, *events):
    async def live():
        trajectory = await TrajectoryFolder(folder).open("t")
        for kind, data in events:
            trajectory.append(kind, "gateway", data)
        await trajectory.close({})
        return trajectory.path.read_bytes()

    return asyncio.run(live())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["p", "q"]), values, max_size=2), max_size=4))
def test_what_is_shared_comes_back(events):
    sharer, restorer = Sharer(), Restorer()
    for event in events:
        before = json.loads(json.dumps(event))
        shared = json.loads(json.dumps(event))
        sharer.share(shared)
        line = json.dumps(shared, ensure_ascii=False).encode("utf-8", "replace")
        back = json.loads(line)
        restorer.restore(back)
        assert back == json.loads(json.dumps(before, ensure_ascii=False).encode("utf-8", "replace"))


def test_a_text_that_comes_again_costs_its_digest(tmp_path):
    text = "tool output." * 10_000
    message = {"index": 0, "role": "user", "parts": [{"type": "text", "text": text}]}
    data = written(tmp_path, ("tool_result", {"content": text}), ("model_request", {"messages": [message]}))
    assert len(data) < len(text) + 2000
    line = json.loads(data.splitlines()[1])
    assert line["messages"][0]["parts"][0]["text"] == ""
    assert line["shared"] == [
        {
            "at": ["messages", 0, "parts", 0, "text"],
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "bytes": 120_000,
        }
    ]
    events = read_events(data)
    assert events[1].data == {"messages": [message]}


def test_an_agent_cannot_have_texts_put_where_it_likes(tmp_path):
    secret = "s" * LONG
    claim = [{"at": ["content"], "sha256": hashlib.sha256(secret.encode()).hexdigest(), "bytes": LONG}]
    data = written(
        tmp_path,
        ("tool_result", {"content": secret}),
        ("tool_result", {"content": "", "shared": claim, "x": {"shared": claim}}),
    )
    assert read_events(data)[1].data == {"content": "", "x": {"shared": claim}}


@pytest.mark.parametrize(
    "shared",
    [
        {"at": ["content"], "sha256": "0" * 64},
        {"at": ["missing"], "sha256": hashlib.sha256(b"a" * LONG).hexdigest()},
        {"at": ["said"], "sha256": hashlib.sha256(b"a" * LONG).hexdigest()},
        {"at": [], "sha256": hashlib.sha256(b"a" * LONG).hexdigest()},
        "nonsense",
    ],
)
def test_a_text_that_is_nowhere_is_an_error(shared):
    first = {**HEAD, "seq": 0, "content": "a" * LONG}
    second = {**HEAD, "seq": 1, "content": "", "said": "something", "shared": [shared]}
    data = b"".join(json.dumps(line).encode() + b"\n" for line in (first, second))
    with pytest.raises(StoreError, match="line 2 is not an event"):
        read_events(data)


def test_texts_that_are_shared_count_in_full_against_the_limit(tmp_path, monkeypatch):
    """Else a small file could become a giant for whoever reads it."""
    monkeypatch.setattr(write, "MAX_FILE", 10 * LONG)
    data = written(tmp_path, *[("model_request", {"text": "x" * LONG})] * 30)
    events = read_events(data)
    assert sum(len(event.data.get("text", "")) for event in events) <= 11 * LONG
    assert events[-2].data == {"cut": f"the trajectory is larger than {10 * LONG} bytes"}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9000), max_size=8))
def test_pieces_cut_anywhere_read_like_the_whole(cuts):
    lines = [{**HEAD, "seq": seq, "content": "a" * LONG if seq == 0 else str(seq)} for seq in range(5)]
    lines[3] = {
        **lines[3],
        "content": "",
        "shared": [{"at": ["content"], "sha256": hashlib.sha256(b"a" * LONG).hexdigest()}],
    }
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    reader, events, begin = EventReader(), [], 0
    for cut in [*sorted({cut % len(data) for cut in cuts}), len(data)]:
        events += reader.feed(data[begin:cut])
        begin = cut
    assert events == read_events(data)
    assert events[3].data == {"content": "a" * LONG}


MARKED = ['[{,\\"' * LONG, ", " * LONG, "x" * (LONG - 1)]
"""Texts that look like many values, and one that is not long."""


@settings(max_examples=60, deadline=None)
@given(st.lists(values | st.sampled_from(MARKED), max_size=4), st.sampled_from([0, 10, 30_000]))
def test_no_line_with_a_long_text_is_taken_for_one_without(found, small):
    line = json.dumps({"found": found, "many": [1] * small}).encode()
    if any(True for _ in long_texts(json.loads(line))):
        assert has_long_text(line)


@pytest.mark.parametrize("value", [1, "a,b", []])
def test_many_small_values_are_known_to_be_no_long_text(value):
    assert not has_long_text(json.dumps([value] * 50_000).encode())
