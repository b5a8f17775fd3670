"""Validation of a document against a model, with every mistake in plain words at its place in the file."""

from __future__ import annotations

import difflib
import json
import re
import shlex
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import BaseModel, Tag, ValidationError

from orchestrator.errors import Problem, nearest
from orchestrator.spec.yaml import Document, Path, Place

M = TypeVar("M", bound=BaseModel)

_NAME = "must be a name: lower case letters, digits, dots, dashes and underscores, with a letter or digit at both ends"
_PATTERNS = {
    "^[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$": _NAME,
    r"^[a-z0-9_-]+/\S+$": "must be PROVIDER/NAME, for example openai/gpt-5-mini or scripted/careful",
    "^/": "must be an absolute path, beginning with /",
    "^[0-9a-f]{64}$": "must be a SHA-256 digest: 64 hex digits in lower case",
    "^0[0-7]{3}$": 'must be four octal digits in quotes, for example "0755"',
    "^[0-9a-f]{7,40}$": "must be a git commit: 7 to 40 hex digits in lower case",
    "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$": "must be a container image such as python:3.12 or NAME@sha256:…",
    "^([A-Za-z0-9][A-Za-z0-9._:/-]*@)?sha256:[0-9a-f]{64}$": "must be NAME@sha256:… or an image id sha256:…, with 64 hex digits",
    "^sha256:[0-9a-f]{64}$": "must be sha256: and 64 hex digits in lower case",
    r"^[A-Za-z*?][A-Za-z0-9_*?-]{0,63}$": "must be the name of a tool, or a pattern such as get_*",
    r"^[^.\s]+(\.[^.\s]+){0,31}$": "must be names with dots between them, such as request_id or items.*.sent_at",
    "^[A-Za-z0-9._+-]+$": "must be the name of a program, without a path or spaces",
}
_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "datetime_type": "a time such as 2026-03-02T09:00:00Z",
    "datetime_parsing": "a time such as 2026-03-02T09:00:00Z",
    "datetime_from_date_parsing": "a time such as 2026-03-02T09:00:00Z",
    "timezone_aware": "a time with its zone, such as 2026-03-02T09:00:00Z",
    "date_type": "a day such as 2026-03-02",
    "date_parsing": "a day such as 2026-03-02",
    "date_from_datetime_parsing": "a day such as 2026-03-02",
    "date_from_datetime_inexact": "a day such as 2026-03-02",
}
_OTHER_NAMES = {"name": "id", "prompt": "instruction"}
"""What other formats call a key."""
_CLOSE = 0.7
"""Least likeness of a misspelt key, of 1."""
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def validate(
    model: type[M], document: Document, kinds: Mapping[str, str] | None = None
) -> tuple[M | None, list[Problem]]:
    """Return the model of a document, or None with everything that is wrong.

    ``kinds`` names what a list holds (``{"checks": "check"}``), for the message about an unknown type.
    """
    if not isinstance(document.data, dict):
        message = "the file is empty" if document.data is None else f"must be a mapping, not {kind_of(document.data)}"
        return None, [document.problem((), message)]
    try:
        return model.model_validate_json(json.dumps(document.data, allow_nan=False)), []
    except ValidationError as error:
        explain = _Explainer(model, document, kinds or {})
        return None, explain.problems(error.errors(include_url=False))


