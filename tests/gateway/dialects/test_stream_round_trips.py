"""Whatever a scripted model says comes through a stream of each shape as it was, however the bytes are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.gateway.dialects.base import Said, StreamError
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.dialects.messages import MESSAGES
from orchestrator.gateway.dialects.responses import RESPONSES
from orchestrator.gateway.dialects.sse import EventParser
from orchestrator.records.usage import Usage

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)
small = st.integers(0, 1000)


@st.composite
def usages(draw):
    output, written = draw(small), draw(small)
    return Usage(
        uncached_input=draw(small),
        cache_read=draw(small),
        cache_write=written,
        output=output,
        reasoning=draw(st.integers(0, output)),
    )


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


arguments = st.dictionaries(texts, texts | small | st.none(), max_size=3).map(compact)
saids = st.builds(
    Said,
    id=st.just("1"),
    model=st.just("m"),
    text=texts,
    calls=st.lists(st.tuples(st.uuids().map(str), st.sampled_from("fgh"), arguments), max_size=3).map(tuple),
    tokens=usages(),
)


def through(dialect, answer, body, size):
    parser, reader = EventParser(), dialect.reader(body)
    wire = b"".join(event.encoded() for event in dialect.events(answer))
    for begin in range(0, len(wire), size):
        for event in parser.feed(wire[begin : begin + size]):
            reader.take(event)
    return reader


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES], ids=lambda d: d.name)
@settings(max_examples=20)
@given(said=saids, size=st.integers(1, 400))
def test_an_answer_is_the_same_whole_and_in_pieces(dialect, said, size):
    answer = dialect.answer({}, said)
    assert dialect.is_answer(answer)
    reader = through(dialect, answer, {}, size)
    reply = dialect.reply(reader.answer())
    assert reply == dialect.reply(answer)
    assert (reader.done, reader.calls) == (True, len(said.calls))
    assert [(c["id"], c["name"], c["arguments"]) for c in reply.calls] == list(said.calls)
    assert "".join(p["text"] for p in reply.message["parts"] if p["type"] == "text") == said.text
    assert (reply.tokens, reply.model) == (said.tokens, "m")
    assert reader.characters == len(said.text) + sum(len(arguments) for _, _, arguments in said.calls)


WORDS = [
    "type", "index", "delta", "content", "choices", "message", "tool_calls", "function", "arguments", "name", "id", "usage",
    "content_block", "text", "input", "response", "output", "item", "output_index", "content_index", "source", "output_tokens",
]  # fmt: skip
values = st.recursive(
    st.none() | st.integers(-1, 3) | st.sampled_from(["", "text", "function", "tool_use", "message"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=12,
)
TYPES = [
    "message_start", "content_block_start", "content_block_delta", "message_delta", "response.output_item.added",
    "response.output_item.done", "response.output_text.delta", "response.completed", "response.function_call_arguments.delta",
]  # fmt: skip


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES], ids=lambda d: d.name)
@settings(max_examples=20)
@given(chunks=st.lists(st.tuples(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(WORDS), values)), max_size=6))
def test_nothing_that_a_provider_sends_breaks_the_reader(dialect, chunks):
    parser, reader = EventParser(), dialect.reader({})
    wire = "".join(f"data: {json.dumps({**fields, 'type': kind})}\n\n" for kind, fields in chunks).encode()
    for event in parser.feed(wire):
        try:
            reader.take(event)
        except (ValueError, StreamError):
            continue
    reply = dialect.reply(reader.answer())
    assert json.loads(json.dumps(reply.message)) == reply.message


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES], ids=lambda d: d.name)
@settings(max_examples=20)
@given(body=st.dictionaries(st.sampled_from([*WORDS, "messages", "tools", "system", "instructions"]), values))
def test_nothing_that_an_agent_sends_breaks_the_dialect(dialect, body):
    items = dialect.items(body)
    json.dumps([[dialect.message(item) for item in items], dialect.tools(body), dialect.params(body)])
    assert all(dialect.message(item)["role"] for item in items)
    assert dialect.outgoing(body, "m")["model"] == "m"
