"""What no request may ask, whatever its shape: state at the provider, tools that run there, ways around the agent's models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.gateway.findings import printable
from orchestrator.gateway.refusal import Refusal

STATE = "state at the provider is not allowed"
_RUNS = "it runs a tool at the provider"
_ROUTE = "the gateway knows where calls go"
_FIELDS = {
    "previous_response_id": STATE,
    "conversation": STATE,
    "cached_content": STATE,
    "background": STATE,
    "deferred": STATE,
    "vector_store_ids": STATE,
    "prompt_id": "send its text instead of an id",
    "data_sources": _RUNS,
    "compound_custom": _RUNS,
    "search_settings": _RUNS,
    "user_config": _ROUTE,
    "deployment_id": _ROUTE,
    "organization": _ROUTE,
    "cache": "every trial asks the model anew",
    "caching": "every trial asks the model anew",
    "plugins": "they run at the provider",
    "search_parameters": _RUNS,
    "enable_search": _RUNS,
    "web_search": _RUNS,
    "mcp_servers": "they are called by the provider",
    "models": "name one model in `model`",
    "fallbacks": "name one model in `model`",
    "context_window_fallbacks": "name one model in `model`",
    "content_policy_fallbacks": "name one model in `model`",
    "model_list": "name one model in `model`",
    "route": _ROUTE,
    "provider": _ROUTE,
    "preset": _ROUTE,
    "api_base": _ROUTE,
    "base_url": _ROUTE,
    "api_version": _ROUTE,
    "custom_llm_provider": _ROUTE,
    "headers": "the gateway knows the provider's headers",
    "extra_headers": "the gateway knows the provider's headers",
    "extra_query": _ROUTE,
    "extra_body": "send its fields beside the others",
    "api_key": "the gateway holds the provider's key",
}
"""Fields of several vendors and proxies."""
_PREFIXES = {
    "litellm_": _ROUTE,
    "aws_": _ROUTE,
    "vertex_": _ROUTE,
    "azure_": _ROUTE,
    "mock_": "answers come from the model",
}
"""Beginnings of names by which proxies take keys, addresses, models and answers."""
_GUARDED = frozenset(
    {"model", "store", "stream", "messages", "input", "system", "instructions", "tools", "n", "audio", "type"}
)
"""Fields whose values are looked at."""
_KEPT = frozenset({"file_id", "container_id"})
_DATA = frozenset({"file_data", "data"})
"""Fields that hold bytes as base64, and an address at some providers."""
_FETCH = "web_fetch"
"""The tool by which a task allows that a provider fetches something."""
_PARTS_IN = frozenset({"content", "output", "source", "file"})
"""Fields of messages and parts that hold parts."""
_VERSION = re.compile(r"(_preview)?(_\d{8}|_\d{4}_\d{2}_\d{2})?$")


def refuse_fields(body: Mapping[str, Any], *, more: Mapping[str, str] | None = None, taken: Iterable[str] = ()) -> None:
    """Refuse a request with fields of which none is taken, but for those in ``taken``. Raises Refusal, with a finding."""
    if not any(body.get("stream") is each for each in (None, True, False)):
        # A provider may take for a wish what we take for none.
        raise Refusal(400, "invalid_request", "`stream` must be true or false")
    named = {name: why for name in body for prefix, why in _PREFIXES.items() if name.startswith(prefix)}
    table = {**_FIELDS, **named, **(more or {})}
    refuse_disguised(body, table)
    for name, way_out in table.items():
        if name not in taken and body.get(name) not in (None, False, []):
            raise unsupported(name, way_out)


def refuse_disguised(given: Mapping[str, Any], more: Iterable[str] = ()) -> None:
    """Refuse fields that are spelled as others but for the case: some providers (Go's encoding/json) read them as these. Raises Refusal."""
    known = {*_GUARDED, *more}
    for name in given:
        folded = name.casefold()
        if folded != name and (folded in known or folded.startswith(tuple(_PREFIXES))):
            raise unsupported(name, f"spell it {folded!r}")


def unsupported(name: str, way_out: str, *, finding: bool = True) -> Refusal:
    """Return the refusal of a field."""
    shown = printable(name, 100)
    return Refusal(400, "unsupported", f"`{shown}` is not supported: {way_out}", code=shown, finding=finding)


def refuse_store(body: Mapping[str, Any]) -> None:
    """Refuse to have the provider keep the answer. Raises Refusal."""
    if body.get("store"):
        raise Refusal(400, "unsupported", f"{STATE}: send `store: false`", code="store", finding=True)


def check_list(body: Mapping[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    """Return a list of objects, with at least one and at most ``most``. Raises Refusal."""
    found = body.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(entry, dict) for entry in found):
        raise Refusal(400, "invalid_request", f"`{name}` must be a list of objects with at least one")
    if len(found) > most:
        msg = f"`{name}` has {len(found)} entries, at most {most} are taken; shorten the conversation"
        raise Refusal(413, "request_too_large", msg, finding=True)
    return found


def check_tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the offered tools. Raises Refusal when they are no list of objects."""
    tools = body.get("tools")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise Refusal(400, "invalid_request", "`tools` must be a list of objects")
    for tool in tools or []:
        refuse_disguised(tool)
    return tools or []


def is_listed(kind: str | None, hosted: frozenset[str]) -> bool:
    """Return whether the task lists a tool, by its whole type or without the version: ``web_search`` for ``web_search_20250305``."""
    return kind is not None and (kind in hosted or _VERSION.sub("", kind) in hosted)


def hosted_tool(kind: Any) -> Refusal:
    """Return the refusal of a tool that runs at the provider, or of one that nobody knows."""
    shown = printable(str(kind), 60)
    msg = f"tools that run at the provider are not allowed here, and {shown!r} is one; the task would have to list it in `hosted_tools`"
    return Refusal(400, "hosted_tool", msg, code="tools", finding=True)


def refuse_far_parts(holder: Any, hosted: frozenset[str]) -> None:
    """Refuse parts of a message that name a file which the provider keeps, or an address that the provider would fetch.

    Whatever the provider fetches is a way out of a sandbox that has none, and into networks that the provider is in. Looks at what parts
    are made of, and not into arguments and texts, which may say anything. Raises Refusal.
    """
    todo = [holder]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            for key, inner in value.items():
                name = key.casefold()
                if name in _KEPT and inner is not None:
                    msg = f"{STATE}: send the file itself, not its `{name}`"
                    raise Refusal(400, "unsupported", msg, code=name, finding=True)
                if _is_far(name, inner, value) and _FETCH not in hosted:
                    msg = f"`{name}` has an address that the provider would fetch: send the data itself (`data:…;base64,…`)"
                    raise Refusal(400, "unsupported", msg, code=name[:100], finding=True)
                if name in _PARTS_IN:
                    todo.append(inner)


def _is_far(name: str, value: Any, part: Mapping[str, Any]) -> bool:
    """Return whether a field of a part is an address of something that is elsewhere."""
    inner = [each for key, each in value.items() if key.casefold() == "url"] if isinstance(value, dict) else [value]
    said = [each for each in inner if isinstance(each, str) and not each.startswith("data:")]
    if name in _DATA:
        return any(":" in each.lstrip()[:64] for each in said)
    return bool(said) and (name.endswith("_url") or (name == "url" and part.get("type") == "url"))
