"""``/v1/responses``, the Responses API of OpenAI, without the state that it keeps by default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.gateway.dialects import rules
from orchestrator.gateway.dialects.base import Dialect, Reply, Said, ServerEvent, StreamReader
from orchestrator.gateway.dialects.responses_events import response_events
from orchestrator.gateway.dialects.responses_items import CLIENT_TOOLS, kind_of, message_of, tools_of
from orchestrator.gateway.dialects.responses_stream import ResponsesReader
from orchestrator.gateway.dialects.shape import dump, entries, free_text, obj, steady, text, word
from orchestrator.gateway.dialects.tokens import responses_tokens
from orchestrator.gateway.refusal import Refusal
from orchestrator.records.message import Endpoint, Message, Part, Tool
from orchestrator.records.usage import Usage

_FIELDS = {"prompt": "send its text instead of an id", "background_options": rules.STATE}
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""What a response repeats of its request, and what it says where the request says nothing."""


class ResponsesDialect:
    """Responses."""

    name: Endpoint = "responses"
    path = "/v1/responses"
    upstream = "/responses"

    def check(self, body: Mapping[str, Any], most_messages: int, hosted: frozenset[str]) -> None:
        """Refuse what may not be asked, in tools that an item adds as well. Raises Refusal."""
        rules.refuse_store(body)
        rules.refuse_fields(body, more=_FIELDS, taken=hosted)
        _check_tools(rules.check_tools(body), hosted)
        if isinstance(body.get("input"), str) and body["input"]:
            return
        for item in rules.check_list(body, "input", most_messages):
            _check_item(item, hosted)
            if kind_of(item) != "mcp_list_tools":
                _check_tools(entries(item.get("tools")), hosted)

    def items(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the instructions, if there are any, and the items of the input."""
        given = body.get("input")
        listed = [{"role": "user", "content": given}] if isinstance(given, str) else entries(given)
        instructions = body.get("instructions")
        if instructions:
            listed = [{"role": "system", "content": instructions}, *listed]
        return [_steady(item) for item in listed]

    def message(self, item: Mapping[str, Any]) -> Message:
        """Return an item in the one form."""
        return message_of(item)

    def tools(self, body: Mapping[str, Any]) -> list[Tool]:
        """Return the offered tools, and those that items add."""
        added = [tool for item in entries(body.get("input")) for tool in tools_of(item.get("tools"))]
        return [*tools_of(body.get("tools")), *added]

    def params(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of a request."""
        return {key: value for key, value in body.items() if key not in {"input", "instructions", "tools", "model"}}

    def outgoing(self, body: Mapping[str, Any], model: str) -> dict[str, Any]:
        """Return what is sent. The provider would keep the answer unless it is told not to."""
        return {**body, "model": model, "store": False}

    def is_answer(self, value: Mapping[str, Any]) -> bool:
        """Return whether there is an output, which may be empty."""
        return isinstance(value.get("output"), list)

    def reply(self, answer: Mapping[str, Any]) -> Reply:
        """Return what all items of the output say, as one message."""
        parts: list[Part] = [part for item in entries(answer.get("output")) for part in message_of(item)["parts"]]
        reason = word(obj(answer.get("incomplete_details")).get("reason"))
        return Reply(
            id=word(answer.get("id")),
            model=word(answer.get("model")),
            message={"role": "assistant", "parts": parts},
            finish_reason=reason or word(answer.get("status")),
            usage=answer.get("usage"),
            tokens=responses_tokens(answer.get("usage")),
        )

    def reader(self, body: Mapping[str, Any], *, is_shown: bool = True) -> StreamReader:
        """Return a follower."""
        return ResponsesReader()

    def answer(self, body: Mapping[str, Any], said: Said) -> dict[str, Any]:
        """Return a response with a message and calls."""
        output: list[dict[str, Any]] = []
        if said.text:
            content = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
            message = {"id": f"msg_{said.id}", "type": "message", "status": "completed", "role": "assistant"}
            output.append({**message, "content": [content]})
        for number, call in enumerate(said.calls):
            output.append(_call(f"fc_{said.id}_{number}", call, _offered(body)))
        return {
            "id": f"resp_{said.id}",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            **{key: usual if body.get(key) is None else body[key] for key, usual in _ECHOED.items()},
            "model": said.model,
            "output": output,
            "previous_response_id": None,
            "store": False,
            "usage": _usage(said.tokens),
        }

    def events(self, answer: Mapping[str, Any]) -> Iterable[ServerEvent]:
        """Return the events from ``response.created`` to the one that ends it."""
        return response_events(answer)

    def error(self, kind: str, code: str | None, message: str) -> dict[str, Any]:
        """Return an error body."""
        return {"error": {"type": kind, "code": code, "message": message, "param": None}}

    def error_events(self, kind: str, code: str | None, message: str) -> list[ServerEvent]:
        """Return the event that OpenAI's clients raise an error for, and the one that others, such as Codex, wait for."""
        error = {"type": "error", "code": code or kind, "message": message, "param": None, "sequence_number": 0}
        failed: dict[str, Any] = {"object": "response", "status": "failed", "output": [], "usage": None}
        failed["error"] = {"code": code or kind, "message": message}
        last = {"type": "response.failed", "sequence_number": 1, "response": {"id": "resp_failed", **failed}}
        return [
            ServerEvent(dump({**error, **self.error(kind, code, message)}), "error"),
            ServerEvent(dump(last), "response.failed"),
        ]


def _check_tools(tools: Iterable[Mapping[str, Any]], hosted: frozenset[str]) -> None:
    for tool in tools:
        rules.refuse_disguised(tool)
        kind = word(tool.get("type"))
        if kind == "namespace":
            _check_tools(entries(tool.get("tools")), hosted)
        elif not (_runs_at_the_agent(kind, tool) or rules.is_listed(kind, hosted)):
            raise rules.hosted_tool(tool.get("type"))


def _runs_at_the_agent(kind: str | None, tool: Mapping[str, Any]) -> bool:
    if kind == "shell":
        environment = tool.get("environment")
        return environment is None or obj(environment).get("type") == "local"
    if kind == "tool_search":
        return tool.get("execution") == "client"
    return kind in ("function", "custom") or kind in CLIENT_TOOLS


def _check_item(item: Mapping[str, Any], hosted: frozenset[str]) -> None:
    if kind_of(item) in ("", "item_reference"):
        msg = f"{rules.STATE}: send the items of `input` themselves, not their ids"
        raise Refusal(400, "unsupported", msg, code="item_reference", finding=True)
    for name in ("content", "output"):
        rules.refuse_far_parts(item.get(name), hosted)


def _steady(item: Mapping[str, Any]) -> dict[str, Any]:
    if kind_of(item) != "message":
        return dict(item)
    text_type = "output_text" if item.get("role") == "assistant" else "input_text"
    return {**steady(item, text_type), "type": "message"}


def _call(item_id: str, call: tuple[str, str, str], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a call in the form of the tool that it names: a tool of free text gets its ``input``, one of a namespace says so."""
    call_id, name, arguments = call
    item = {"id": item_id, "call_id": call_id, "name": name, "status": "completed"}
    for tool in tools:
        inside = entries(tool.get("tools")) if tool.get("type") == "namespace" else []
        for each in (tool, *inside):
            if each.get("name") != name or each.get("type") == "namespace":
                continue
            if each is not tool:
                item["namespace"] = text(tool.get("name"))
            if each.get("type") == "custom":
                return {**item, "type": "custom_tool_call", "input": free_text(arguments)}
    return {**item, "type": "function_call", "arguments": arguments}


def _offered(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools of a request as they came, those that items add included."""
    added = [tool for item in entries(body.get("input")) for tool in entries(item.get("tools"))]
    return [*entries(body.get("tools")), *added]


def _usage(tokens: Usage) -> dict[str, Any]:
    sent = tokens.uncached_input + tokens.cache_read + tokens.cache_write
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": sent + tokens.output,
    }


RESPONSES: Dialect = ResponsesDialect()
