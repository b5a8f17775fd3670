"""What an agent can ask of the gateway, with its own launch's token. Read this beside ``completion``."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Awaitable, Callable

from aiohttp import web

from orchestrator.gateway.body import REQUEST_SECONDS, read_json
from orchestrator.gateway.completion import complete, count_tokens
from orchestrator.gateway.conversation import NEXT, next_turn, show_conversation
from orchestrator.gateway.conversation import PATH as CONVERSATION
from orchestrator.gateway.dialects.base import Dialect
from orchestrator.gateway.dialects.known import BY_PATH
from orchestrator.gateway.egress import proxy_token
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.model_list import PATH as MODELS
from orchestrator.gateway.model_list import list_models
from orchestrator.gateway.pass_on import UPSTREAM, pass_on
from orchestrator.gateway.passed_headers import passed_headers
from orchestrator.gateway.refusal import ErrorShape, Refusal
from orchestrator.gateway.tokens import TokenMint, bearer
from orchestrator.gateway.tools import list_tools, post_tool

log = logging.getLogger(__name__)

_MCP = "orchestrator.gateway.mcp_server"

_COUNT_TOKENS = "/count_tokens"
_ELSEWHERE = {
    "/v1/completions": "plain completions",
    "/v1/files": "state at the provider",
    "/v1/batches": "state at the provider",
    "/v1/messages/batches": "state at the provider",
    "/v1/conversations": "state at the provider",
    "/v1/vector_stores": "state at the provider",
    "/v1/assistants": "state at the provider",
    "/v1/threads": "state at the provider",
    "/v1/containers": "tools that run at the provider",
    "/v1/images": "images as answers",
    "/v1/audio": "sound",
    "/v1/realtime": "sound",
}
"""Beginnings of endpoints that exist elsewhere: refused by name."""


_COUNTED = {f"{path}{_COUNT_TOKENS}": dialect for path, dialect in BY_PATH.items() if dialect.name == "messages"}
"""Where the tokens of a request are counted."""


class AgentSide:
    """Answers the requests of all agents."""

    def __init__(self, mint: TokenMint) -> None:
        self._mint = mint

    def handler(self, launch: Launch) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        """Return the request handler of one launch's listener."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await self.answer(launch, request)

        return handle

    async def answer(self, launch: Launch, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request that came from the launch's sandbox. Nothing is raised."""
        what = f"{printable(request.method, 20)} {printable(_target(request), 100)}"
        try:
            return await self._route(launch, request)
        except Refusal as refusal:
            launch.refused(refusal, what)
            return refusal.response(launch.meter.left(), _shape(request.path))
        except Exception:  # any fault of ours here must end this launch as infrastructure, and nothing else
            log.exception("fault while answering %s for launch %s", what, launch.id)
            launch.findings.add("gateway_fault", what)
            launch.end("model_api_error")
            fault = Refusal(500, "gateway_fault", "the gateway failed; this trial will be run again")
            return fault.response(shape=_shape(request.path))

    async def _route(self, launch: Launch, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        await launch.buffered.share.take(REQUEST_SECONDS)
        if (method, path) == ("GET", "/healthz"):
            return web.json_response({"ok": True})
        self._authorise(launch, request)
        if method == "CONNECT":
            return await _connect(launch, request)
        if not request.raw_path.startswith("/"):
            msg = "only `https` goes through the proxy (CONNECT); plain `http` to other hosts is not passed on"
            raise Refusal(403, "egress_not_allowed", msg, finding=True, close=True)
        if path == "/mcp" or path.startswith(UPSTREAM):
            return await (_mcp if path == "/mcp" else pass_on)(launch, request)
        if method == "GET":
            return await _get(launch, request)
        dialect = _dialect(path)
        if method != "POST" or not (dialect or path.startswith("/tools/") or path == NEXT):
            raise _unknown(method, path)
        with launch.buffered.holding() as holding:
            body = await read_json(request, launch.config.limits, holding)
            if launch.sealing:
                raise _over()
            if dialect is None:
                named = path.removeprefix("/tools/")
                return await (next_turn(launch, body) if path == NEXT else post_tool(launch, named, body))
            headers = passed_headers(request.headers, dialect, launch.hosted, launch.findings)
            if path.endswith(_COUNT_TOKENS):
                return await count_tokens(launch, dialect, body, headers)
            return await complete(launch, dialect, request, body, headers, holding.size)

    def _authorise(self, launch: Launch, request: web.BaseRequest) -> None:
        token = shown_token(request)
        if not token:
            msg = "there is no token; send the value of ORCHESTRATE_TOKEN as `Authorization: Bearer …`"
            raise Refusal(401, "no_token", msg, finding=True, close=True)
        claim = self._mint.read(token)
        if claim is None:
            msg = "the token is not one of this gateway's or is too old"
            raise Refusal(401, "bad_token", msg, finding=True, close=True)
        if claim.role != "agent" or claim.launch != launch.id or claim.generation != launch.generation:
            msg = "the token is for something else"
            raise Refusal(403, "wrong_token", msg, finding=True, close=True)
        if launch.sealing:
            raise _over()
        launch.unheard = False


async def _mcp(launch: Launch, request: web.BaseRequest) -> web.StreamResponse:
    if _MCP not in sys.modules:  # the protocol's types take 0.15 s to load, which nobody else shall wait for
        await asyncio.to_thread(importlib.import_module, _MCP)
    from orchestrator.gateway.mcp_server import answer_mcp

    return await answer_mcp(launch, request)


def shown_token(request: web.BaseRequest) -> str:
    """Return the token that a request shows: to a proxy it comes in a header of its own."""
    if request.method == "CONNECT" or not request.raw_path.startswith("/"):
        return proxy_token(request.headers.get("Proxy-Authorization"))
    return bearer(request.headers.get("Authorization"), request.headers.get("x-api-key"))


def _target(request: web.BaseRequest) -> str:
    """Return what is asked for: a path of ours, or the host or address that a proxy is asked for; never the query."""
    return request.path if request.raw_path.startswith("/") else request.raw_path.partition("?")[0]


async def _connect(launch: Launch, request: web.BaseRequest) -> web.StreamResponse:
    if launch.egress is None:
        msg = f"this task has no network (environment.network), so {printable(request.raw_path)} cannot be reached"
        raise Refusal(403, "egress_not_allowed", msg, finding=True, close=True)
    return await launch.egress.connect(request)


async def _get(launch: Launch, request: web.BaseRequest) -> web.StreamResponse:
    path = request.path
    if path == "/tools":
        return await list_tools(launch)
    if path == "/budget":
        return web.json_response({"left": launch.meter.left_in_numbers(), "spent": launch.meter.spent})
    if path == CONVERSATION:
        return show_conversation(launch)
    if path == MODELS or path.startswith(f"{MODELS}/"):
        return list_models(launch, request)
    raise _unknown("GET", path)


def _dialect(path: str) -> Dialect | None:
    """Return the dialect that is spoken at a path."""
    return BY_PATH.get(path) or _COUNTED.get(path)


def _shape(path: str) -> ErrorShape | None:
    """Return the shape of errors that clients of a path read."""
    dialect = _dialect(path)
    return None if dialect is None else dialect.error


def _over() -> Refusal:
    return Refusal(403, "sealed", "the trial is over", finding=True, close=True)


def _unknown(method: str, path: str) -> Refusal:
    elsewhere = next((words for start, words in _ELSEWHERE.items() if f"{path}/".startswith(f"{start}/")), None)
    if elsewhere is not None:
        msg = f"{printable(path, 100)} ({elsewhere}) is not offered here; there are {', '.join(BY_PATH)}"
        return Refusal(404, "unsupported_endpoint", msg, code=path[:100], finding=True, close=method != "GET")
    msg = (
        f"there is no {printable(method, 20)} {printable(path, 100)} here; there are GET /healthz, GET /tools, GET /budget, "
        f"GET {MODELS}, GET {CONVERSATION}, POST {NEXT}, POST /tools/NAME, POST /mcp, POST {', POST '.join(BY_PATH)}"
    )
    return Refusal(404, "not_found", msg, close=method != "GET")