def kind_of(value: Any) -> str:
    """Return what a JSON value is, in words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}" if abs(value) < 10**20 else "a huge number"
    if isinstance(value, str):
        return f"the text {_short(value)}"
    return "a list" if isinstance(value, list) else "a mapping"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


class _Explainer:
    """Turns one file's validation errors into problems."""

    def __init__(self, model: type[BaseModel], document: Document, kinds: Mapping[str, str]) -> None:
        self.model = model
        self.document = document
        self.kinds = kinds

    def problems(self, errors: list[Any]) -> list[Problem]:
        """Return the problems in words. A field that is missing because its key is misspelt is told once."""
        unknown = [each["loc"] for each in errors if each["type"] == "extra_forbidden"]
        return [
            problem
            for each in errors
            if not (each["type"] == "missing" and any(_misspelt(loc, each["loc"]) for loc in unknown))
            and (problem := self._problem(each))
        ]

    def _problem(self, error: Any) -> Problem | None:
        """Return the problem, or None for an error that only follows from others."""
        path = self._path(error["loc"])
        kind: str = error["type"]
        special: dict[str, Callable[[Any, Path], Problem | None]] = {
            "missing": self._missing,
            "extra_forbidden": self._unknown,
            "union_tag_invalid": self._unknown_type,
            "union_tag_not_found": self._no_type,
            "too_short": self._too_short,
        }
        if kind in special:
            return special[kind](error, path)
        if error["loc"] and error["loc"][-1] == "[key]":
            return self.document.key_place(path).problem(self._message(error, path), path)
        return self.document.problem(path, self._message(error, path))

    def _path(self, loc: tuple[str | int, ...]) -> Path:
        """Return the part of a location that stands in the file: names of union members are dropped."""
        here: Any = self.document.data
        path: Path = ()
        for part in loc:
            if (isinstance(here, dict) and part in here) or (isinstance(here, list) and isinstance(part, int)):
                here = self.document.get(*path, part)
                path = (*path, part)
        return path

    def _missing(self, error: Any, path: Path) -> Problem:
        name = error["loc"][-1]
        return self.document.place(path).problem("this field is required", (*path, name))

    def _unknown(self, error: Any, path: Path) -> Problem:
        name = str(error["loc"][-1])
        valid = _field_names(self.model, error["loc"][:-1])
        return self.document.key_place(path).problem(_unknown_key(name, valid, self.model, len(path) == 1), path)

    def _unknown_type(self, error: Any, path: Path) -> Problem:
        tag = str(error["ctx"]["tag"])
        valid = [word.strip().strip("'") for word in str(error["ctx"]["expected_tags"]).split(", ")]
        noun = self.kinds.get(str(path[0]) if path else "", "")
        message = (
            f"unknown {noun + ' ' if noun else ''}type {_short(tag)}{nearest(tag, valid)}; known are {', '.join(valid)}"
        )
        return self.document.problem((*path, "type"), message)

    def _no_type(self, _error: Any, path: Path) -> Problem:
        return self.document.problem((*path, "type"), "this field is required")

    def _too_short(self, error: Any, path: Path) -> Problem | None:
        value, least = self.document.get(*path), error["ctx"]["min_length"]
        if isinstance(value, list | dict) and len(value) >= least:
            return None  # It is long enough; some of its items are wrong, which is said for each.
        return self.document.problem(path, f"needs at least {least} {'entry' if least == 1 else 'entries'}")

    def _message(self, error: Any, path: Path) -> str:
        kind, context = error["type"], error.get("ctx", {})
        value = self.document.get(*path)
        if value is None and path and kind != "value_error":
            return "nothing is given here; write a value or remove the key"
        if kind == "literal_error":
            return _not_a_word(value, str(context["expected"]))
        if kind in _TYPES:
            return _wrong_type(_TYPES[kind], value, self.document.values.get(path), path)
        if kind in _BOUNDS:
            words, key = _BOUNDS[kind]
            return f"must be {words} {context[key]:g}, is {value}"
        return _other(kind, context, str(error["msg"]))


def _misspelt(unknown: tuple[str | int, ...], missing: tuple[str | int, ...]) -> bool:
    return unknown[:-1] == missing[:-1] and bool(_meant(str(unknown[-1]), [str(missing[-1])]))


def _other(kind: str, context: Mapping[str, Any], fallback: str) -> str:
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return _PATTERNS.get(pattern, f"must match the pattern {pattern}")
    if kind == "string_too_short":
        return "must not be empty"
    if kind in {"string_too_long", "too_long"}:
        return f"is too long; at most {context['max_length']}"
    return fallback.replace("Input should", "must").replace("must be a valid", "must be a")


def _not_a_word(value: Any, expected: str) -> str:
    valid = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    guess = nearest(value, valid) if isinstance(value, str) else ""
    given = _short(value) if isinstance(value, str) else kind_of(value)
    return f"{given} is not one of {', '.join(valid)}{guess}"


