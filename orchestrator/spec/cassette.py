"""A cassette: recorded answers of tools, as JSON Lines.

The first line says what the file is, and which tools it brings along that nothing else offers::

    {"format": "orchestrate-cassette", "version": 1, "tools": [{"name": "fetch_page", "description": "…", "arguments": {…}}]}

Every other line is one call, with what came of it. ``number`` counts them; each is there once::

    {"number": 1, "tool": "get_order", "arguments": {"order_id": "o1"}, "data": {"order": {…}}}
    {"number": 2, "tool": "get_order", "arguments": {"order_id": "o9"}, "outcome": "error", "error": {"kind": "not_found", "message": "…"}}

Equal calls are answered in the order of their lines, and the last of them again and again: who asks three times what was recorded twice
has left no recorded path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import orjson
from pydantic import Field, JsonValue, ValidationError, model_validator

from orchestrator.errors import Problem, nearest
from orchestrator.spec.base import Spec
from orchestrator.spec.world import OWN_TOOLS, ToolName

FORMAT = "orchestrate-cassette"
VERSION = 1
MAX_BYTES = 16 << 20
"""Of a cassette."""
MAX_CALLS = 10_000
"""Lines of a cassette."""
_MOST_PROBLEMS = 20

Line = TypeVar("Line", bound=Spec)


class RecordedTool(Spec):
    """A tool that a cassette brings along."""

    name: ToolName
    """Its name."""
    description: str = ""
    """For the model: what it is for."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """JSON Schema of its arguments, an object."""


class CassetteHeader(Spec):
    """The first line."""

    format: Literal["orchestrate-cassette"]
    """What the file is."""
    version: Literal[1]
    """Of the format."""
    tools: tuple[RecordedTool, ...] = ()
    """Tools that nothing else offers."""


class RecordedError(Spec):
    """What went wrong in a recorded call."""

    kind: str = Field(min_length=1, max_length=100)
    """The short word for it."""
    message: str = ""
    """The same in words."""
    status: int | None = Field(default=None, ge=400, le=599)
    """HTTP status of the answer."""
    retry_after: float | None = Field(default=None, ge=0)
    """Seconds after which it might be tried again."""


class RecordedCall(Spec):
    """One call, and what came of it."""

    number: int = Field(ge=1)
    """Counts the calls of a cassette."""
    tool: ToolName
    """Which tool."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """What it was called with."""
    outcome: Literal["ok", "error", "timeout"] = "ok"
    """What came of it."""
    data: dict[str, JsonValue] = Field(default_factory=dict)
    """The result, of a call that went well."""
    error: RecordedError | None = None
    """What went wrong, of all others."""

    @model_validator(mode="after")
    def _one(self) -> RecordedCall:
        if (self.outcome == "ok") != (self.error is None) or (self.data and self.error is not None):
            msg = "a call that is ok has 'data' and no 'error'; all others have 'error' and no 'data'"
            raise ValueError(msg)
        return self


@dataclass(frozen=True)
class Cassette:
    """Recorded calls in order, and the tools that come along."""

    tools: tuple[RecordedTool, ...]
    calls: tuple[RecordedCall, ...]


def parse_cassette(data: bytes, file: str) -> tuple[Cassette | None, list[Problem]]:
    """Return the cassette, or None with what is wrong. ``file`` names it in errors."""
    if len(data) > MAX_BYTES:
        message = (
            f"the cassette has {len(data):,} bytes, and {MAX_BYTES:,} are the most; record fewer or shorter answers"
        )
        return None, [Problem(file, message=message)]
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if len(lines) - 1 > MAX_CALLS:
        message = f"the cassette has {len(lines) - 1:,} calls, and {MAX_CALLS:,} are the most"
        return None, [Problem(file, message=message)]
    problems: list[Problem] = []
    header = _header(lines[0] if lines else b"", file, problems)
    calls = tuple(_calls(lines[1:], file, problems)) if header is not None else ()
    if header is None or problems:
        return None, _bounded(problems, file)
    return Cassette(header.tools, calls), []


def _header(line: bytes, file: str, problems: list[Problem]) -> CassetteHeader | None:
    value = _value(line, file, 1, problems)
    if value is None:
        return None
    if value.get("format") != FORMAT:
        message = f'this is no header; the first line must be {{"format": "{FORMAT}", "version": {VERSION}}}'
        problems.append(Problem(file, 1, message=message))
        return None
    version = value.get("version")
    if version != VERSION or isinstance(version, bool):
        shown = orjson.dumps(version).decode()[:40]
        message = f"this program reads version {VERSION} of cassettes, and this one has {shown}"
        problems.append(Problem(file, 1, field="version", message=message))
        return None
    header = _model(CassetteHeader, line, file, 1, problems)
    if header is not None:
        problems += _tools(header, file)
    return header


def _tools(header: CassetteHeader, file: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, tool in enumerate(header.tools):
        where = f"tools[{index}]"
        if tool.name in OWN_TOOLS:
            yield Problem(file, 1, field=where, message=f"the name {tool.name!r} is taken by a tool of the gateway")
        if tool.name in seen:
            yield Problem(file, 1, field=where, message=f"there are two tools named {tool.name!r}")
        if tool.arguments.get("type", "object") != "object" or not isinstance(
            tool.arguments.get("properties", {}), dict
        ):
            yield Problem(file, 1, field=f"{where}.arguments", message="must be the JSON Schema of an object")
        seen.add(tool.name)


def _calls(lines: list[bytes], file: str, problems: list[Problem]) -> Iterator[RecordedCall]:
    lines_of: dict[int, int] = {}
    for number, line in enumerate(lines, 2):
        if len(problems) > _MOST_PROBLEMS:
            return
        if _value(line, file, number, problems) is None:
            continue
        call = _model(RecordedCall, line, file, number, problems)
        if call is None:
            continue
        if call.number in lines_of:
            message = f"call {call.number} is on line {lines_of[call.number]} already; each call is there once"
            problems.append(Problem(file, number, field="number", message=message))
        lines_of.setdefault(call.number, number)
        yield call


def _value(line: bytes, file: str, number: int, problems: list[Problem]) -> dict[str, Any] | None:
    """Return the object of a line; None, and what is wrong, when there is none."""
    message = "the line is empty; a cassette has one JSON object on each line"
    column = 0
    if line.strip():
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            message, column = f"this is no JSON: {error.msg}", error.colno
        else:
            if isinstance(value, dict):
                return value
            message = "each line must be one JSON object"
    problems.append(Problem(file, number, column, message=message))
    return None


def _model(model: type[Line], line: bytes, file: str, number: int, problems: list[Problem]) -> Line | None:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            place = [part for part in each["loc"] if not isinstance(part, str) or part.isidentifier()]
            field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
            message = each["msg"].removeprefix("Value error, ")
            if each["type"] == "extra_forbidden":
                message = f"unknown key{nearest(str(each['loc'][-1]), list(model.model_fields))}"
            problems.append(Problem(file, number, field=field, message=message))
        return None


def _bounded(problems: list[Problem], file: str) -> list[Problem]:
    more = len(problems) - _MOST_PROBLEMS
    if more <= 0:
        return problems
    return [
        *problems[:_MOST_PROBLEMS],
        Problem(file, problems[_MOST_PROBLEMS].line, message="there is more after this"),
    ]
