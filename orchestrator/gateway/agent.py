"""What an agent can ask of the gateway, with its own launch's token. Read this beside ``chat``."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Awaitable, Callable

from aiohttp import web

from orchestrator.gateway.body import read_json
from orchestrator.gateway.chat import chat
from orchestrator.gateway.egress import proxy_token
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.tokens import TokenMint, bearer
from orchestrator.gateway.tools import list_tools, post_tool

log = logging.getLogger(__name__)

_MCP = "orchestrator.gateway.mcp_server"

_LATER = {
    "/v1/responses": "the Responses API",
    "/v1/messages": "the Messages API",
    "/v1/messages/count_tokens": "token counting",
    "/v1/embeddings": "embeddings",
    "/v1/completions": "plain completions",
}
"""Endpoints that exist elsewhere: refused by name."""


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
        what = f"{printable(request.method, 20)} {printable(request.path, 100)}"
        try:
            return await self._route(launch, request)
        except Refusal as refusal:
            launch.refused(refusal, what)
            return refusal.response(launch.meter.left())
        except Exception:  # any fault of ours here must end this launch as infrastructure, and nothing else
            log.exception("fault while answering %s for launch %s", what, launch.id)
            launch.findings.add("gateway_fault", what)
            launch.end("model_api_error")
            return Refusal(500, "gateway_fault", "the gateway failed; this trial will be run again").response()

    async def _route(self, launch: Launch, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        if (method, path) == ("GET", "/healthz"):
            return web.json_response({"ok": True})
        self._authorise(launch, request)
        if method == "CONNECT":
            return await _connect(launch, request)
        if not request.raw_path.startswith("/"):
            msg = "only `https` goes through the proxy (CONNECT); plain `http` to other hosts is not passed on"
            raise Refusal(403, "egress_not_allowed", msg, finding=True, close=True)
        if (method, path) == ("GET", "/tools"):
            return list_tools(launch)
        if (method, path) == ("GET", "/v1/models"):
            return _models(launch)
        if path == "/mcp":
            return await _mcp(launch, request)
        if method == "POST" and (path == "/v1/chat/completions" or path.startswith("/tools/")):
            with launch.buffered.holding() as holding:
                body = await read_json(request, launch.config.limits, holding)
                if launch.sealing:
                    raise _over()
                if path == "/v1/chat/completions":
                    return await chat(launch, body)
                return await post_tool(launch, path.removeprefix("/tools/"), body)
        raise _unknown(method, path)

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


async def _connect(launch: Launch, request: web.BaseRequest) -> web.StreamResponse:
    if launch.egress is None:
        msg = f"this task has no network (environment.network), so {printable(request.raw_path)} cannot be reached"
        raise Refusal(403, "egress_not_allowed", msg, finding=True, close=True)
    return await launch.egress.connect(request)


def _models(launch: Launch) -> web.Response:
    data = [
        {"id": model, "object": "model", "created": 0, "owned_by": model.partition("/")[0]}
        for model in sorted(set(launch.body.models.values()))
    ]
    return web.json_response({"object": "list", "data": data})


def _over() -> Refusal:
    return Refusal(403, "sealed", "the trial is over", finding=True, close=True)


def _unknown(method: str, path: str) -> Refusal:
    if path in _LATER:
        msg = f"{path} ({_LATER[path]}) is not offered by this version; use /v1/chat/completions"
        return Refusal(404, "unsupported_endpoint", msg, code=path, close=method != "GET")
    msg = (
        f"there is no {printable(method, 20)} {printable(path, 100)} here; there are GET /healthz, GET /tools, GET /v1/models, "
        "POST /tools/NAME, POST /mcp, POST /v1/chat/completions"
    )
    return Refusal(404, "not_found", msg, close=method != "GET")
