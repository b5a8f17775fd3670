"""Events are the same however the stream was cut and whatever ends its lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gateway.dialects.base import ServerEvent
from orchestrator.gateway.dialects.sse import EventParser

lines = st.text(st.characters(exclude_characters="\r\n\ufeff", exclude_categories=["Cs"]), max_size=8)
events = st.builds(
    ServerEvent,
    st.lists(lines, min_size=1, max_size=3).map("\n".join),
    st.none() | lines.filter(bool),
)


def read(data, cuts=()):
    parser = EventParser()
    found = []
    begin = 0
    for cut in [*sorted({min(cut, len(data)) for cut in cuts}), len(data)]:
        found += parser.feed(data[begin:cut])
        begin = cut
    last = parser.end()
    return [*found, last] if last else found


@given(st.lists(events, max_size=4), st.lists(st.integers(0, 120), max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_split_gives_the_same_events(sent, cuts, end):
    data = b": hello\n\nretry: 5\n" + b"".join(event.encoded() for event in sent)
    assert read(data.decode().replace("\n", end).encode(), cuts) == sent


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_any_bytes_are_read_and_the_cuts_do_not_matter(data, cuts):
    assert read(data, cuts) == read(data)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"data: a\n\n", [ServerEvent("a")]),
        (b"data:a\ndata:  b\n\n", [ServerEvent("a\n b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [ServerEvent("a")]),
        (b"data\n\n", [ServerEvent("")]),
        (b"event: ping\n\ndata: a\n\n", [ServerEvent("a")]),
        (b"event: x\nid: 4\ndata: a\nother: b\n\n", [ServerEvent("a", "x")]),
        (b": keep alive\n\n: again\n\n", []),
        (b"data: a", [ServerEvent("a")]),
        (b"data: [DONE]\n", [ServerEvent("[DONE]")]),
        (b"data: \xff\n\n", [ServerEvent("\ufffd")]),
        (b"", []),
    ],
)
def test_what_the_standard_says(data, found):
    assert read(data) == found


@pytest.mark.parametrize("piece", [b"data: 123456", b"data: 1\n", b": comment", b"event: a\n"])
def test_an_event_without_end_is_not_kept(piece):
    parser = EventParser(most=1000)
    for _ in range(1000 // len(piece)):
        parser.feed(piece)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        parser.feed(piece * 2)


def test_small_events_without_number_are_no_giant():
    parser = EventParser(most=100)
    assert sum(len(parser.feed(b"data: 12345\n\n: c\n\n")) for _ in range(1000)) == 1000
