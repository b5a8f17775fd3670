"""``/mcp``: the gateway's tools over the Model Context Protocol, streamable HTTP.

Requests come through the same front as all others, so token, limits, seal and findings are the same. Messages are checked and written by
the protocol types of the official SDK (``mcp_types``), for each version of the protocol in its own form:

- versions up to 2025-11-25 begin with ``initialize`` and have sessions. A session is optional here, since only cancelling needs it.
- version 2026-07-28 has neither: each request says all about itself, and hanging up cancels.

A request is answered by one message, as JSON or, for a client that takes nothing else, as a stream of one event. The server has nothing to
say by itself, so no stream is held open: ``GET`` is answered with 405, as the protocol provides for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import mcp_types as types
import orjson
from aiohttp import web
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

import orchestrator
from orchestrator.gateway.body import BYTE_SECONDS, read_json
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.sessions import Session
from orchestrator.gateway.toolbox import Tool, ToolAnswer
from orchestrator.gateway.tools import begin_call

_SESSION = "Mcp-Session-Id"
_VERSION = "MCP-Protocol-Version"
_METHOD = "Mcp-Method"
_NAME = "Mcp-Name"
_CANCELLED = -32800
"""Code for a request that was cancelled: older versions end an exchange by an answer only."""
_STATUS = {
    types.PARSE_ERROR: 400,
    types.INVALID_REQUEST: 400,
    types.INVALID_PARAMS: 400,
    types.HEADER_MISMATCH: 400,
    types.UNSUPPORTED_PROTOCOL_VERSION: 400,
    types.METHOD_NOT_FOUND: 404,
}
"""HTTP status of errors from version 2026-07-28 on."""
_LOOK_SECONDS = 0.5
"""How often is looked whether a client has hung up."""
_INSTRUCTIONS = "Tools of the environment that you work in. Call `finish` once, when you are done."


class _ProtocolError(Exception):
    """A request that cannot be answered with a result."""

    def __init__(self, code: int, message: str, *, status: int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        """HTTP status, where it is not the version that decides it."""
        self.data = data


async def answer_mcp(launch: Launch, request: web.BaseRequest) -> web.StreamResponse:
    """Answer a request whose token has been checked. What is refused is recorded here, and told in the protocol's own form."""
    try:
        _check_origin(request)
        if request.method == "DELETE":
            return _end_session(launch, request)
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST, DELETE"})
        as_event = _wants_event(request)
        with launch.buffered.holding() as holding:
            body = await read_json(request, launch.config.limits, holding)
            if launch.sealing:
                raise Refusal(403, "sealed", "the trial is over", finding=True, close=True)
            return await _answer(launch, request, body, as_event=as_event)
    except Refusal as refusal:
        launch.refused(refusal, f"{printable(request.method, 20)} /mcp")
        code = types.PARSE_ERROR if refusal.kind == "invalid_json" else types.INVALID_REQUEST
        response = _error(None, _ProtocolError(code, refusal.message, data={"type": refusal.kind}), refusal.status)
        if refusal.close:
            response.force_close()
        return response


async def _answer(
    launch: Launch, request: web.BaseRequest, body: dict[str, Any], *, as_event: bool
) -> web.StreamResponse:
    version = request.headers.get(_VERSION)
    is_modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
    exchange = _Exchange(launch, request, as_event=as_event)
    try:
        if "id" not in body:
            return exchange.notified(body, is_modern=is_modern)
        if "method" not in body and not is_modern:  # an answer, and nothing was asked
            return web.Response(status=202)
        message = types.JSONRPCRequest.model_validate(body)
    except ValidationError:
        return _error(None, _ProtocolError(types.INVALID_REQUEST, "the body is no JSON-RPC request"), 400)
    except _ProtocolError as error:
        return _error(None, error, error.status or 400)
    try:
        return await (exchange.modern(message) if is_modern else exchange.handshake(message))
    except _ProtocolError as error:
        status = error.status or (_STATUS.get(error.code, 200) if is_modern else 200)
        return _error(message.id, error, status)


