"""What an agent asks of models, in any dialect: what may be asked, where it goes, and the call (``metered_call``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from orchestrator.gateway.agent_stream import AgentStream
from orchestrator.gateway.calls import Route, Trying, once
from orchestrator.gateway.dialects.base import Dialect
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.metered_call import MeteredCall, budget_refusal
from orchestrator.gateway.provider import ModelCall, ProviderError
from orchestrator.gateway.refusal import Refusal

log = logging.getLogger(__name__)


async def complete(
    launch: Launch,
    dialect: Dialect,
    request: web.BaseRequest,
    body: dict[str, Any],
    headers: Mapping[str, str],
    size: int,
) -> web.StreamResponse:
    """Answer one call of an agent, a body of ``size`` bytes; ``headers`` go along to the provider. Raises Refusal."""
    check = partial(dialect.check, body, launch.config.limits.messages, launch.hosted)
    await launch.buffered.pool.aside(size, check)
    route = find_route(launch, dialect, body)
    launch.refuse_when_lost()
    stream = AgentStream(request, launch.meter.left, launch.config.limits.stall_seconds)
    call = MeteredCall(launch, route, ModelCall(dialect, body, route.name, headers), stream, size)
    # The call belongs to the launch, not to the connection: usage counts even when the agent has hung up.
    task = asyncio.create_task(call.run())
    launch.calls.add(task)
    task.add_done_callback(lambda done: _forget(launch, done))
    try:
        answer = await asyncio.shield(task)
    except Refusal:
        raise
    except Exception:  # a fault of ours; where the answer has begun, no other can be given any more
        if not stream.begun:
            raise
        log.exception("fault while streaming %s for launch %s", dialect.path, launch.id)
        launch.findings.add("gateway_fault", f"POST {dialect.path}")
        launch.end("model_api_error")
        await stream.send(
            dialect.error_events("gateway_fault", None, "the gateway failed; this trial will be run again")
        )
        return await stream.end()
    if answer is None:
        return await stream.end()
    data = orjson.dumps(answer)
    with launch.buffered.holding() as holding:  # what nobody fetches stays here
        holding.take(len(data))
        response = await stream.whole(data)
    if stream.stalled:
        launch.findings.add("slow_reader", "the agent kept an answer waiting for too long")
    return response


async def count_tokens(
    launch: Launch, dialect: Dialect, body: dict[str, Any], headers: Mapping[str, str]
) -> web.StreamResponse:
    """Answer a question for the number of tokens of a request: no step. Raises Refusal."""
    dialect.check({"max_tokens": 1, **body}, launch.config.limits.messages, launch.hosted)
    route = find_route(launch, dialect, body)
    if not route.provider.offers("count_tokens"):
        msg = f"the provider of {route.model} counts no tokens; count them yourself, or go by the usage of answers"
        raise Refusal(404, "unsupported_endpoint", msg, code="count_tokens")
    if launch.meter.spent is not None:
        raise budget_refusal(launch, launch.meter.spend(launch.meter.spent))
    if not launch.meter.take_side_call():
        msg = "tokens have been counted as often as a trial may; go by the usage of answers"
        raise Refusal(429, "too_many_requests", msg, code="count_tokens", finding=True)
    call = ModelCall(dialect, body, route.name, headers)
    try:
        async with launch.turns:
            found = await once(route, Trying(launch.id, launch.clock), lambda: route.provider.count_tokens(call))
    except ProviderError as error:  # agents can do without the number
        status = 502 if error.ours else error.status
        kind = "model_api_error" if error.ours else "model_request_error"
        raise Refusal(status, kind, error.message, code=error.code) from None
    return web.Response(body=orjson.dumps(found), content_type="application/json", headers=launch.meter.left())


def find_route(launch: Launch, dialect: Dialect, body: Mapping[str, Any]) -> Route:
    """Return where a request goes. Raises Refusal."""
    name = body.get("model")
    route = launch.routes.get(name) if isinstance(name, str) else None
    if route is None:
        allowed = ", ".join(sorted(launch.body.models.values())) or "none"
        msg = f"model {printable(str(name), 100)!r} is not one of this agent's models ({allowed})"
        raise Refusal(403, "model_not_allowed", msg, finding=True)
    if not route.provider.offers(dialect.name):
        way_out = "use another one, or say what it offers in its settings (`type`, `endpoints`)"
        msg = f"the provider of {route.model} does not offer {dialect.path}; {way_out}"
        raise Refusal(404, "unsupported_endpoint", msg, code=dialect.path)
    return route


def _forget(launch: Launch, task: asyncio.Task[Any]) -> None:
    launch.calls.discard(task)
    if not task.cancelled():
        task.exception()
