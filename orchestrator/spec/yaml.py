"""YAML 1.2 to plain JSON values, with the place of every value and key.

The parser's events are read one by one, so nothing is built before it was checked: anchors, aliases and tags are
refused (no expansion bombs), depth and size are limited, duplicate and non-text keys are errors. Plain scalars follow
the core schema of YAML 1.2: ``yes``, ``on``, ``12:30`` and times stay text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Problem, SpecError

if TYPE_CHECKING:
    from ruamel.yaml.error import StreamMark
    from ruamel.yaml.events import Event, ScalarEvent

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
_MAX_DIGITS = 400

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS = {word: value for value, words in {
    None: ("", "~", "null", "Null", "NULL"), True: ("true", "True", "TRUE"), False: ("false", "False", "FALSE")
}.items() for word in words}  # fmt: skip

Path = tuple[str | int, ...]
"""Where a value is: keys and indices from the top."""


@dataclass(frozen=True)
class Place:
    """Where something was written. ``text`` is the raw text of a plain scalar, to show it as its author wrote it."""

    file: str
    line: int = 0
    column: int = 0
    text: str | None = None
    within: Path = ()
    """Where in its own file the mapping is that it was merged from."""

    def problem(self, message: str, path: Path = ()) -> Problem:
        """Return a problem at this place."""
        return Problem(self.file, self.line, self.column, dotted(self.within + path), message)


@dataclass(frozen=True)
class Document:
    """One file: its JSON value and the place of each value and each key."""

    file: str
    data: Any
    values: dict[Path, Place]
    keys: dict[Path, Place] = field(default_factory=dict)

    def place(self, path: Path) -> Place:
        """Return the place of the value at a path, or of the nearest thing around it."""
        for end in range(len(path), -1, -1):
            found = self.values.get(path[:end])
            if found is not None:
                return found
        return Place(self.file)

    def key_place(self, path: Path) -> Place:
        """Return the place of the key at a path; of the value when it has none."""
        return self.keys.get(path) or self.place(path)

    def problem(self, path: Path, message: str) -> Problem:
        """Return a problem at the value of a path."""
        return self.place(path).problem(message, path)

    def get(self, *path: str | int) -> Any:
        """Return the value at a path, or None when it is absent."""
        here = self.data
        for part in path:
            listed = isinstance(here, list) and isinstance(part, int) and 0 <= part < len(here)
            if not listed and not (isinstance(here, dict) and part in here):
                return None
            here = here[part]
        return here


def dotted(path: Path) -> str:
    """Return a path as people write it: ``checks[0].run``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def parse_yaml(raw: bytes, file: str) -> Document:
    """Read one YAML document; ``file`` is the name that errors show. Raises SpecError with all problems found."""
    text = _decode(raw, file)
    reader = _Reader(file, text)
    try:
        data = reader.document()
    except SpecError as error:
        raise SpecError([*reader.problems, *error.problems]) from error
    if reader.problems:
        raise SpecError(reader.problems)
    return Document(file, data, reader.values, reader.keys)


def _decode(raw: bytes, file: str) -> str:
    if len(raw) > MAX_BYTES:
        raise SpecError([Problem(file, message=f"the file has {len(raw)} bytes; {MAX_BYTES} are the most")])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise SpecError([Problem(file, line, column, message="the file is not UTF-8 text here")]) from error
    if (at := text.find("\x85")) >= 0:  # the parser takes it for the end of a line, which YAML 1.2 does not
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise SpecError([Problem(file, line, column, message="the character U+0085 may not stand in YAML")])
    return text


