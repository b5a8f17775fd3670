"""``GET /v1/models``: the models that an agent may use, in the shape of the API that it speaks."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal

PATH = "/v1/models"
_SPEAKS_MESSAGES = "anthropic-version"
"""A header that every client of Anthropic's API sends, and no other."""


def list_models(launch: Launch, request: web.BaseRequest) -> web.Response:
    """Return all of them, or the one that the path names. Raises Refusal."""
    shape = _of_messages if _SPEAKS_MESSAGES in request.headers else _of_chat
    models = sorted(set(launch.body.models.values()))
    asked = request.path.removeprefix(PATH).removeprefix("/")
    if asked:
        route = launch.routes.get(asked)
        if route is None:
            msg = f"model {printable(asked, 100)!r} is not one of this agent's models ({', '.join(models) or 'none'})"
            raise Refusal(404, "model_not_allowed", msg)
        return web.json_response(shape(route.model))
    data = [shape(model) for model in models]
    if shape is _of_chat:
        return web.json_response({"object": "list", "data": data})
    ends = {"first_id": models[0] if models else None, "last_id": models[-1] if models else None}
    return web.json_response({"data": data, "has_more": False, **ends})


def _of_chat(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": model.partition("/")[0]}


def _of_messages(model: str) -> dict[str, Any]:
    return {"type": "model", "id": model, "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
