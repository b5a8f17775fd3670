"""Items of the Responses API, in requests and in answers, in the one form of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from orchestrator.gateway.dialects.shape import (
    call_part,
    entries,
    media_part,
    obj,
    other_part,
    reasoning_part,
    result_part,
    text,
    text_part,
    word,
)
from orchestrator.records.message import Message, Part, Role, Tool

CLIENT_CALLS = {
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "computer_call": ("computer", "action"),
}
"""Calls of tools that the provider knows and the agent runs: the tool's name and where the arguments are."""
CALLS = {"function_call", "custom_tool_call", *CLIENT_CALLS}
"""Types of all items that ask the agent for a tool."""
CLIENT_TOOLS = {
    "local_shell": "local_shell",
    "apply_patch": "apply_patch",
    "computer": "computer",
    "computer_use_preview": "computer",
}
"""Types of those tools, but for those of which only some forms are the agent's, with their names."""
_RESULTS = {"function_call_output", "custom_tool_call_output", *(f"{kind}_output" for kind in CLIENT_CALLS)}
_ROLES: dict[Any, Role] = {role: role for role in get_args(Role)}


def kind_of(item: Mapping[str, Any]) -> str:
    """Return an item's type. A message may leave it out."""
    return text(item.get("type")) or ("message" if "role" in item else "")


def message_of(item: Mapping[str, Any]) -> Message:
    """Return an item in the one form."""
    kind = kind_of(item)
    if kind == "message":
        return {"role": _ROLES.get(word(item.get("role")), "user"), "parts": content_parts(item.get("content"))}
    if kind in _RESULTS:
        return {"role": "tool", "parts": [_result(item)]}
    role = _ROLES.get(word(item.get("role")), "user" if kind.endswith("_output") else "assistant")
    return {"role": role, "parts": [_other(kind, item)]}


def content_parts(content: Any) -> list[Part]:
    """Return the parts of a message's content or of a result's output."""
    if isinstance(content, str):
        return [text_part(content)] if content else []
    return [_part(part) for part in entries(content)]


def tools_of(tools: Any) -> Iterator[Tool]:
    """Return tools in the one form, those of a namespace one by one."""
    for tool in entries(tools):
        kind = text(tool.get("type"))
        if kind == "namespace":
            yield from tools_of(tool.get("tools"))
            continue
        usual = CLIENT_TOOLS.get(kind, kind if kind in ("shell", "tool_search") else None)
        yield {
            "name": word(tool.get("name")) or usual,
            "type": kind,
            "description": word(tool.get("description")),
            "schema": tool.get("parameters"),
        }


def _other(kind: str, item: Mapping[str, Any]) -> Part:
    if kind == "function_call":
        return call_part(item.get("call_id"), item.get("name"), item.get("arguments"))
    if kind == "custom_tool_call":
        return call_part(item.get("call_id"), item.get("name"), item.get("input"))
    if kind in CLIENT_CALLS:
        name, field = CLIENT_CALLS[kind]
        return call_part(item.get("call_id") or item.get("id"), name, item.get(field) or item.get(f"{field}s"))
    if kind == "reasoning":
        thoughts = [*entries(item.get("summary")), *entries(item.get("content"))]
        return reasoning_part("\n".join(text(thought.get("text")) for thought in thoughts))
    return other_part(kind, dict(item))


def _result(item: Mapping[str, Any]) -> Part:
    output = item.get("output")
    parts = [_part(output)] if isinstance(output, dict) else content_parts(output)
    return result_part(item.get("call_id") or item.get("id"), parts, is_error=item.get("status") == "failed")


def _part(part: Mapping[str, Any]) -> Part:
    kind = text(part.get("type"))
    match kind:
        case "input_text" | "output_text" | "text" | "summary_text":
            return text_part(text(part.get("text")))
        case "refusal":
            return other_part("refusal", part.get("refusal"))
        case "input_image" | "computer_screenshot":
            return media_part("image/*", url=part.get("image_url"))
        case "input_audio":
            sound = obj(part.get("input_audio"))
            return media_part(f"audio/{text(sound.get('format')) or '*'}", data=sound.get("data"))
        case "input_file":
            data = text(part.get("file_data"))
            if data and not data.startswith("data:"):
                return media_part("application/octet-stream", data=data)
            return media_part("application/octet-stream", url=data or part.get("file_url"))
    if "stdout" in part or "stderr" in part:
        return text_part(text(part.get("stdout")) + text(part.get("stderr")))
    return other_part(kind, dict(part))
