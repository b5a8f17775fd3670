"""``/upstream/NAME/PATH``: a task's HTTP API for agents that speak HTTP. It is the same call as that of the tool NAME."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from pydantic import JsonValue

from orchestrator.gateway.body import read_json
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.toolbox import ToolAnswer
from orchestrator.gateway.tools import begin_call, tool_response

UPSTREAM = "/upstream/"


async def pass_on(launch: Launch, request: web.BaseRequest) -> web.Response:
    """Do a request to an API; its body, if it has one, must be a JSON object. Raises Refusal."""
    name, _, path = request.path.removeprefix(UPSTREAM).partition("/")
    if name not in launch.apis:
        there = ", ".join(sorted(launch.apis)) or "none"
        msg = f"this task has no such upstream; there are: {there}"
        raise Refusal(404, "unknown_upstream", msg)
    query = dict(request.query)
    arguments: dict[str, Any] = {"method": request.method, "path": f"/{path}", **({"query": query} if query else {})}
    with launch.buffered.holding() as holding:
        if request.body_exists:
            arguments["body"] = await read_json(request, launch.config.limits, holding)
        answer = await asyncio.shield(begin_call(launch, name, arguments, "http"))
    return _plain(answer) or tool_response(launch, name, answer, answer.data)


def _plain(answer: ToolAnswer) -> web.Response | None:
    """Return what the API said, as it would have said it itself; None where it has said nothing."""
    if answer.outcome == "ok":
        status, body = answer.data.get("status"), answer.data.get("body")
        return _said(status if isinstance(status, int) else 200, body)
    if answer.code is not None and answer.kind == f"http_{answer.code}":
        return _said(answer.code, answer.message.removeprefix(f"{answer.kind}: "))
    return None


def _said(status: int, body: JsonValue) -> web.Response:
    if isinstance(body, str):
        return web.Response(status=status, text=body)
    return web.json_response(body, status=status)
