"""Tools that the gateway itself offers. This version has one: ``finish``."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from pydantic import ValidationError

from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.records.state import FinalAnswer
from orchestrator.spec.base import canonical_json

_LONGEST_MESSAGE = 64 << 10
_MOST_FIELDS = 32
_LONGEST_FIELD = 4096

FINISH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "finish",
        "description": "End the work and say how it ended. Only the first call counts.",
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "required": ["status"],
            "properties": {
                "status": {
                    "type": "string",
                    "enum": ["completed", "declined", "asked"],
                    "description": "completed: the work is done. declined: it must not or cannot be done. "
                    "asked: a question must be answered first.",
                },
                "message": {"type": "string", "description": "What was done, why it was declined, or the question."},
                "confidence": {
                    "anyOf": [
                        {"type": "string", "enum": ["low", "medium", "high"]},
                        {"type": "number", "minimum": 0, "maximum": 1},
                    ],
                    "description": "How sure you are that the result is right.",
                },
                "escalation": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "description": "Fields for the person who takes over, for example the missing permission.",
                },
            },
        },
    },
}


def list_tools() -> web.Response:
    """``GET /tools``: JSON Schema of each tool, in the shape that goes into a model request."""
    return web.json_response({"tools": [FINISH]})


def call_tool(launch: Launch, name: str, arguments: dict[str, Any]) -> web.Response:
    """``POST /tools/NAME``. Raises Refusal."""
    if name != "finish":
        msg = f"there is no tool {printable(name, 60)!r}; GET /tools lists them"
        raise Refusal(404, "unknown_tool", msg)
    answer = final_answer(arguments)
    if launch.finish is not None:
        msg = f"the trial has been finished as {launch.finish.status!r} before; only the first call counts"
        raise Refusal(409, "already_finished", msg)
    launch.trajectory.append("tool_call", "gateway", {"name": "finish", "arguments": arguments})
    launch.finish = answer
    launch.trajectory.append("finish", "gateway", answer.model_dump(mode="json"))
    return web.json_response({"ok": True, "status": answer.status})


def final_answer(arguments: dict[str, Any]) -> FinalAnswer:
    """Return the arguments of ``finish`` as a record. Raises Refusal with every mistake."""
    problems: list[str] = []
    try:
        answer = FinalAnswer.model_validate_json(canonical_json(arguments))
    except ValidationError as error:
        known = set(FinalAnswer.model_fields)
        for found in error.errors(include_url=False, include_input=False):
            field = str(found["loc"][0]) if found["loc"] else "arguments"
            problems.append(f"{printable(field, 60)}: {_words(found['type'], found['msg'], field in known)}")
        raise _invalid(sorted(set(problems))) from None
    if len(answer.message) > _LONGEST_MESSAGE:
        problems.append(f"message: has {len(answer.message)} characters, at most {_LONGEST_MESSAGE} are taken")
    if isinstance(answer.confidence, float) and not 0 <= answer.confidence <= 1:
        problems.append("confidence: must be low, medium, high, or from 0 to 1")
    fields = answer.escalation
    if len(fields) > _MOST_FIELDS or any(len(k) + len(v) > _LONGEST_FIELD for k, v in fields.items()):
        problems.append(f"escalation: at most {_MOST_FIELDS} fields of {_LONGEST_FIELD} characters are taken")
    if problems:
        raise _invalid(problems)
    return answer


def _words(kind: str, message: str, known: bool) -> str:
    if not known:
        return "is not a field of finish"
    if kind == "missing":
        return "is missing"
    return message[:1].lower() + message[1:]


def _invalid(problems: list[str]) -> Refusal:
    return Refusal(400, "invalid_arguments", "finish: " + "; ".join(problems), code="finish")
