"""Calls of the gateway's own tools: what is admitted and counted, what is recorded, and the plain HTTP form.

The limit of tool calls counts what models ask for, in their answers. A call of a tool here that a model has asked for is that same call;
one that a program makes by itself counts when it comes. What is recorded is bounded by that limit, since nothing else is admitted.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any

import orjson
from aiohttp import web
from pydantic import JsonValue

from orchestrator.gateway.body import BYTE_SECONDS, is_small
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.meter import BudgetSpentError
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.toolbox import ArgumentsError, Effect, Tool, ToolAnswer, Via

_MOST_VALUES = 1000
"""In the arguments of one call. They are looked at one by one, and every mistake is named."""


async def list_tools(launch: Launch) -> web.Response:
    """``GET /tools``: the tools in the shape that goes into a model request, arguments as JSON Schema."""
    data = launch.tools.listed("http", _list)
    await launch.buffered.share.take(len(data) * BYTE_SECONDS)
    return web.Response(body=data, content_type="application/json")


def _list(tools: Sequence[Tool]) -> bytes:
    found = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
        }
        for tool in tools
    ]
    return orjson.dumps({"tools": found})


async def post_tool(launch: Launch, name: str, arguments: dict[str, Any]) -> web.Response:
    """``POST /tools/NAME``. Raises Refusal."""
    answer = await asyncio.shield(begin_call(launch, name, arguments, "http"))
    return tool_response(launch, name, answer, answer.data)


def tool_response(launch: Launch, name: str, answer: ToolAnswer, data: dict[str, JsonValue]) -> web.Response:
    """Return what came of a call as an HTTP answer; ``data`` where it went well."""
    left = launch.meter.left()
    if answer.outcome == "ok":
        return web.json_response(data, headers=left)
    error = {"type": answer.kind, "code": name, "message": answer.message, "param": None}
    if answer.retry_after is not None:
        left = {**left, "Retry-After": str(math.ceil(answer.retry_after))}
    return web.json_response({"error": error}, status=answer.status, headers=left)


def begin_call(launch: Launch, name: str, arguments: dict[str, Any], via: Via) -> asyncio.Task[ToolAnswer]:
    """Let a tool do its work; return the task, which may be cancelled. Raises Refusal for an unknown tool and when a limit is reached.

    The call belongs to the launch, not to a connection: whoever waits for it shields it, and a seal waits for it.
    """
    tool = launch.tools.find(name)
    if tool is None:
        msg = f"there is no tool {printable(name, 60)!r}; GET /tools lists them"
        raise Refusal(404, "unknown_tool", msg)
    launch.refuse_when_lost()
    if launch.finish is not None:
        msg = f"the trial has been finished as {launch.finish.status!r} before; only the first call counts"
        raise Refusal(409, "already_finished", msg)
    if not is_small(arguments, _MOST_VALUES):
        msg = f"the arguments of {tool.name} have more than {_MOST_VALUES} values"
        raise Refusal(413, "request_too_large", msg, finding=True)
    effect, problem = _prepared(tool, arguments)
    _admit(launch, tool, is_free=tool.is_free and effect is not None)
    call: dict[str, JsonValue] = {
        "name": name,
        "arguments": arguments,
        "via": via,
        "valid": effect is not None,
        "problem": problem,
    }
    number = launch.trajectory.append("tool_call", "gateway", call)
    if launch.dates is not None and (real := launch.dates.found_in(orjson.dumps(arguments))) is not None:
        launch.findings.add("clock_leak", f"a call of {printable(name, 60)} carries the real date, as {real!r}")
    task = asyncio.create_task(_recorded(launch, tool, number, effect, problem))
    launch.calls.add(task)
    task.add_done_callback(launch.calls.discard)
    return task


def _prepared(tool: Tool, arguments: dict[str, Any]) -> tuple[Effect | None, str | None]:
    """Return what the call will do, or what is wrong with its arguments."""
    try:
        return tool.prepare(arguments), None
    except ArgumentsError as error:
        return None, str(error)


def _admit(launch: Launch, tool: Tool, *, is_free: bool) -> None:
    is_counted = launch.tools.take_announced(tool.name)
    if is_free:
        return
    try:
        launch.meter.admit_tool_call(is_counted=is_counted)
    except BudgetSpentError as spent:
        launch.spend(spent.reason)
        raise Refusal(403, "budget_exhausted", str(spent), code=spent.reason) from None


async def _recorded(launch: Launch, tool: Tool, number: int, effect: Effect | None, problem: str | None) -> ToolAnswer:
    """Do the work of a call whose beginning has been recorded, and record what came of it."""
    began = time.monotonic()
    if effect is None:
        answer = ToolAnswer(outcome="invalid", kind="invalid_arguments", message=f"{tool.name}: {problem}")
    else:
        answer = await _done(tool, effect)
    result: dict[str, JsonValue] = {
        "call": number,
        "name": tool.name,
        "outcome": answer.outcome,
        "seconds": round(time.monotonic() - began, 4),
        "content": answer.text,
    }
    if answer.outcome != "ok":
        result["error"] = {"kind": answer.kind, "status": answer.code, "retry_after": answer.retry_after}
    result |= answer.aside
    launch.trajectory.append("tool_result", "gateway", result)
    launch.trajectory.hand_over()  # what the agent knows of, the process after this one knows too
    return answer


async def _done(tool: Tool, effect: Effect) -> ToolAnswer:
    try:
        async with asyncio.timeout(tool.seconds):
            return await effect()
    except TimeoutError:
        msg = f"{tool.name} did not answer within {tool.seconds:g} s"
        return ToolAnswer(outcome="timeout", kind="tool_timeout", message=msg)
    except asyncio.CancelledError:  # by the client, or by a seal: what it has done is not known to the agent any more
        return ToolAnswer(outcome="error", kind="cancelled", message=f"{tool.name} was cancelled")
