"""What is typed comes to a person's shell whole, in whatever pieces it travels."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agents.human.terminal import Frames

TYPED = st.binary(max_size=40).map(lambda data: (b"d", data))
RESIZED = st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(lambda size: (b"w", struct.pack(">HH", *size)))


@given(st.lists(TYPED | RESIZED, max_size=8), st.lists(st.integers(1, 20), min_size=1))
def test_frames_are_put_together_again(frames: list[tuple[bytes, bytes]], pieces: list[int]) -> None:
    sent = b"".join(kind + (len(value).to_bytes(4, "big") if kind == b"d" else b"") + value for kind, value in frames)
    reader, found, at = Frames(), [], 0
    while at < len(sent):
        for size in pieces:
            found += reader.feed(sent[at : at + size])
            at += size
    assert found == frames