def _wrong_type(wanted: str, value: Any, place: Place | None, path: Path) -> str:
    message = f"must be {wanted}, not {kind_of(value)}"
    if wanted == "text" and isinstance(value, bool | int | float) and place is not None and place.text:
        return f'{message}; write it in quotes: "{place.text}"'
    if wanted == "a list" and isinstance(value, str):
        words = _words(value) if path[-1:] == ("command",) else [value]
        return f"{message}; write it in brackets: [{', '.join(map(_listed, words)) if len(value) < 40 else '…'}]"
    return message


def _words(command: str) -> list[str]:
    """Return a command line as program and arguments; by a shell where only a shell understands it."""
    if set(command) & set("|&;<>()$`*?~"):
        return ["sh", "-c", command]
    try:
        return shlex.split(command)
    except ValueError:
        return ["sh", "-c", command]


def _listed(text: str) -> str:
    """Return a text as an item of a list in brackets, in quotes where YAML would read something else without them."""
    plain = re.fullmatch(r"-*[A-Za-z_./][A-Za-z0-9_./@ -]*", text) and text.strip() == text
    if plain and text.lower() not in {"true", "false", "null"}:
        return text
    return json.dumps(text, ensure_ascii=False)


def _unknown_key(name: str, valid: list[str], root: type[BaseModel], at_top: bool) -> str:
    guess = _meant(name, valid)
    if not guess and at_top:
        homes = {
            key: f"{outer}.{key}" for outer, inner in _nested(root).items() for key in reversed(inner.model_fields)
        }
        inside = name if name in homes else _meant(name, list(homes))
        guess = homes.get(inside, "")
    if guess:
        return f"unknown key (did you mean {guess!r}?)"
    return f"unknown key; known are {', '.join(valid)}" if valid else "unknown key"


def _meant(name: str, valid: list[str]) -> str:
    """Return the key that was meant, or an empty text: a far guess misleads more than none."""
    other = _OTHER_NAMES.get(name, "")
    if other in valid:
        return other
    close = difflib.get_close_matches(name, valid, n=1, cutoff=_CLOSE)
    if close:
        return close[0]
    short = re.compile(".*".join(map(re.escape, name)))
    return next((each for each in valid if len(name) > 2 and each[0] == name[0] and short.match(each)), "")


def _nested(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the fields of a model that are models themselves."""
    found = {}
    for name, info in model.model_fields.items():
        for member in _members(info.annotation):
            if isinstance(member, type) and issubclass(member, BaseModel):
                found[name] = member
    return found


def _field_names(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """Return the valid keys at a location of an error, names of union members in it included."""
    here: Any = model
    for part in loc:
        here = _step(here, part)
    found = [each for each in _members(here) if isinstance(each, type) and issubclass(each, BaseModel)]
    return [name for each in found for name in each.model_fields]


def _bare(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation


def _members(annotation: Any) -> list[Any]:
    bare = _bare(annotation)
    if typing.get_origin(bare) in {Union, types.UnionType}:
        return [member for each in typing.get_args(bare) for member in _members(each)]
    return [bare]


def _step(annotation: Any, part: str | int) -> Any:
    bare = _bare(annotation)
    origin = typing.get_origin(bare)
    if origin in {Union, types.UnionType}:
        return _union_step(typing.get_args(bare), part)
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        info = bare.model_fields.get(str(part))
        return None if info is None else info.annotation
    if origin in {tuple, list}:
        return typing.get_args(bare)[0]
    return typing.get_args(bare)[1] if origin is dict else None


def _union_step(members: tuple[Any, ...], part: str | int) -> Any:
    for member in members:
        if _tagged(member, part):
            return member
    return next((found for member in members if (found := _step(member, part)) is not None), None)


def _tagged(member: Any, part: str | int) -> bool:
    metadata = typing.get_args(member)[1:] if typing.get_origin(member) is Annotated else ()
    if any(isinstance(each, Tag) and each.tag == part for each in metadata):
        return True
    bare = _bare(member)
    if not (isinstance(bare, type) and issubclass(bare, BaseModel)):
        return False
    word = bare.model_fields.get("type")
    literal = word is not None and typing.get_origin(word.annotation) is Literal
    return literal and word is not None and part in typing.get_args(word.annotation)
