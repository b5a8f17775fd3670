"""What a subject sends takes no more of the runner's memory than its bytes, and not without end."""

from __future__ import annotations

import json
import socket
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RUNNER = Path(__file__).parents[2] / "grader_service/runner"


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that hidden tests import."""
    monkeypatch.syspath_prepend(str(RUNNER))
    import subject as module  # type: ignore[import-not-found]

    yield module
    for name in ("subject", "orchestrate_report"):
        sys.modules.pop(name, None)


class Dribbling:
    """A connection whose other side sends two bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.wait = data, 0, 1e9

    def settimeout(self, seconds: float) -> None:
        assert seconds <= self.wait
        self.wait = seconds

    def recv(self, _most: int) -> bytes:
        self.at += 2
        return self.data[self.at - 2 : self.at]


def line(subject: ModuleType, connection: Any, seconds: float = 60) -> bytes:
    found: bytes = subject._Channel()._line(connection, time.monotonic() + seconds)
    return found


def test_a_line_takes_its_bytes_however_they_come(subject: ModuleType):
    connection = Dribbling(b"x" * 100_000 + b"\n" + b"y" * 100)
    tracemalloc.start()
    try:
        found = line(subject, connection)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(found)
    finally:
        tracemalloc.stop()
    assert found == b"x" * 100_000


def test_a_line_without_end_is_given_up_while_it_comes(subject: ModuleType):
    connection = Dribbling(b"x" * (subject._LINE_BYTES + 100_000))
    with pytest.raises(ValueError, match="longer than 1048576 bytes"):
        line(subject, connection)
    assert connection.at < subject._LINE_BYTES + 100


def test_a_line_that_dribbles_has_the_time_of_one_answer(subject: ModuleType):
    connection = Dribbling(b"xxxx\n")
    line(subject, connection, seconds=0.5)
    assert connection.wait <= 0.5


def test_lines_come_one_after_another(subject: ModuleType):
    ours, theirs = socket.socketpair()
    channel = subject._Channel()
    with ours, theirs:
        theirs.sendall(b"one\ntwo\nthr")
        until = time.monotonic() + 10
        assert [channel._line(ours, until) for _ in range(2)] == [b"one", b"two"]
        theirs.sendall(b"ee\n")
        assert channel._line(ours, until) == b"three"
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError, match="the line ended"):
            channel._line(ours, until)


def test_a_value_for_which_there_is_no_memory_is_no_answer(subject: ModuleType, monkeypatch: pytest.MonkeyPatch):
    def loads(*_: Any, **__: Any) -> Any:
        raise MemoryError

    reply = {"answer": json.dumps({"value": 1})}
    monkeypatch.setattr(subject.json, "loads", loads)
    with pytest.raises(subject.SubjectDied, match="MemoryError"):
        subject._value(reply)
