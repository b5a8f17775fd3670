"""``POST /v1/chat/completions``: what may be asked, the budget, the call, the record."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson
from aiohttp import web

from orchestrator.gateway.calls import Route, complete
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.dialects.tokens import chat_tokens
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.meter import BudgetSpentError
from orchestrator.gateway.provider import ProviderError
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.transcript import tool_calls
from orchestrator.gateway.usage import estimate
from orchestrator.records.prices import priced
from orchestrator.records.usage import Usage

_CONTEXT_CODES = frozenset({"context_length_exceeded", "context_window_exceeded"})


async def chat(launch: Launch, body: dict[str, Any]) -> web.Response:
    """Answer one call of an agent. Raises Refusal."""
    route = check(launch, body)
    if launch.stopped == "model_api_error":
        raise Refusal(502, "model_api_error", "the model provider has failed for good; the trial ends now")
    # The call belongs to the launch, not to the connection: usage counts even when the agent has hung up.
    task = asyncio.create_task(_call(launch, route, body))
    launch.calls.add(task)
    task.add_done_callback(lambda done: _forget(launch, done))
    answer = await asyncio.shield(task)
    return web.Response(body=orjson.dumps(answer), content_type="application/json", headers=launch.meter.left())


def check(launch: Launch, body: dict[str, Any]) -> Route:
    """Return the route of a request that may be sent. Raises Refusal."""
    if body.get("stream"):
        raise Refusal(400, "unsupported", "streaming is not supported: send `stream: false`", code="stream")
    CHAT.check(body, launch.config.limits.messages, frozenset())
    name = body.get("model")
    route = launch.routes.get(name) if isinstance(name, str) else None
    if route is None:
        allowed = ", ".join(sorted(launch.body.models.values())) or "none"
        msg = f"model {printable(str(name), 100)!r} is not one of this agent's models ({allowed})"
        raise Refusal(403, "model_not_allowed", msg, finding=True)
    return route


async def _call(launch: Launch, route: Route, body: dict[str, Any]) -> dict[str, Any]:
    try:
        await launch.meter.reserve()
    except BudgetSpentError as spent:
        raise _budget(launch, spent) from None
    if launch.sealing:
        await launch.meter.settle(None)
        raise Refusal(403, "sealed", "the trial is over")
    usage: Usage | None = None
    calls = 0
    try:
        async with launch.turns:
            number = launch.transcript.request(route.model, body)
            answer = await _complete(launch, route, body, number)
        usage, asked = _used(launch, route, body, answer), tool_calls(answer)
        calls = len(asked)
        launch.tools.announced(_called(asked))
        return answer
    except ProviderError as error:
        if error.charged_characters:
            usage = _guess(launch, route, body, error.charged_characters)
        raise _failure(launch, error) from None
    except asyncio.CancelledError:
        # Only a seal cancels. The provider may have worked and charged: the cost is not known.
        launch.meter.usage = launch.meter.usage.plus(Usage())
        launch.findings.add("call_aborted", "a model call was open when the trial ended; its usage is not known")
        launch.trajectory.append("model_error", "gateway", {"code": "aborted"})
        raise
    finally:
        try:
            await launch.meter.settle(usage, calls)
        except BudgetSpentError as spent:
            raise _budget(launch, spent) from None


async def _complete(launch: Launch, route: Route, body: dict[str, Any], number: int) -> dict[str, Any]:
    def failed(attempt: int, error: ProviderError) -> None:
        data = {"request": number, "attempt": attempt, "status": error.status, "code": error.code}
        launch.trajectory.append("model_error", "gateway", {**data, "message": error.message})

    began = time.monotonic()
    answer = await complete(route, body, launch.clock, failed)
    launch.request_failure = None
    launch.transcript.response(
        number,
        answer,
        {tool["name"] for tool in CHAT.tools(body) if tool["name"] is not None},
        time.monotonic() - began,
    )
    if isinstance(answer.get("model"), str):
        launch.models.add(printable(answer["model"], 200))
    return answer


def _failure(launch: Launch, error: ProviderError) -> Refusal:
    if error.ours:
        launch.end("model_api_error")
        return Refusal(502, "model_api_error", f"{error.message}; the trial ends now", code=error.code)
    launch.request_failure = "context_exhausted" if error.code in _CONTEXT_CODES else "model_request_error"
    return Refusal(error.status, "model_request_error", error.message, code=error.code)


def _used(launch: Launch, route: Route, body: dict[str, Any], answer: dict[str, Any]) -> Usage:
    found = chat_tokens(answer.get("usage"))
    if found is not None:
        return priced(found, launch.body.prices.get(route.model))
    return _guess(launch, route, body, len(orjson.dumps(answer["choices"])))


def _guess(launch: Launch, route: Route, body: dict[str, Any], answered: int) -> Usage:
    launch.findings.add("usage_missing", f"{route.model} reported no usable token counts; they are estimated")
    return estimate(len(orjson.dumps(body["messages"])), answered)


def _budget(launch: Launch, spent: BudgetSpentError) -> Refusal:
    launch.spend(spent.reason)
    return Refusal(403, "budget_exhausted", str(spent), code=spent.reason)


def _called(calls: list[dict[str, Any]]) -> list[str | None]:
    functions = [call.get("function") for call in calls]
    return [name if isinstance(f, dict) and isinstance(name := f.get("name"), str) else None for f in functions]


def _forget(launch: Launch, task: asyncio.Task[Any]) -> None:
    launch.calls.discard(task)
    if not task.cancelled():
        task.exception()
