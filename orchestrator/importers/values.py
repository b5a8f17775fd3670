"""JSON values of foreign files, one at a time: a file is never in memory whole, and nothing in it can nest or grow without end."""

from __future__ import annotations

import contextlib
import gzip
import mmap
import re
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from orchestrator.errors import Problem
from orchestrator.gateway.body import within_depth

MOST_VALUE = 64 << 20
"""Bytes of one line, document or element of a list."""
MOST_UNPACKED = 8 << 30
"""Bytes that a compressed file may unpack to."""
MOST_DEPTH = 200
"""Levels that a value may nest."""
ENDS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
"""How the names of files end that a folder is searched for."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_BETWEEN = re.compile(rb"[\s,]*+")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Value:
    """One value and where it begins."""

    file: str
    line: int
    """From 1."""
    data: Any
    raw: bytes
    """Its bytes."""
    group: int | None = None
    """Number of the list whose element it is; None: it stands alone."""


Bad = Problem
"""What cannot be read, with file and line."""


def files_of(paths: list[Path]) -> Iterator[Path | Bad]:
    """Yield the files that paths mean: a file itself; of a folder all JSON files below it, sorted, links left out."""
    for path in paths:
        if path.is_dir():
            yield from sorted(
                found
                for found in path.rglob("*")
                if found.name.endswith(ENDS) and found.is_file() and not found.is_symlink()
            )
        elif path.is_file():
            yield path
        else:
            yield Problem(file=str(path), message="there is no such file or folder")


def read_values(path: Path) -> Iterator[Value | Bad]:
    """Yield the values of a file: of JSON Lines each line, of a document its one value, or the elements when that is a list.

    A line that is none is a problem of its own and costs no other line; a document that breaks off keeps what came before.
    """
    try:
        with _opened(path) as data:
            if data is None:
                yield from () if _is_named_lines(path) else [Problem(file=str(path), message="it is empty")]
            elif (why := _no_json(data)) is not None:
                yield Problem(file=str(path), line=1, message=why)
            else:
                yield from (_lines if _has_lines(path, data) else _document)(str(path), data)
    except (OSError, EOFError, zlib.error) as error:
        yield Problem(file=str(path), message=f"it cannot be read: {error}")
    except _TooLargeError:
        yield Problem(file=str(path), message=f"it unpacks to more than {MOST_UNPACKED >> 30} GiB; split it")


class _TooLargeError(Exception):
    pass


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[mmap.mmap | None]:
    """Give a file's bytes, mapped and not read; those of a packed one are unpacked on disk first. None: it is empty."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        if path.name.endswith(".gz"):
            unpacked = stack.enter_context(tempfile.TemporaryFile())
            with gzip.open(file) as packed:
                while block := packed.read(_BLOCK):
                    if unpacked.tell() + len(block) > MOST_UNPACKED:
                        raise _TooLargeError
                    unpacked.write(block)
            unpacked.flush()
            file = unpacked  # type: ignore[assignment]  # both are files of bytes
        if not file.seek(0, 2):
            yield None
            return
        yield stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _no_json(data: mmap.mmap) -> str | None:
    """Say why nothing of a file can be a list or an object, so that it is told once; None: something may."""
    head = data[:_BLOCK].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head[:1] in (b"{", b"[") or not head:
        return None
    if b"\0" in head:
        return "this is a binary file, no JSON"
    begin = head.split(None, 1)[0][:30].decode("utf-8", "replace")
    return f"this is no JSON: it begins with {begin!r} where an object or a list must be"


def _is_named_lines(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))


def _has_lines(path: Path, data: mmap.mmap) -> bool:
    """Return whether a file is JSON Lines: by its name, or because its first line is a value and not all there is."""
    if _is_named_lines(path):
        return True
    end = data.find(b"\n", 0, MOST_VALUE)
    if end < 0 or not data[end : end + _BLOCK].strip():
        return False
    return not isinstance(_parsed(data[:end]), _Wrong)


def _lines(file: str, data: mmap.mmap) -> Iterator[Value | Bad]:
    begin, number = 0, 0
    while begin < len(data):
        number += 1
        end = data.find(b"\n", begin)
        end = len(data) if end < 0 else end
        if end - begin > MOST_VALUE:
            yield Problem(file=file, line=number, message=_TOO_LONG)
        elif (raw := data[begin:end]).strip():
            yield _value(file, number, raw)
        begin = end + 1


def _document(file: str, data: mmap.mmap) -> Iterator[Value | Bad]:
    """Yield the value of a document. Its outermost list, if it is one, is gone through element by element."""
    lines = _LineCounter(data)
    depth = start = end = 0
    listed, group = 0, -1
    for token in _TOKEN.finditer(data):
        mark = token[0]
        if mark[:1] == b'"':
            continue
        if mark in b"[{":
            if depth == listed == 0 and mark == b"[":
                listed, group = 1, group + 1
                yield from _between(file, data, lines, end, token.start())
                end = token.end()
                depth += 1
                continue
            if depth == listed:
                yield from _between(file, data, lines, end, token.start())
                start = token.start()
            depth += 1
            continue
        depth -= 1
        if depth < 0:
            yield Problem(file=file, line=lines.at(token.start()), message="a bracket is closed that was never opened")
            return
        if depth == 0 and listed and mark == b"]":
            listed = 0
            yield from _between(file, data, lines, end, token.start())
            end = token.end()
        elif depth == listed:
            yield from _element(file, data, lines.at(start), (start, token.end()), group if listed else None)
            end = token.end()
    if depth:
        yield Problem(file=file, line=lines.at(end), message="it breaks off here: a bracket is never closed")
    else:
        yield from _between(file, data, lines, end, len(data))


def _element(file: str, data: mmap.mmap, line: int, span: tuple[int, int], group: int | None) -> Iterator[Value | Bad]:
    if span[1] - span[0] > MOST_VALUE:
        yield Problem(file=file, line=line, message=_TOO_LONG)
    else:
        yield _value(file, line, data[span[0] : span[1]], group)


def _between(file: str, data: mmap.mmap, lines: _LineCounter, begin: int, end: int) -> Iterator[Bad]:
    """Say what stands between values, if it is more than space and commas."""
    found = _BETWEEN.match(data, begin, end)
    if found is not None and found.end() < end:
        yield Problem(file=file, line=lines.at(found.end()), message="here is something that is no object and no list")


class _LineCounter:
    """Numbers of lines, asked for in order."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._place = 0
        self._line = 1

    def at(self, place: int) -> int:
        while self._place < place:
            end = min(place, self._place + _BLOCK)
            self._line += self._data[self._place : end].count(b"\n")
            self._place = end
        return self._line


_TOO_LONG = f"it is longer than {MOST_VALUE >> 20} MiB"


@dataclass(frozen=True)
class _Wrong:
    why: str


def _value(file: str, line: int, raw: bytes, group: int | None = None) -> Value | Bad:
    found = _parsed(raw)
    if isinstance(found, _Wrong):
        return Problem(file=file, line=line, message=found.why)
    return Value(file, line, found, raw, group)


def _parsed(raw: bytes) -> Any:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return _Wrong(f"it is not JSON: {error.msg}")
    nests = isinstance(found, dict | list) and not within_depth(found, MOST_DEPTH)
    return _Wrong(f"it nests deeper than {MOST_DEPTH} levels") if nests else found