class _Reader:
    """Builds values from the events of one file."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.values: dict[Path, Place] = {}
        self.keys: dict[Path, Place] = {}
        self.problems: list[Problem] = []

    @cached_property
    def _events(self) -> Iterator[Event]:
        from ruamel.yaml import YAML

        events: Iterator[Event] = YAML(typ="safe", pure=True).parse(self.text)
        return events

    def document(self) -> Any:
        """Return the value of the file's one document; None for an empty file."""
        from ruamel.yaml import events as ev

        value, seen = None, False
        while True:
            event = self._next()
            if isinstance(event, ev.StreamEndEvent):
                return value
            if isinstance(event, ev.DocumentStartEvent):
                if seen:
                    raise SpecError(
                        [self._place(event.start_mark).problem("a second document begins; one file holds one")]
                    )
                seen = True
                value = self._value(self._next(), ())

    def _next(self) -> Event:
        from ruamel.yaml.error import MarkedYAMLError, YAMLError
        from ruamel.yaml.reader import ReaderError

        try:
            return next(self._events)
        except MarkedYAMLError as error:
            # What was opened and never closed is found at the end of the file, but mended where it was opened.
            unclosed = "stream" in (error.problem or "") and error.context_mark is not None
            mark = error.context_mark if unclosed else error.problem_mark or error.context_mark
            place = self._place(mark) if mark else Place(self.file)
            parts = [part for part in (error.context, error.problem) if part]
            raise SpecError([place.problem("not valid YAML: " + ", ".join(parts))]) from error
        except ReaderError as error:
            before = self.text[: max(self.text.find(chr(error.character)), 0)]
            place = Place(self.file, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
            raise SpecError([place.problem(f"the character U+{error.character:04X} may not stand in YAML")]) from error
        except (YAMLError, ValueError, OverflowError) as error:
            raise SpecError([Place(self.file).problem(f"not valid YAML: {error}")]) from error

    def _place(self, mark: StreamMark, text: str | None = None) -> Place:
        return Place(self.file, mark.line + 1, mark.column + 1, text)

    def _complain(self, place: Place, path: Path, message: str) -> None:
        self.problems.append(place.problem(message, path))

    def _value(self, event: Event, path: Path) -> Any:
        from ruamel.yaml import events as ev

        place = self._place(event.start_mark)
        if len(path) > MAX_DEPTH:
            raise SpecError([place.problem(f"values are nested deeper than {MAX_DEPTH} levels")])
        if isinstance(event, ev.AliasEvent):
            self._complain(place, path, f"aliases (*{event.anchor}) are not read; write the value again")
            return None
        if (anchor := getattr(event, "anchor", None)) is not None:
            self._complain(place, path, f"anchors (&{anchor}) are not read; remove it")
        if getattr(event, "tag", None) is not None:
            self._complain(place, path, "tags (!…) are not read; write the plain value, text in quotes")
        self.values[path] = place
        if isinstance(event, ev.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, ev.ScalarEvent):
            return self._scalar(event, path)
        return self._sequence(path)

    def _sequence(self, path: Path) -> list[Any]:
        from ruamel.yaml import events as ev

        items: list[Any] = []
        while not isinstance(event := self._next(), ev.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, Any]:
        from ruamel.yaml import events as ev

        items: dict[str, Any] = {}
        while not isinstance(event := self._next(), ev.MappingEndEvent):
            place = self._place(event.start_mark)
            key = self._key(event, path)
            inner = (*path, key)
            first = self.keys.get(inner)
            if first is not None:
                self._complain(place, inner, f"this key is given twice; first in line {first.line}")
            self.keys[inner] = place
            items[key] = self._value(self._next(), inner)
            if self.values.get(inner) and self.values[inner].text == "":
                self.values[inner] = Place(self.file, place.line, place.column, "")
        return items

    def _key(self, event: Event, path: Path) -> str:
        from ruamel.yaml import events as ev

        place = self._place(event.start_mark)
        if not isinstance(event, ev.ScalarEvent):
            raise SpecError([place.problem("a key must be text, not a list, a mapping or an alias", path)])
        if event.anchor is not None or event.tag is not None:
            self._complain(place, path, "anchors and tags on keys are not read")
        if event.value == "<<" and event.style is None:
            self._complain(place, path, "merge keys (<<) are not read; write the values out")
        elif event.style is None and not isinstance(_plain(event.value), str):
            self._complain(place, path, f"the key {event.value!r} is not text; write it in quotes")
        return self._text(event, path)

    def _text(self, event: ScalarEvent, path: Path) -> str:
        value: str = event.value
        try:
            value.encode()
        except UnicodeEncodeError:
            self._complain(
                self._place(event.start_mark),
                path,
                "the text holds half of a surrogate pair; write the character itself",
            )
            return value.encode(errors="replace").decode()
        return value

    def _scalar(self, event: ScalarEvent, path: Path) -> Any:
        if event.style is not None:
            return self._text(event, path)
        self.values[path] = self._place(event.start_mark, event.value)
        try:
            return _plain(event.value)
        except ValueError as error:
            self._complain(self.values[path], path, str(error))
            return None


def _plain(text: str) -> Any:
    """Return the value of a plain scalar by the core schema. Raises ValueError for numbers that have no JSON form."""
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        msg = f"{text} is not a number that can be used"
        raise ValueError(msg)
    if _INT.fullmatch(text) or _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            msg = f"the number has {len(text)} digits; {_MAX_DIGITS} are the most"
            raise ValueError(msg)
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            msg = f"{text[:40]} is too large a number"
            raise ValueError(msg)
        return value
    return text
