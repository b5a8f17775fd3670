"""``/v1/chat/completions``, the Chat Completions API of OpenAI and of everybody who is compatible with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from orchestrator.gateway.dialects import rules
from orchestrator.gateway.dialects.base import Dialect, Reply, Said, ServerEvent, StreamReader
from orchestrator.gateway.dialects.chat_stream import ChatReader
from orchestrator.gateway.dialects.shape import (
    call_part,
    dump,
    entries,
    free_text,
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
from orchestrator.gateway.dialects.tokens import chat_tokens
from orchestrator.gateway.refusal import Refusal
from orchestrator.records.message import Endpoint, Message, Part, Role, Tool
from orchestrator.records.usage import Usage

_OLD = {"functions": "send `tools` instead", "function_call": "send `tool_choice` instead"}
_ROLES: dict[Any, Role] = {**{role: role for role in get_args(Role)}, "function": "tool"}


class ChatDialect:
    """Chat Completions."""

    name: Endpoint = "chat"
    path = "/v1/chat/completions"
    upstream = "/chat/completions"

    def check(self, body: Mapping[str, Any], most_messages: int, hosted: frozenset[str]) -> None:
        """Refuse what may not be asked. Raises Refusal."""
        for name, way_out in _OLD.items():
            if body.get(name) is not None:
                raise rules.unsupported(name, way_out, finding=False)
        if body.get("n") not in (None, 1):
            raise Refusal(400, "unsupported", "only one choice is supported: send `n: 1`", code="n", finding=True)
        if body.get("audio") is not None:
            raise rules.unsupported("audio", "sound is passed to models, not from them", finding=False)
        rules.refuse_store(body)
        rules.refuse_fields(body, more={"web_search_options": "it runs a tool at the provider"}, taken=_taken(hosted))
        for message in rules.check_list(body, "messages", most_messages):
            _check_message(message, hosted)
        for tool in rules.check_tools(body):
            _check_tool(tool, hosted)

    def items(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the messages."""
        return [steady(message) for message in entries(body.get("messages"))]

    def message(self, item: Mapping[str, Any]) -> Message:
        """Return a message in the one form."""
        role = _ROLES.get(word(item.get("role")), "user")
        parts = _content(item.get("content"))
        if role == "tool":
            return {"role": "tool", "parts": [result_part(item.get("tool_call_id"), parts)]}
        found: Message = {"role": role, "parts": [*_thoughts(item), *parts, *_refusal(item), *_calls(item)]}
        name = word(item.get("name"))
        return {**found, "name": name} if name is not None else found

    def tools(self, body: Mapping[str, Any]) -> list[Tool]:
        """Return the offered tools."""
        return [_tool(tool) for tool in entries(body.get("tools"))]

    def params(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of a request."""
        return {key: value for key, value in body.items() if key not in {"messages", "tools", "model"}}

    def outgoing(self, body: Mapping[str, Any], model: str) -> dict[str, Any]:
        """Return what is sent. A stream is always asked for its usage."""
        sent = {**body, "model": model}
        if body.get("stream"):
            sent["stream_options"] = {**obj(body.get("stream_options")), "include_usage": True}
        return sent

    def is_answer(self, value: Mapping[str, Any]) -> bool:
        """Return whether there are choices."""
        return bool(entries(value.get("choices")))

    def reply(self, answer: Mapping[str, Any]) -> Reply:
        """Return what the first choice says."""
        choice = next(iter(entries(answer.get("choices"))), {})
        message = self.message({**obj(choice.get("message")), "role": "assistant"})
        return Reply(
            id=word(answer.get("id")),
            model=word(answer.get("model")),
            message=message,
            finish_reason=word(choice.get("finish_reason")),
            usage=answer.get("usage"),
            tokens=chat_tokens(answer.get("usage")),
        )

    def reader(self, body: Mapping[str, Any], *, is_shown: bool = True) -> StreamReader:
        """Return a follower that hides the usage unless this request asked for it."""
        return ChatReader(
            shows_usage=bool(obj(body.get("stream_options")).get("include_usage")), keeps_lists=not is_shown
        )

    def answer(self, body: Mapping[str, Any], said: Said) -> dict[str, Any]:
        """Return an answer with one choice."""
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if said.calls:
            custom = {tool["name"] for tool in self.tools(body) if tool["type"] == "custom"}
            message["tool_calls"] = [_call(call, is_custom=call[1] in custom) for call in said.calls]
        finish = "tool_calls" if said.calls else "stop"
        return {
            "id": f"chatcmpl-{said.id}",
            "object": "chat.completion",
            "created": 0,
            "model": said.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": _usage(said.tokens),
        }

    def events(self, answer: Mapping[str, Any]) -> Iterable[ServerEvent]:
        """Return chunks: the role, the content in pieces, how it ended, the usage, and ``[DONE]``."""
        head = {"id": answer.get("id"), "object": "chat.completion.chunk"}
        head |= {"created": answer.get("created", 0), "model": answer.get("model")}
        choice = next(iter(entries(answer.get("choices"))), {})
        for delta in _deltas(obj(choice.get("message"))):
            yield _chunk(head, [{"index": 0, "delta": delta, "finish_reason": None}])
        yield _chunk(head, [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}])
        yield ServerEvent(dump({**head, "choices": [], "usage": answer.get("usage")}))
        yield ServerEvent("[DONE]")

    def error(self, kind: str, code: str | None, message: str) -> dict[str, Any]:
        """Return an error body."""
        return {"error": {"type": kind, "code": code, "message": message, "param": None}}

    def error_events(self, kind: str, code: str | None, message: str) -> list[ServerEvent]:
        """Return the one event that clients raise an error for."""
        return [ServerEvent(dump(self.error(kind, code, message)))]


def _taken(hosted: frozenset[str]) -> frozenset[str]:
    return hosted | {"web_search_options"} if "web_search" in hosted else hosted


def _check_message(message: Mapping[str, Any], hosted: frozenset[str]) -> None:
    if obj(message.get("audio")).get("id") is not None:
        raise Refusal(400, "unsupported", f"{rules.STATE}: `audio.id` names some", code="audio", finding=True)
    rules.refuse_far_parts(message, hosted)


def _check_tool(tool: Mapping[str, Any], hosted: frozenset[str]) -> None:
    # An agent may send a value that no set can look up.
    kind = word(tool.get("type"))
    if rules.is_listed(kind, hosted):
        return
    if kind not in ("function", "custom"):
        raise rules.hosted_tool(tool.get("type"))
    if not isinstance(tool.get(kind), dict):
        raise Refusal(400, "invalid_request", f"a tool of type {kind!r} must have an object `{kind}`")


def _tool(tool: Mapping[str, Any]) -> Tool:
    kind = text(tool.get("type"))
    inner = obj(tool.get(kind))
    name, description = word(inner.get("name")), word(inner.get("description"))
    return {"name": name, "type": kind, "description": description, "schema": inner.get("parameters")}


def _content(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [text_part(content)] if content else []
    return [found for part in entries(content) for found in _part(part)]


def _part(part: Mapping[str, Any]) -> list[Part]:
    kind = text(part.get("type"))
    inner = obj(part.get(kind))
    match kind:
        case "text":
            return [text_part(text(part.get("text")))] if part.get("text") else []
        case "refusal":
            return [other_part("refusal", part.get("refusal"))]
        case "thinking":
            return [reasoning_part("".join(text(each.get("text")) for each in entries(part.get("thinking"))))]
        case "image_url" | "video_url":
            return [media_part(f"{kind.partition('_')[0]}/*", url=part.get(kind) if not inner else inner.get("url"))]
        case "input_audio":
            return [media_part(f"audio/{text(inner.get('format')) or '*'}", data=inner.get("data"))]
        case "file":
            data = text(inner.get("file_data"))
            address = {"url": data} if data.startswith("data:") else {"data": data}
            return [media_part("application/octet-stream", **address)]
    return [other_part(kind, dict(part))]


def _thoughts(item: Mapping[str, Any]) -> list[Part]:
    thought = text(item.get("reasoning_content")) or text(item.get("reasoning"))
    return [reasoning_part(thought)] if thought else []


def _refusal(item: Mapping[str, Any]) -> list[Part]:
    return [other_part("refusal", item["refusal"])] if isinstance(item.get("refusal"), str) else []


def _calls(item: Mapping[str, Any]) -> Iterator[Part]:
    for call in entries(item.get("tool_calls")):
        inner = obj(call.get("function")) or obj(call.get("custom"))
        yield call_part(call.get("id"), inner.get("name"), inner.get("arguments", inner.get("input")))
    if isinstance(item.get("function_call"), dict):
        yield call_part(None, item["function_call"].get("name"), item["function_call"].get("arguments"))


def _call(call: tuple[str, str, str], *, is_custom: bool) -> dict[str, Any]:
    call_id, name, arguments = call
    if is_custom:
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": free_text(arguments)}}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _usage(tokens: Usage) -> dict[str, Any]:
    sent = tokens.uncached_input + tokens.cache_read + tokens.cache_write
    found: dict[str, Any] = {"prompt_tokens": sent, "completion_tokens": tokens.output}
    found["total_tokens"] = sent + tokens.output
    if tokens.cache_read or tokens.cache_write:
        details = {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write}
        found["prompt_tokens_details"] = details
    if tokens.reasoning:
        found["completion_tokens_details"] = {"reasoning_tokens": tokens.reasoning}
    return found


def _chunk(head: Mapping[str, Any], choices: list[dict[str, Any]]) -> ServerEvent:
    return ServerEvent(dump({**head, "choices": choices, "usage": None}))


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return what the chunks of a message add to it, in order."""
    yield {"role": "assistant", "content": "" if message.get("content") is not None else None}
    for name in ("reasoning_content", "content", "refusal"):
        yield from ({name: piece} for piece in pieces(text(message.get(name))))
    for index, call in enumerate(entries(message.get("tool_calls"))):
        kind = "custom" if call.get("type") == "custom" else "function"
        field = "input" if kind == "custom" else "arguments"
        inner = obj(call.get(kind))
        first = {"index": index, "id": call.get("id"), "type": kind, kind: {"name": inner.get("name"), field: ""}}
        yield {"tool_calls": [first]}
        for piece in pieces(text(inner.get(field))):
            yield {"tool_calls": [{"index": index, kind: {field: piece}}]}


CHAT: Dialect = ChatDialect()
