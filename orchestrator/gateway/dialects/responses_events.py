"""Writes an answer of the Responses API as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.gateway.dialects.base import ServerEvent
from orchestrator.gateway.dialects.shape import dump, entries, obj, pieces, text

_Event = tuple[str, dict[str, Any]]
_ARGUMENTS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
_TEXTS = {"output_text": ("text", "response.output_text"), "refusal": ("refusal", "response.refusal")}


def response_events(answer: Mapping[str, Any]) -> Iterator[ServerEvent]:
    """Return the events of an answer, numbered from 0."""
    for number, (kind, fields) in enumerate(_events(answer)):
        yield ServerEvent(dump({"type": kind, "sequence_number": number, **fields}), kind)


def _events(answer: Mapping[str, Any]) -> Iterator[_Event]:
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(entries(answer.get("output"))):
        yield from _item(index, item)
    last = "response.incomplete" if answer.get("status") == "incomplete" else "response.completed"
    yield last, {"response": dict(answer)}


def _item(index: int, item: Mapping[str, Any]) -> Iterator[_Event]:
    where = {"output_index": index, "item_id": item.get("id")}
    yield "response.output_item.added", {"output_index": index, "item": _empty(item)}
    match item.get("type"):
        case "message":
            for number, part in enumerate(entries(item.get("content"))):
                yield from _content({**where, "content_index": number}, part)
        case "function_call" | "custom_tool_call":
            yield from _arguments(where, item)
        case "reasoning":
            for number, part in enumerate(entries(item.get("summary"))):
                yield from _summary({**where, "summary_index": number}, part)
    yield "response.output_item.done", {"output_index": index, "item": dict(item)}


def _empty(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as it begins."""
    begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
    empty: dict[str, Any] = {"arguments": "", "input": "", "content": [], "summary": []}
    return {**begun, **{field: value for field, value in empty.items() if item.get(field) is not None}}


def _content(where: dict[str, Any], part: Mapping[str, Any]) -> Iterator[_Event]:
    field, prefix = _TEXTS.get(text(part.get("type")), ("", ""))
    begun = {**part, field: ""} if field else dict(part)
    yield "response.content_part.added", {**where, "part": begun}
    if field:
        more: dict[str, Any] = {"logprobs": []} if field == "text" else {}
        for piece in pieces(text(part.get(field))):
            yield f"{prefix}.delta", {**where, "delta": piece, **more}
        yield f"{prefix}.done", {**where, field: part.get(field), **more}
    yield "response.content_part.done", {**where, "part": dict(part)}


def _arguments(where: dict[str, Any], item: Mapping[str, Any]) -> Iterator[_Event]:
    field, prefix = _ARGUMENTS[text(item.get("type"))]
    for piece in pieces(text(item.get(field))):
        yield f"{prefix}.delta", {**where, "delta": piece}
    yield f"{prefix}.done", {**where, field: item.get(field), "name": item.get("name")}


def _summary(where: dict[str, Any], part: Mapping[str, Any]) -> Iterator[_Event]:
    yield "response.reasoning_summary_part.added", {**where, "part": {**obj(part), "text": ""}}
    for piece in pieces(text(part.get("text"))):
        yield "response.reasoning_summary_text.delta", {**where, "delta": piece}
    yield "response.reasoning_summary_text.done", {**where, "text": part.get("text")}
    yield "response.reasoning_summary_part.done", {**where, "part": dict(part)}
