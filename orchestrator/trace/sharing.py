"""Long texts stand in a trajectory once: where one comes again, its digest stands for it.

A conversation repeats itself: what a tool printed is in its result and in the next request, sub-agents begin with the same instructions.
The first event with a long text holds it; later ones hold an empty text there and, in their field ``shared``, where it was, its digest and
its size. So a file needs nothing beside itself to be read, and every beginning of it can be read, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import JsonValue

FIELD = "shared"
"""The field of an event that says which of its texts stand in an earlier one: ``[{"at": path, "sha256": hex, "bytes": count}]``."""

LONG = 4096
"""Texts of at least so many characters are shared."""


_BYTES_OF_A_VALUE = 8
"""To look at a value takes as long as to search so many bytes of JSON for a long text."""

_LONG_IN_JSON = re.compile(rb'[\s\[{,:]"(?:[^"\\]|\\.){%d}' % LONG, re.DOTALL)


class Sharer:
    """The writer's side: remembers the digests of all long texts of one trajectory."""

    def __init__(self, known: Iterable[bytes] = ()) -> None:
        """``known``: digests of the long texts that the file holds already."""
        self._known = set(known)

    def share(self, data: dict[str, JsonValue]) -> int:
        """Replace, in place, the texts that an earlier event holds and note them in the event. Returns their bytes in all."""
        refs: list[JsonValue] = []
        saved = 0
        for parent, path, text in list(long_texts(data)):
            try:
                raw = text.encode()
            except UnicodeEncodeError:  # half a surrogate pair: it is written down as another text
                continue
            digest = hashlib.sha256(raw)
            if digest.digest() not in self._known:
                self._known.add(digest.digest())
                continue
            parent[path[-1]] = ""
            refs.append({"at": [*path], "sha256": digest.hexdigest(), "bytes": len(raw)})
            saved += len(raw)
        if refs:
            data[FIELD] = refs
        return saved


class Restorer:
    """The reader's side: remembers the long texts of one trajectory and puts them where they were."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def restore(self, data: dict[str, JsonValue]) -> None:
        """Put back, in place, the texts that earlier events hold.

        Raises ValueError, KeyError, TypeError or IndexError for an event that names a text or a place that there is not.
        """
        refs = data.pop(FIELD, [])
        for _, _, text in long_texts(data):
            self._texts.setdefault(hashlib.sha256(text.encode()).hexdigest(), text)
        if not isinstance(refs, list):
            raise TypeError(FIELD)
        for ref in refs:
            self._put(data, ref)

    def _put(self, data: dict[str, JsonValue], ref: Any) -> None:
        *way, last = ref["at"]
        place: Any = data
        for step in way:
            place = place[step]
        if place[last] != "":
            raise ValueError(FIELD)
        place[last] = self._texts[ref["sha256"]]


def digests_of_long_texts(data: dict[str, JsonValue]) -> list[bytes]:
    """Return the digests of the long texts that an event holds itself."""
    return [hashlib.sha256(text.encode()).digest() for _, _, text in long_texts(data)]


def has_long_text(line: bytes) -> bool:
    """Return whether a line of JSON may hold a long text; False is certain. It costs less than to look for one among the line's values."""
    if len(line) < LONG:
        return False
    most = sum(map(line.count, (b",", b"[", b"{")))  # as many values, or fewer
    return most * _BYTES_OF_A_VALUE < len(line) or _LONG_IN_JSON.search(line) is not None


_Way = tuple[Any, str | int] | None
"""Where something stands: the way to what holds it, and its key there."""


def long_texts(data: dict[str, JsonValue]) -> Iterator[tuple[Any, list[str | int], str]]:
    """Yield every long text with what holds it and its path. Agents send hundreds of thousands of values, so each costs little here."""
    todo: list[tuple[Any, _Way]] = [(data, None)]
    while todo:
        holder, way = todo.pop()
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(item, str):
                if len(item) >= LONG:
                    yield holder, [*_path(way), key], item
            elif item and isinstance(item, dict | list):
                todo.append((item, (way, key)))


def _path(way: _Way) -> list[str | int]:
    found: list[str | int] = []
    while way is not None:
        way, key = way
        found.append(key)
    return found[::-1]
