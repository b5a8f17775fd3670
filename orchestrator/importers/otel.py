"""Traces in OpenTelemetry's GenAI spans, as OTLP in JSON: one export request a line or a file, spans of a trace anywhere in them.

https://github.com/open-telemetry/semantic-conventions-genai
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import orjson

from orchestrator.gateway.dialects.base import Reply
from orchestrator.gateway.dialects.shape import arguments_text, entries, obj, word
from orchestrator.importers.recorded import Given, Recorder, Trace, ending_of, reason_of
from orchestrator.records.message import Message, Part, Role, Tool, ToolResultPart
from orchestrator.records.termination import TerminationReason
from orchestrator.records.usage import Usage

MODEL_CALLS = frozenset({"chat", "text_completion", "generate_content"})
_OK, _ERROR = 1, 2
"""Codes of a span's status."""
_STATUS: dict[object, int] = {_OK: _OK, _ERROR: _ERROR, "STATUS_CODE_OK": _OK, "STATUS_CODE_ERROR": _ERROR}
_MOST = 10**12
_ROLES: dict[object, Role] = {role: role for role in get_args(Role)}


@dataclass(frozen=True)
class Span:
    """One span, its attributes as plain values."""

    id: str
    parent: str
    name: str
    start: float
    """Seconds since 1970."""
    end: float
    status: int
    attributes: Mapping[str, Any]

    @property
    def operation(self) -> str | None:
        """What it is, by ``gen_ai.operation.name``."""
        return word(self.attributes.get("gen_ai.operation.name"))

    @property
    def error(self) -> str | None:
        """Return the kind of its error; None: it had none."""
        stated = word(self.attributes.get("error.type"))
        return stated or ("error" if self.status == _ERROR else None)


@dataclass
class SpanFolder:
    """Spans by trace, on disk until all files are read."""

    folder: Path
    first: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Where each trace was met first."""

    def add(self, request: Mapping[str, Any], where: tuple[str, int]) -> int:
        """Take the spans of an export request. Returns how many of them have to do with GenAI."""
        found = 0
        for span in _spans_of(request):
            trace = word(span.get("traceId"))
            attributes = _attributes(span.get("attributes"))
            if not trace or not any(name.startswith("gen_ai.") for name in attributes):
                continue
            found += 1
            self.first.setdefault(trace, where)
            with self._path(trace).open("ab") as file:
                file.write(orjson.dumps({**span, "attributes": attributes}, option=orjson.OPT_APPEND_NEWLINE))
        return found

    def traces(self) -> Iterator[tuple[str, tuple[str, int]]]:
        """Yield the traces in the order in which they were met, with where that was."""
        yield from self.first.items()

    def spans(self, trace: str) -> list[Span]:
        """Return the spans of a trace by start. One that was exported twice is one."""
        with self._path(trace).open("rb") as file:
            found = {span.id: span for line in file for span in [_span(orjson.loads(line))]}
        return sorted(found.values(), key=lambda span: (span.start, span.end, span.id))

    def _path(self, trace: str) -> Path:
        return self.folder / f"{hashlib.sha256(trace.encode()).hexdigest()}.spans"


def read_otel(spans: list[Span], trace: str, where: tuple[str, int], path: Path, given: Given) -> Trace:
    """Record the spans of one trace. ``path``: a new file."""
    root = next((span for span in spans if span.operation in {"invoke_agent", "invoke_workflow"}), None)
    span = (min(span.start for span in spans), max(span.end for span in spans))
    with Recorder(path, {"format": "otel", "trace_id": trace}, given.price, span[0]) as recorder:
        _Walk(recorder, spans, given.tools).all()
        attributes = root.attributes if root else {}
        stated = attributes.get("orchestrate.termination_reason")
        named = (span.attributes.get("gen_ai.agent.name") for span in spans)
        return recorder.close(
            *where,
            task=word(attributes.get("eval.case_id")) or word(attributes.get("orchestrate.task.id")),
            agent=next((name for name in map(word, named) if name), None),
            reason=reason_of(stated) or (_ending(root) if root else None),
            ended_as=ending_of(stated),
            span=span,
        )


def _ending(root: Span) -> TerminationReason | None:
    """Return what the status of the agent's own span says: nothing, unless it was set."""
    if root.error:
        return "unhandled_exception"
    return "completed" if root.status == _OK else None


