"""MCP servers of a team that only the gateway reaches (streamable HTTP): each of their tools is offered as ``NAME_TOOL``.

One session is made for each launch, at its first call. What tools there are is asked when a launch is made, and kept for a minute.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import aiohttp
import orjson

from orchestrator.errors import StoreError
from orchestrator.gateway.config import ProviderConfig
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.toolbox import Effect, Tool, ToolAnswer
from orchestrator.gateway.worlds.api import MOST_ANSWER, bounded, credentials, hidden, unreachable
from orchestrator.gateway.worlds.tools import check
from orchestrator.spec.task import McpUpstream

_PROTOCOL = "2025-06-18"
_KEPT_SECONDS = 60.0
_MOST_TOOLS = 200
_MOST_PAGES = 20
_TOLD = 4000


class McpError(Exception):
    """The server's answer is an error, or none."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class OfferedTool:
    """A tool of a server."""

    name: str
    description: str
    schema: dict[str, Any]


class McpSession:
    """A conversation with one server by JSON-RPC over HTTP."""

    def __init__(self, server: ProviderConfig, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session
        self._ids = itertools.count(1)
        self._headers = {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            **credentials(server),
        }
        self._lock = asyncio.Lock()
        self._begun = False

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request. Raises McpError, aiohttp.ClientError, TimeoutError."""
        async with self._lock:
            if not self._begun:
                hello = {
                    "protocolVersion": _PROTOCOL,
                    "capabilities": {},
                    "clientInfo": {"name": "orchestrate", "version": "1"},
                }
                result = await self._send("initialize", hello)
                self._headers["MCP-Protocol-Version"] = str(result.get("protocolVersion", _PROTOCOL))[:40]
                await self._send("notifications/initialized", None)
                self._begun = True
        return await self._send(method, params)

    async def _send(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        number = None if params is None else next(self._ids)
        message = {"jsonrpc": "2.0", "method": method, **({} if number is None else {"id": number, "params": params})}
        timeout = aiohttp.ClientTimeout(total=self._server.timeout_seconds)
        async with self._session.post(
            self._server.base_url, json=message, headers=self._headers, allow_redirects=False, timeout=timeout
        ) as response:
            if (made := response.headers.get("Mcp-Session-Id")) is not None:
                self._headers["Mcp-Session-Id"] = made[:200]
            data = await bounded(response)
            if data is None:
                raise McpError(f"the answer has more than {MOST_ANSWER} bytes")
            data = hidden(self._server, data)
            if response.status >= 400:
                raise McpError(data.decode("utf-8", "replace")[:_TOLD] or f"status {response.status}", response.status)
            return {} if number is None else _result(data, response.content_type, number)


def _result(data: bytes, kind: str, number: int) -> dict[str, Any]:
    """Return the result for a request, out of JSON or of a stream of events. Raises McpError."""
    texts = [data]
    if kind == "text/event-stream":
        events = data.replace(b"\r\n", b"\n").split(b"\n\n")
        lines = [
            [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
            for event in events
        ]
        texts = [b"\n".join(each) for each in lines if each]
    for text in texts:
        try:
            said = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        if isinstance(said, dict) and said.get("id") == number:
            error = said.get("error")
            if isinstance(error, dict):
                raise McpError(str(error.get("message"))[:_TOLD])
            result = said.get("result")
            return result if isinstance(result, dict) else {}
    raise McpError("the answer is none of this protocol")


class McpCatalogue:
    """What tools servers have, asked once a minute for all launches."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._kept: dict[str, tuple[float, tuple[OfferedTool, ...]]] = {}
        self._lock = asyncio.Lock()

    async def tools(self, name: str, server: ProviderConfig) -> tuple[OfferedTool, ...]:
        """Return the tools of a server. Raises StoreError when it cannot be asked."""
        async with self._lock:
            at, found = self._kept.get(name, (0.0, ()))
            if found and time.monotonic() - at < _KEPT_SECONDS:
                return found
            try:
                found = await self._asked(McpSession(server, self._session))
            except (McpError, aiohttp.ClientError, TimeoutError) as error:
                msg = f"the tools of upstream {name} cannot be listed: {type(error).__name__}: {str(error)[:300]}"
                raise StoreError(msg, cause="upstream_unreachable") from error
            self._kept[name] = time.monotonic(), found
            return found

    async def _asked(self, session: McpSession) -> tuple[OfferedTool, ...]:
        found: list[OfferedTool] = []
        cursor: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            page = await session.ask("tools/list", cursor)
            listed = page.get("tools")
            for each in listed if isinstance(listed, list) else ():
                if isinstance(each, dict) and isinstance(each.get("name"), str):
                    schema = each.get("inputSchema")
                    shape = (
                        schema if isinstance(schema, dict) and isinstance(schema.get("properties", {}), dict) else {}
                    )
                    found.append(
                        OfferedTool(each["name"], str(each.get("description") or ""), {"properties": {}, **shape})
                    )
            following = page.get("nextCursor")
            if not isinstance(following, str) or not following or len(found) > _MOST_TOOLS:
                break
            cursor = {"cursor": following}
        return tuple(found[:_MOST_TOOLS])


def mcp_tools(
    launch: Launch,
    name: str,
    spec: McpUpstream,
    offered: Sequence[OfferedTool],
    connection: tuple[ProviderConfig, aiohttp.ClientSession],
) -> list[Tool]:
    """Return the tools of a server that a task may use; all share one session."""
    server, session = connection
    talk = McpSession(server, session)
    chosen = [tool for tool in offered if any(fnmatchcase(tool.name, pattern) for pattern in spec.tools)]
    return [_tool(launch, name, tool, talk, server) for tool in chosen]


def _tool(launch: Launch, upstream: str, offered: OfferedTool, talk: McpSession, server: ProviderConfig) -> Tool:
    name = f"{upstream}_{offered.name}"

    def prepare(arguments: dict[str, Any]) -> Effect:
        check(name, arguments, offered.schema)

        async def call() -> ToolAnswer:
            try:
                return _answer(await talk.ask("tools/call", {"name": offered.name, "arguments": arguments}))
            except aiohttp.ClientConnectorError as error:
                return unreachable(launch, upstream, error)
            except TimeoutError:
                message = f"{upstream} did not answer within {server.timeout_seconds:g} s"
                return ToolAnswer(outcome="timeout", kind="timeout", message=message)
            except McpError as error:
                return ToolAnswer(outcome="error", kind="mcp_error", message=str(error), code=502)
            except aiohttp.ClientError as error:
                message = f"the connection to {upstream} broke: {type(error).__name__}"
                return ToolAnswer(outcome="error", kind="broken", message=message)

        return call

    return Tool(
        name=name,
        description=offered.description,
        schema={**offered.schema, "type": "object"},
        prepare=prepare,
        seconds=server.timeout_seconds + 5,
    )


def _answer(result: dict[str, Any]) -> ToolAnswer:
    content = result.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    text = "\n".join(str(part.get("text")) for part in parts if part.get("type") == "text")
    if result.get("isError") is True:
        return ToolAnswer(outcome="error", kind="tool_error", message=text[:_TOLD] or "the tool failed", code=502)
    structured = result.get("structuredContent")
    return ToolAnswer(data=structured if isinstance(structured, dict) else {"text": text})
