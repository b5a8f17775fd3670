"""The tools of a task's world, as its launch offers them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from orchestrator.errors import StoreError
from orchestrator.gateway.bundled import unusable
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.schemas import fit
from orchestrator.gateway.toolbox import ArgumentsError, Effect, Tool, ToolAnswer
from orchestrator.gateway.wire import LaunchBody
from orchestrator.gateway.worlds.engine import LaunchWorld, WorldAnswer, WorldEngine, WorldError
from orchestrator.interfaces import BundleSource
from orchestrator.spec.world import OutboxTool, World, WorldTool

_SLACK_SECONDS = 120.0
"""Beyond the time of a call: for waiting until calls before it are done, and for a process that has to begin."""
_MOST_NAMED = 20
_MOST_ARGUMENTS = 512 << 10
"""Bytes of their JSON: a world keeps them with each call, where they may become three times as long."""
_TEXT = {"type": "string"}
_READY: dict[str, tuple[str, dict[str, Any]]] = {
    "post_message": ("Post a message to a channel.", {"channel": _TEXT, "text": _TEXT}),
    "send_email": ("Send an e-mail.", {"to": _TEXT, "subject": _TEXT, "text": _TEXT}),
    "refund": (
        "Pay money back.",
        {
            "reference": {"type": "string", "description": "What the refund is for, such as the id of an order."},
            "amount": {"type": "number", "exclusiveMinimum": 0},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$", "description": "ISO 4217, such as EUR."},
            "reason": _TEXT,
        },
    ),
}
_APPROVAL = {
    "tool": {"type": "string", "description": "The tool that needs an approval."},
    "arguments": {"type": "object", "description": "The arguments that it will be called with, exactly."},
    "reason": {"type": "string", "description": "Why, for whoever decides."},
}


async def open_world(body: LaunchBody, bundles: BundleSource, engine: WorldEngine | None) -> LaunchWorld | None:
    """Return the world of a launch's task; None: it has none. Raises Refusal and StoreError."""
    if body.world is None:
        return None
    folder = await bundles.fetch("world", body.world)
    spec, now = _read(folder, body.task)
    if spec is None:
        return None
    if engine is None:
        raise Refusal(400, "world_unavailable", f"task {body.task} has a world, and this gateway holds none")
    told = None if now is None else now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        return await engine.open(body.id, folder, spec, now=told, seed=body.seed)
    except WorldError as error:
        raise Refusal(400, "world_unusable", f"the world of task {body.task} cannot be made: {error}") from None


def _read(folder: Path, task: str) -> tuple[World | None, datetime | None]:
    """Return what a bundle says of a world and of the time in it. Raises Refusal."""
    file = folder / "world.json"
    if not file.is_file():
        return None, None
    try:
        world = World.model_validate_json(file.read_bytes())
        now = orjson.loads((folder / "task.json").read_bytes()).get("now")
    except ValidationError as error:
        raise unusable("world_unusable", f"the tools of task {task} are", error) from None
    return world, None if now is None else datetime.fromisoformat(now)


def world_tools(launch: Launch, world: LaunchWorld) -> Iterator[Tool]:
    """Yield the tools that an agent may call."""
    spec = world.spec
    for tool in spec.tools:
        if tool.caller == "agent":
            yield _tool(launch, world, tool.name, tool.description, _schema(tool), tool)
    for ready in spec.outbox:
        words, properties = _READY[ready.name]
        yield _tool(launch, world, ready.name, words, _object(properties), ready)
    if spec.has_approvals:
        words = "Ask for the approval of a call of a tool that needs one. Says whether it was granted, and why."
        yield _tool(launch, world, "request_approval", words, _object(_APPROVAL), None)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


def _schema(tool: WorldTool) -> dict[str, Any]:
    schema: dict[str, Any] = {"additionalProperties": False, "properties": {}, **tool.arguments}
    if tool.page is not None:
        token = {
            "type": "string",
            "description": "next_page_token of the page before; leave it out for the first page.",
        }
        schema = schema | {"properties": {**schema["properties"], "page_token": token}}
    return schema


def _tool(
    launch: Launch,
    world: LaunchWorld,
    name: str,
    description: str,
    schema: dict[str, Any],
    spec: WorldTool | OutboxTool | None,
) -> Tool:
    def prepare(arguments: dict[str, Any]) -> Effect:
        if (size := len(orjson.dumps(arguments))) > _MOST_ARGUMENTS:
            msg = f"the arguments have {size} bytes, at most {_MOST_ARGUMENTS} are taken"
            raise ArgumentsError(msg)
        check(name, arguments, schema)

        async def call() -> ToolAnswer:
            try:
                return _told(launch, name, await world.call(name, arguments))
            except StoreError as error:  # our failure: the launch is made again
                launch.findings.add("world_lost", str(error))
                launch.end("infra_lost")
                return ToolAnswer(
                    outcome="error", kind="world_lost", message="the world cannot be reached any more", code=503
                )

        return call

    return Tool(
        name=name,
        description=description,
        schema=schema,
        prepare=prepare,
        seconds=world.spec.limits.seconds + _SLACK_SECONDS,
        destructive=spec is not None and spec.irreversible,
    )


def check(name: str, arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    """Refuse arguments that do not fit. Raises ArgumentsError."""
    unknown = sorted(set(arguments) - set(schema["properties"])) if schema.get("additionalProperties") is False else []
    if unknown:
        raise ArgumentsError(
            "; ".join(f"{printable(each, 60)}: is no argument of {name}" for each in unknown[:_MOST_NAMED])
        )
    found = fit(
        orjson.dumps(arguments, option=orjson.OPT_PASSTHROUGH_SUBCLASS).decode(),
        {"name": name, "type": "function", "description": None, "schema": schema},
    )
    if found.valid is False:
        raise ArgumentsError(found.problem or "the arguments do not fit")


def _told(launch: Launch, name: str, answer: WorldAnswer) -> ToolAnswer:
    """Return the answer for the agent; what is wrong with the world itself is for people."""
    if answer.detail is not None:
        launch.findings.add("world_error", f"{name}: {printable(answer.detail, 500)}")
    if answer.outcome == "ok":
        return ToolAnswer(data=answer.data)
    outcome: Any = "timeout" if answer.outcome == "timeout" else "error"
    return ToolAnswer(
        outcome=outcome,
        kind=answer.kind,
        message=f"{answer.kind}: {answer.message}",
        code=answer.status,
        retry_after=answer.retry_after,
    )