class _Walk:
    def __init__(self, recorder: Recorder, spans: list[Span], tools: list[Tool] | None) -> None:
        self._recorder = recorder
        self._spans = spans
        self._tools = tools
        self._called: set[str] = set()
        self._kept: dict[str, int] = {}

    def all(self) -> None:
        for span in self._spans:
            if span.operation in MODEL_CALLS:
                self._model(span)
            elif span.operation == "execute_tool":
                self._tool(span)

    def _model(self, span: Span) -> None:
        get = span.attributes.get
        model = word(get("gen_ai.response.model")) or word(get("gen_ai.request.model"))
        told = [*_system(get("gen_ai.system_instructions")), *_messages(get("gen_ai.input.messages"))]
        tools = _tools(get("gen_ai.tool.definitions")) or self._tools
        # Each span repeats the conversation of its agent; only what is new is written down.
        kept = self._kept.get(span.parent, 0)
        request = self._recorder.request(told[kept:], span.start, model=model, tools=tools)
        if span.error:
            facts = {"request": request, "attempt": 0, "status": None, "code": span.error, "message": None}
            self._recorder.event("model_error", span.end, facts)
            return
        said = _messages(get("gen_ai.output.messages"))
        answer: Message = {"role": "assistant", "parts": [part for message in said for part in message["parts"]]}
        self._kept[span.parent] = len(told) + len(said)
        self._called |= {part["id"] for part in answer["parts"] if part["type"] == "tool_call" and part["id"]}
        provider = word(get("gen_ai.provider.name")) or word(get("gen_ai.system"))
        reasons = get("gen_ai.response.finish_reasons")
        reply = Reply(
            id=word(get("gen_ai.response.id")),
            model=model,
            message=answer,
            finish_reason=word(reasons[0]) if isinstance(reasons, list) and reasons else None,
            usage=None,
            tokens=_tokens(span.attributes),
        )
        self._recorder.response(request, reply, span.end, seconds=span.end - span.start, provider=provider)

    def _tool(self, span: Span) -> None:
        get = span.attributes.get
        call, name = word(get("gen_ai.tool.call.id")) or f"span-{span.id}", word(get("gen_ai.tool.name"))
        if call not in self._called:  # no model response told of it
            arguments = arguments_text(get("gen_ai.tool.call.arguments"))
            self._recorder.call({"type": "tool_call", "id": call, "name": name, "arguments": arguments}, span.start)
        result = _text(get("gen_ai.tool.call.result"))
        part: ToolResultPart = {
            "type": "tool_result",
            "id": call,
            "content": result,
            "is_error": span.error is not None,
        }
        self._recorder.result(part, span.end)


def _system(value: object) -> list[Message]:
    parts = [part for each in entries(_decoded(value)) for part in _part(each)]
    return [{"role": "system", "parts": parts}] if parts else []


def _messages(value: object) -> list[Message]:
    found: list[Message] = []
    for each in entries(_decoded(value)):
        parts = [part for inner in entries(each.get("parts")) for part in _part(inner)]
        # Results are told by the spans of their tools, too: those have errors and times.
        parts = [part for part in parts if part["type"] != "tool_result"]
        found.append({"role": _ROLES.get(word(each.get("role")), "user"), "parts": parts})
    return found


def _part(part: Mapping[str, Any]) -> list[Part]:
    kind = word(part.get("type")) or ""
    match kind:
        case "text":
            return [{"type": "text", "text": word(part.get("content")) or ""}]
        case "reasoning":
            return [{"type": "reasoning", "text": word(part.get("content")) or ""}]
        case "tool_call":
            arguments = arguments_text(part.get("arguments"))
            return [
                {
                    "type": "tool_call",
                    "id": word(part.get("id")),
                    "name": word(part.get("name")),
                    "arguments": arguments,
                }
            ]
        case "tool_call_response":
            content = _text(part.get("response", part.get("result")))
            return [{"type": "tool_result", "id": word(part.get("id")), "content": content, "is_error": False}]
    return [{"type": "other", "kind": kind, "data": dict(part)}]


def _tools(value: object) -> list[Tool]:
    return [
        {
            "name": word(tool.get("name")),
            "type": word(tool.get("type")) or "function",
            "description": word(tool.get("description")),
            "schema": tool.get("parameters"),
        }
        for tool in entries(_decoded(value))
    ]


def _tokens(attributes: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of a model call. ``input_tokens`` includes what caches served and took."""
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens", "cache_creation.input_tokens")
    sent, output, read, written = (_count(attributes.get(f"gen_ai.usage.{name}")) for name in names)
    thought = _count(attributes.get("gen_ai.usage.reasoning.output_tokens")) or 0
    read, written = read or 0, written or 0
    if sent is None or output is None or read + written > sent or thought > output:
        return None
    return Usage(
        uncached_input=sent - read - written, cache_read=read, cache_write=written, output=output, reasoning=thought
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None


def _decoded(value: object) -> object:
    """Return structured content: exporters write it as JSON text or as a structure."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _spans_of(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in entries(request.get("resourceSpans")):
        for scope in entries(resource.get("scopeSpans")):
            yield from entries(scope.get("spans"))


def _span(span: Mapping[str, Any]) -> Span:
    code = obj(span.get("status")).get("code")
    return Span(
        id=word(span.get("spanId")) or "",
        parent=word(span.get("parentSpanId")) or "",
        name=word(span.get("name")) or "",
        start=_time(span.get("startTimeUnixNano")),
        end=max(_time(span.get("startTimeUnixNano")), _time(span.get("endTimeUnixNano"))),
        status=_STATUS.get(code, 0) if isinstance(code, str | int) else 0,
        attributes=obj(span.get("attributes")),
    )


def _time(value: object) -> float:
    """Return nanoseconds since 1970, which JSON has as text, in seconds."""
    try:
        return min(max(int(value), 0), 10**19) / 1e9 if isinstance(value, str | int) else 0.0
    except ValueError:
        return 0.0


def _attributes(value: object) -> dict[str, Any]:
    return {each["key"]: _plain(each.get("value")) for each in entries(value) if isinstance(each.get("key"), str)}


def _plain(value: object) -> Any:
    """Return a value of OTLP as a plain one."""
    found = obj(value)
    for name in ("stringValue", "boolValue", "doubleValue"):
        if name in found:
            return found[name]
    if "intValue" in found:
        text = str(found["intValue"])
        return int(text) if text.lstrip("-").isdecimal() and len(text) <= 20 else None
    if "arrayValue" in found:
        return [_plain(each) for each in entries(obj(found["arrayValue"]).get("values"))]
    if "kvlistValue" in found:
        return _attributes(obj(found["kvlistValue"]).get("values"))
    return None
