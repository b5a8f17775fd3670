"""``/v1/messages``, the Messages API of Anthropic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from orchestrator.gateway.dialects import rules
from orchestrator.gateway.dialects.base import Dialect, Reply, Said, ServerEvent, StreamReader
from orchestrator.gateway.dialects.messages_stream import MessagesReader
from orchestrator.gateway.dialects.shape import (
    call_part,
    dump,
    entries,
    media_part,
    obj,
    other_part,
    pieces,
    reasoning_part,
    result_part,
    steady,
    text,
    text_part,
    word,
)
from orchestrator.gateway.dialects.tokens import messages_tokens
from orchestrator.records.message import Endpoint, Message, Part, Role, Tool
from orchestrator.records.usage import Usage

_FIELDS = {
    "container": rules.STATE,
    "thread": rules.STATE,
    "anthropic_beta": "send the header `anthropic-beta`",
    "fallback_credit_token": rules.STATE,
    "billing_policy": "the gateway's account pays",
    "user_profile_id": "the gateway's account pays",
    "workspace_id": "the gateway knows where calls go",
}
_CLIENT_TOOL = re.compile(r"(bash|text_editor|computer|computer_toolset|browser_toolset|memory)_\d{8}")
"""Types of tools with a schema that the provider knows and that the agent runs itself."""
_ROLES: dict[Any, Role] = {"assistant": "assistant", "system": "system"}
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}


class MessagesDialect:
    """Messages."""

    name: Endpoint = "messages"
    path = "/v1/messages"
    upstream = "/messages"

    def check(self, body: Mapping[str, Any], most_messages: int, hosted: frozenset[str]) -> None:
        """Refuse what may not be asked, in tools that a message adds as well. Raises Refusal."""
        rules.refuse_fields(body, more=_FIELDS, taken=hosted)
        for tool in rules.check_tools(body):
            _check_tool(tool, hosted)
        for message in rules.check_list(body, "messages", most_messages):
            rules.refuse_far_parts(message, hosted)
            for block in entries(message.get("content")):
                _check_block(block, hosted)

    def items(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the system prompt, if there is one, and the messages."""
        messages = [steady(message) for message in entries(body.get("messages"))]
        system = body.get("system")
        return [steady({"role": "system", "content": system}), *messages] if system else messages

    def message(self, item: Mapping[str, Any]) -> Message:
        """Return a message in the one form. Results of tools are in messages of the user here."""
        return {"role": _ROLES.get(word(item.get("role")), "user"), "parts": _content(item.get("content"))}

    def tools(self, body: Mapping[str, Any]) -> list[Tool]:
        """Return the offered tools, and those that messages add."""
        added = [
            obj(obj(block.get("tool")).get("definition"))
            for message in entries(body.get("messages"))
            for block in entries(message.get("content"))
            if block.get("type") == "tool_addition"
        ]
        return [_tool(tool) for tool in [*entries(body.get("tools")), *added] if tool]

    def params(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of a request."""
        return {key: value for key, value in body.items() if key not in {"messages", "system", "tools", "model"}}

    def outgoing(self, body: Mapping[str, Any], model: str) -> dict[str, Any]:
        """Return what is sent. Usage comes with every stream."""
        return {**body, "model": model}

    def is_answer(self, value: Mapping[str, Any]) -> bool:
        """Return whether it is a message with content, which may be empty."""
        return value.get("type") == "message" and isinstance(value.get("content"), list)

    def reply(self, answer: Mapping[str, Any]) -> Reply:
        """Return what an answer says."""
        return Reply(
            id=word(answer.get("id")),
            model=word(answer.get("model")),
            message={"role": "assistant", "parts": _content(answer.get("content"))},
            finish_reason=word(answer.get("stop_reason")),
            usage=answer.get("usage"),
            tokens=messages_tokens(answer.get("usage")),
        )

    def reader(self, body: Mapping[str, Any], *, is_shown: bool = True) -> StreamReader:
        """Return a follower."""
        return MessagesReader()

    def answer(self, body: Mapping[str, Any], said: Said) -> dict[str, Any]:
        """Return a message of a text and calls."""
        content: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
        content += [
            {"type": "tool_use", "id": call_id, "name": name, "input": orjson.loads(arguments)}
            for call_id, name, arguments in said.calls
        ]
        return {
            "id": f"msg_{said.id}",
            "type": "message",
            "role": "assistant",
            "model": said.model,
            "content": content,
            "stop_reason": "tool_use" if said.calls else "end_turn",
            "stop_sequence": None,
            "usage": _usage(said.tokens),
        }

    def events(self, answer: Mapping[str, Any]) -> Iterable[ServerEvent]:
        """Return the events from ``message_start`` to ``message_stop``. The input's usage is in the first, the output's near the last."""
        usage = obj(answer.get("usage"))
        begun: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        begun["usage"] = {k: v for k, v in usage.items() if k != "output_tokens_details"} | {"output_tokens": 0}
        yield _event("message_start", message={**answer, **begun})
        for index, block in enumerate(entries(answer.get("content"))):
            yield from _block_events(index, block)
        delta = {"stop_reason": answer.get("stop_reason"), "stop_sequence": answer.get("stop_sequence")}
        ended = {key: usage[key] for key in ("output_tokens", "output_tokens_details") if key in usage}
        yield _event("message_delta", delta=delta, usage=ended)
        yield _event("message_stop")

    def error(self, kind: str, code: str | None, message: str) -> dict[str, Any]:
        """Return an error body."""
        return {"type": "error", "error": {"type": kind, "message": message, "code": code}}

    def error_events(self, kind: str, code: str | None, message: str) -> list[ServerEvent]:
        """Return the one event that clients raise an error for."""
        return [ServerEvent(dump(self.error(kind, code, message)), "error")]


def _check_tool(tool: Mapping[str, Any], hosted: frozenset[str]) -> None:
    kind = tool.get("type", "custom")
    if kind in (None, "custom") or (isinstance(kind, str) and _CLIENT_TOOL.fullmatch(kind)):
        return
    if not rules.is_listed(word(kind), hosted):
        raise rules.hosted_tool(kind)


def _check_block(block: Mapping[str, Any], hosted: frozenset[str]) -> None:
    if block.get("type") == "tool_addition":
        definition = obj(block.get("tool")).get("definition")
        if definition is not None:
            rules.refuse_disguised(obj(definition))
            _check_tool(obj(definition), hosted)


def _tool(tool: Mapping[str, Any]) -> Tool:
    kind = word(tool.get("type")) or "custom"
    # What Anthropic calls custom is what the others call a function: its arguments are an object with a schema.
    return {
        "name": word(tool.get("name")),
        "type": "function" if kind == "custom" else kind,
        "description": word(tool.get("description")),
        "schema": tool.get("input_schema"),
    }


def _content(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [text_part(content)] if content else []
    return [_part(block) for block in entries(content)]


def _part(block: Mapping[str, Any]) -> Part:
    kind = text(block.get("type"))
    match kind:
        case "text":
            return text_part(text(block.get("text")))
        case "thinking":
            return reasoning_part(text(block.get("thinking")))
        case "redacted_thinking":
            return reasoning_part("")
        case "tool_use":
            return call_part(block.get("id"), block.get("name"), block.get("input"))
        case "tool_result":
            failed = block.get("is_error") is True
            return result_part(block.get("tool_use_id"), _content(block.get("content")), is_error=failed)
        case "image" | "document":
            return _media(kind, obj(block.get("source")))
    return other_part(kind, dict(block))


def _media(kind: str, source: Mapping[str, Any]) -> Part:
    usual = "image/*" if kind == "image" else "application/pdf"
    match source.get("type"):
        case "text":
            return text_part(text(source.get("data")))
        case "content":
            found = result_part(None, _content(source.get("content")))
            return text_part(found["content"])
    return media_part(word(source.get("media_type")) or usual, url=source.get("url"), data=source.get("data"))


def _usage(tokens: Usage) -> dict[str, Any]:
    found: dict[str, Any] = {
        "input_tokens": tokens.uncached_input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output,
    }
    if tokens.cache_write:
        short = tokens.cache_write - tokens.cache_write_1h
        found["cache_creation"] = {
            "ephemeral_5m_input_tokens": short,
            "ephemeral_1h_input_tokens": tokens.cache_write_1h,
        }
    if tokens.reasoning:
        found["output_tokens_details"] = {"thinking_tokens": tokens.reasoning}
    return found


def _event(kind: str, **fields: Any) -> ServerEvent:
    return ServerEvent(dump({"type": kind, **fields}), kind)


def _block_events(index: int, block: Mapping[str, Any]) -> Iterator[ServerEvent]:
    """Return how a block begins, grows and ends. Blocks of other kinds come whole."""
    kind = text(block.get("type"))
    empty, deltas = dict(block), list[dict[str, Any]]()
    if kind in _DELTAS:
        delta, field = _DELTAS[kind]
        empty[field] = ""
        deltas = [{"type": delta, field: piece} for piece in pieces(text(block.get(field)))]
    elif kind == "tool_use":
        empty["input"] = {}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(dump(block.get("input")))]
    if "signature" in block:
        empty["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    yield _event("content_block_start", index=index, content_block=empty)
    for each in deltas:
        yield _event("content_block_delta", index=index, delta=each)
    yield _event("content_block_stop", index=index)


MESSAGES: Dialect = MessagesDialect()
