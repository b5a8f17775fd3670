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
_VERSION = re.compile(r"(_preview)?(_\d{8}|_\d{4}_\d{2}_\d{2})?$")


def refuse_fields(body: Mapping[str, Any], *, more: Mapping[str, str] | None = None, taken: Iterable[str] = ()) -> None:
    """Refuse a request with fields of which none is taken, but for those in ``taken``. Raises Refusal, with a finding."""
    if not any(body.get("stream") is each for each in (None, True, False)):
        # A provider may take for a wish what we take for none.
        raise Refusal(400, "invalid_request", "`stream` must be true or false")
    named = {name: why for name in body for prefix, why in _PREFIXES.items() if name.startswith(prefix)}
    table = {**_FIELDS, **named, **(more or {})}
    for name, way_out in table.items():
        if name not in taken and body.get(name) not in (None, False, []):
            raise unsupported(name, way_out)


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
    return tools or []


def is_listed(kind: str | None, hosted: frozenset[str]) -> bool:
    """Return whether the task lists a tool, by its whole type or without the version: ``web_search`` for ``web_search_20250305``."""
    return kind is not None and (kind in hosted or _VERSION.sub("", kind) in hosted)


def hosted_tool(kind: Any) -> Refusal:
    """Return the refusal of a tool that runs at the provider, or of one that nobody knows."""
    shown = printable(str(kind), 60)
    msg = f"tools that run at the provider are not allowed here, and {shown!r} is one; the task would have to list it in `hosted_tools`"
    return Refusal(400, "hosted_tool", msg, code="tools", finding=True)


def refuse_file_ids(part: Mapping[str, Any], where: Mapping[str, Any]) -> None:
    """Refuse a part of a message that names a file which the provider keeps. Raises Refusal."""
    for holder in (part, where):
        for name in ("file_id", "container_id"):
            if holder.get(name) is not None:
                raise Refusal(
                    400, "unsupported", f"{STATE}: send the file itself, not its `{name}`", code=name, finding=True
                )