class _Exchange:
    """One request of a client and its answer."""

    def __init__(self, launch: Launch, request: web.BaseRequest, *, as_event: bool) -> None:
        self._launch = launch
        self._request = request
        self._as_event = as_event

    def notified(self, body: Mapping[str, Any], *, is_modern: bool) -> web.Response:
        """Take a message that wants no answer. Raises ValidationError and _ProtocolError."""
        notification = types.JSONRPCNotification.model_validate(body)
        if is_modern:
            _check_modern_version(self._request.headers.get(_VERSION))
            return web.Response(status=202)
        session = self._session()
        if notification.method == "notifications/cancelled" and session is not None:
            number = (notification.params or {}).get("requestId")
            task = session.running.get(number) if isinstance(number, int | str) else None
            if task is not None:
                task.cancel()
        return web.Response(status=202)

    async def handshake(self, message: types.JSONRPCRequest) -> web.Response:
        """Answer a request of a version up to 2025-11-25. Raises _ProtocolError."""
        session = self._session()
        header = self._request.headers.get(_VERSION)
        agreed = session.version if session is not None else ""
        version = agreed or header or types.DEFAULT_NEGOTIATED_VERSION
        params = _checked(message, version)
        if message.method == "initialize":
            wanted = params["protocolVersion"]
            version = wanted if wanted in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
            result = _written("initialize", version, _welcome(version))
            return self._result(message, result, {_SESSION: self._launch.tools.sessions.open(version)})
        if message.method == "ping":
            return self._result(message, {})
        return self._result(message, await self._tools(message, params, version, session))

    async def modern(self, message: types.JSONRPCRequest) -> web.Response:
        """Answer a request of version 2026-07-28. Raises _ProtocolError."""
        version = _envelope(message, self._request.headers)
        params = _checked(message, version)
        if message.method == "server/discover":
            found = types.DiscoverResult(
                supported_versions=list(MODERN_PROTOCOL_VERSIONS),
                capabilities=_CAPABILITIES,
                instructions=_INSTRUCTIONS,
            )
            result = _written(message.method, version, found)
        else:
            result = await self._tools(message, params, version, None)
        about = _server().model_dump(by_alias=True, mode="json", exclude_none=True)
        result["_meta"] = {**(result.get("_meta") or {}), types.SERVER_INFO_META_KEY: about}
        return self._result(message, result)

    async def _tools(
        self, message: types.JSONRPCRequest, params: Mapping[str, Any], version: str, session: Session | None
    ) -> dict[str, Any]:
        if message.method == "tools/list":
            if params.get("cursor") is not None:
                raise _ProtocolError(types.INVALID_PARAMS, "there is one page of tools; ask without a cursor")
            result, tools = self._launch.tools.listed(f"mcp {version}", partial(_listed, version))
            await self._launch.buffered.share.take(len(tools) * BYTE_SECONDS)
            return {**result, "tools": orjson.Fragment(tools)}
        if message.method != "tools/call":
            raise _not_there(message.method)
        answer = await self._called(message, params, session, hangs_up=version in MODERN_PROTOCOL_VERSIONS)
        if answer.kind == "cancelled":
            raise _ProtocolError(_CANCELLED, answer.message)
        return _written("tools/call", version, _called(answer))

    async def _called(
        self, message: types.JSONRPCRequest, params: Mapping[str, Any], session: Session | None, *, hangs_up: bool
    ) -> ToolAnswer:
        launch, name = self._launch, params["name"]
        if session is not None and message.id in session.running:
            raise _ProtocolError(types.INVALID_REQUEST, "a request with this id is under way in this session")
        try:
            task = begin_call(launch, name, params.get("arguments") or {}, "mcp")
        except Refusal as refusal:
            launch.refused(refusal, f"tools/call {printable(name, 60)}")
            if refusal.kind == "unknown_tool":
                msg = f"there is no tool {printable(name, 60)!r}; tools/list tells which there are"
                raise _ProtocolError(types.INVALID_PARAMS, msg) from None
            return ToolAnswer(outcome="refused", kind=refusal.kind, message=refusal.message)
        if session is not None:
            session.running[message.id] = task
        try:
            return await (self._or_hung_up(task) if hangs_up else asyncio.shield(task))
        finally:
            if session is not None:
                session.running.pop(message.id, None)

    async def _or_hung_up(self, task: asyncio.Task[ToolAnswer]) -> ToolAnswer:
        """Wait for a call; hanging up cancels it."""
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_SECONDS)
            if not task.done() and self._request.transport is None:
                task.cancel()
                await asyncio.wait({task})
        return task.result()

    def _session(self) -> Session | None:
        """Return the session that the request names; None: it names none. Raises _ProtocolError."""
        name = self._request.headers.get(_SESSION)
        if name is None:
            return None
        session = self._launch.tools.sessions.find(name)
        if session is None:
            msg = "there is no such session, or not any more; send initialize without a session"
            raise _ProtocolError(types.INVALID_REQUEST, msg, status=404)
        return session

    def _result(
        self, message: types.JSONRPCRequest, result: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> web.Response:
        data = orjson.dumps({"jsonrpc": "2.0", "id": message.id, "result": result})
        kind = "text/event-stream" if self._as_event else "application/json"
        body = b"event: message\ndata: " + data + b"\n\n" if self._as_event else data
        left = self._launch.meter.left()
        return web.Response(body=body, content_type=kind, headers={**left, **(headers or {})})


def _error(number: int | str | None, error: _ProtocolError, status: int) -> web.Response:
    """Return an error as JSON, which every client reads whatever it has asked for."""
    told: dict[str, Any] = {"code": error.code, "message": str(error)}
    if error.data is not None:
        told["data"] = error.data
    data = orjson.dumps({"jsonrpc": "2.0", "id": number, "error": told})
    return web.Response(body=data, status=status, content_type="application/json")


def _end_session(launch: Launch, request: web.BaseRequest) -> web.Response:
    name = request.headers.get(_SESSION)
    if name is None:
        return _error(None, _ProtocolError(types.INVALID_REQUEST, f"the header {_SESSION} is missing"), 400)
    return web.Response(status=204 if launch.tools.sessions.close(name) else 404)


def _check_origin(request: web.BaseRequest) -> None:
    """Refuse a page of another site that a browser has been led to send from. Raises Refusal."""
    origin = request.headers.get("Origin")
    if origin is None:
        return
    try:
        host = urlsplit(origin).netloc
    except ValueError:
        host = ""
    if not host or host != request.headers.get("Host"):
        msg = f"requests from pages of {printable(origin, 100)} are not taken"
        raise Refusal(403, "wrong_origin", msg, finding=True, close=True)


def _wants_event(request: web.BaseRequest) -> bool:
    """Return whether the client takes nothing but a stream. Raises Refusal."""
    accepted = {part.split(";")[0].strip().lower() for part in request.headers.get("Accept", "*/*").split(",")}
    if accepted & {"*/*", "application/*", "application/json"}:
        return False
    if accepted & {"text/*", "text/event-stream"}:
        return True
    raise Refusal(406, "not_acceptable", "answers are application/json or text/event-stream", close=True)


def _checked(message: types.JSONRPCRequest, version: str) -> dict[str, Any]:
    """Return the parameters of a request that is right in a version of the protocol. Raises _ProtocolError."""
    try:
        methods.validate_client_request(message.method, version, message.params)
    except KeyError:
        raise _not_there(message.method) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = printable(".".join(map(str, first["loc"])), 100)
        raise _ProtocolError(types.INVALID_PARAMS, f"{where}: {printable(first['msg'], 200)}") from None
    return message.params or {}


def _envelope(message: types.JSONRPCRequest, headers: Mapping[str, str]) -> str:
    """Return the version that a request of the newer kind says it has, in its headers and in itself. Raises _ProtocolError."""
    params = message.params or {}
    meta = params.get("_meta")
    needed = (types.PROTOCOL_VERSION_META_KEY, types.CLIENT_CAPABILITIES_META_KEY)
    missing = [key for key in needed if not isinstance(meta, dict) or key not in meta]
    if missing:
        raise _ProtocolError(types.INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    assert isinstance(meta, dict)  # noqa: S101 - for the type checker: what lacks nothing is one
    mirrored = {_VERSION: meta[types.PROTOCOL_VERSION_META_KEY], _METHOD: message.method}
    if message.method == "tools/call":
        mirrored[_NAME] = params.get("name")
    for header, value in mirrored.items():
        if headers.get(header) != value:
            msg = f"the header {header} does not say what the body says"
            raise _ProtocolError(types.HEADER_MISMATCH, msg)
    return _check_modern_version(headers.get(_VERSION))


def _check_modern_version(version: str | None) -> str:
    if version is None or version not in MODERN_PROTOCOL_VERSIONS:
        supported = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": printable(str(version), 60)}
        raise _ProtocolError(types.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data=supported)
    return version


def _written(method: str, version: str, result: BaseModel) -> dict[str, Any]:
    """Return a result in the form that a version of the protocol gives it."""
    data = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return methods.serialize_server_result(method, version, data)


def _not_there(method: str) -> _ProtocolError:
    return _ProtocolError(types.METHOD_NOT_FOUND, f"Method not found: {printable(method, 60)}")


_CAPABILITIES = types.ServerCapabilities(tools=types.ToolsCapability())


def _server() -> types.Implementation:
    return types.Implementation(name="orchestrate", version=orchestrator.__version__)


def _welcome(version: str) -> types.InitializeResult:
    return types.InitializeResult(
        protocol_version=version, capabilities=_CAPABILITIES, server_info=_server(), instructions=_INSTRUCTIONS
    )


def _listed(version: str, tools: Sequence[Tool]) -> tuple[dict[str, Any], bytes]:
    """Return a list of tools, and the tools in it as they are written."""
    result = _written("tools/list", version, types.ListToolsResult(tools=[_described(tool) for tool in tools]))
    return result, orjson.dumps(result["tools"])


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(destructive_hint=tool.destructive, open_world_hint=False),
    )


def _called(answer: ToolAnswer) -> types.CallToolResult:
    is_error = answer.outcome != "ok"
    told: dict[str, Any] = {"error": {"type": answer.kind, "message": answer.message}} if is_error else answer.data
    content = [types.TextContent(type="text", text=answer.text)]
    return types.CallToolResult(content=list(content), structured_content=told, is_error=is_error)
