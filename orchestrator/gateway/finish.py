"""The tool ``finish``: how an agent says that it is done, and how it ended."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.toolbox import ArgumentsError, Effect, Tool, ToolAnswer
from orchestrator.records.state import FinalAnswer
from orchestrator.spec.base import canonical_json

_LONGEST_MESSAGE = 64 << 10
_MOST_FIELDS = 32
_LONGEST_FIELD = 4096

_SCHEMA: dict[str, Any] = {
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
}


def finish_tool(launch: Launch) -> Tool:
    """Return the tool of a launch. Being free, it is heard also when all limits are reached."""

    def prepare(arguments: dict[str, Any]) -> Effect:
        answer = final_answer(arguments)

        async def finish() -> ToolAnswer:
            launch.finish = answer
            launch.trajectory.append("finish", "gateway", answer.model_dump(mode="json"))
            return ToolAnswer(data={"ok": True, "status": answer.status})

        return finish

    return Tool(
        name="finish",
        description="End the work and say how it ended. Only the first call counts.",
        schema=_SCHEMA,
        prepare=prepare,
        is_free=True,
        destructive=True,
    )


def final_answer(arguments: dict[str, Any]) -> FinalAnswer:
    """Return the arguments of ``finish`` as a record. Raises ArgumentsError with every mistake."""
    problems: list[str] = []
    try:
        answer = FinalAnswer.model_validate_json(canonical_json(arguments))
    except ValidationError as error:
        known = set(FinalAnswer.model_fields)
        for found in error.errors(include_url=False, include_input=False):
            name = str(found["loc"][0]) if found["loc"] else "arguments"
            problems.append(f"{printable(name, 60)}: {_words(found['type'], found['msg'], name in known)}")
        raise ArgumentsError("; ".join(sorted(set(problems))[:_MOST_FIELDS])) from None
    if len(answer.message) > _LONGEST_MESSAGE:
        problems.append(f"message: has {len(answer.message)} characters, at most {_LONGEST_MESSAGE} are taken")
    if isinstance(answer.confidence, float) and not 0 <= answer.confidence <= 1:
        problems.append("confidence: must be low, medium, high, or from 0 to 1")
    fields = answer.escalation
    if len(fields) > _MOST_FIELDS or any(len(k) + len(v) > _LONGEST_FIELD for k, v in fields.items()):
        problems.append(f"escalation: at most {_MOST_FIELDS} fields of {_LONGEST_FIELD} characters are taken")
    if problems:
        raise ArgumentsError("; ".join(problems))
    return answer


def _words(kind: str, message: str, known: bool) -> str:
    if not known:
        return "is not a field of finish"
    if kind == "missing":
        return "is missing"
    return message[:1].lower() + message[1:]
