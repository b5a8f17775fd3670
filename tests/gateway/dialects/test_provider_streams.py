"""Streams as providers document them, with the quirks that each is known for.

The first line of each file is a comment of the stream that says what must be understood of the rest.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.gateway.dialects.base import ServerEvent, StreamError
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.dialects.known import DIALECTS
from orchestrator.gateway.dialects.sse import EventParser
from orchestrator.records.message import text_of
from orchestrator.records.usage import Usage

STREAMS = sorted((Path(__file__).parent / "streams").glob("*.txt"))


def follow(data, dialect, size, body=None):
    parser, reader, shown = EventParser(), dialect.reader(body or {}), []
    for begin in range(0, len(data), size):
        for event in parser.feed(data[begin : begin + size]):
            shown += reader.take(event)
    last = parser.end()
    return reader, [*shown, *(reader.take(last) if last else [])]


@pytest.mark.parametrize("file", STREAMS, ids=lambda file: file.stem)
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_a_stream_of_each_provider_is_understood(file, size):
    data = file.read_bytes()
    expected = json.loads(data.partition(b"\n")[0][1:])
    dialect = DIALECTS[expected["api"]]
    reader, shown = follow(data, dialect, size)
    reply = dialect.reply(reader.answer())
    assert reader.done
    assert text_of(reply.message) == expected["text"]
    thoughts = [part["text"] for part in reply.message["parts"] if part["type"] == "reasoning"]
    assert "".join(thoughts) == expected.get("reasoning", "")
    assert [[call["id"], call["name"], call["arguments"]] for call in reply.calls] == expected["calls"]
    assert reader.calls == len(expected["calls"])
    assert reply.finish_reason == expected["finish"]
    assert reply.tokens == Usage(**expected["buckets"])
    if expected["api"] == "chat":
        assert not any('"usage"' in event.data for event in shown)


@pytest.mark.parametrize(
    "file", [file for file in STREAMS if b'"api": "chat"' in file.read_bytes()], ids=lambda f: f.stem
)
def test_who_asked_for_usage_gets_what_the_provider_sent(file):
    data = file.read_bytes()
    _, shown = follow(data, CHAT, 100, {"stream_options": {"include_usage": True}})
    parser = EventParser()
    sent = parser.feed(data)
    last = parser.end()
    assert shown == [*sent, *([last] if last else [])]


def test_a_provider_that_fails_half_way_says_so():
    choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
    failed = {"error": {"code": "server_error", "message": "Provider disconnected"}, "choices": [choice]}
    with pytest.raises(StreamError, match="Provider disconnected") as caught:
        CHAT.reader({}).take(ServerEvent(json.dumps(failed)))
    assert caught.value.code == "server_error"


def test_an_answer_of_thousands_of_parts_is_put_together_in_one_pass():
    """For each part all others were copied: 20 s in which nobody else was served."""
    reader = DIALECTS["responses"].reader({})
    where = {"type": "response.output_text.delta", "output_index": 0}
    events = [{"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}}]
    events += [{**where, "content_index": number, "delta": str(number)} for number in range(9999)]
    for event in events:
        reader.take(ServerEvent(json.dumps(event)))
    [item] = reader.answer()["output"]
    assert [part["text"] for part in item["content"]] == [str(number) for number in range(9999)]
