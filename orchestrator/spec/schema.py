"""JSON Schema (2020-12) of everything that a person writes, for editors and for other programs.

A schema accepts every file that the loader accepts. The loader is stricter: it also checks fields against each other and
against files, and it fills in a suite's defaults first. So the schema of a task requires only what no suite can give.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema

from orchestrator.settings import SettingsFile
from orchestrator.spec.agent import Agent
from orchestrator.spec.scripts import Script
from orchestrator.spec.submission import Submission
from orchestrator.spec.suite import Suite
from orchestrator.spec.task import Task
from orchestrator.spec.user import UserScript
from orchestrator.spec.world import World

_BASE = "urn:orchestrate:schema:1"
_MODELS: dict[str, tuple[type[BaseModel], str]] = {
    "task": (Task, "A task of orchestrate (task.yaml)"),
    "suite": (Suite, "A suite of orchestrate (suite.yaml)"),
    "agent": (Agent, "An agent of orchestrate (manifests/agents/NAME.yaml)"),
    "submission": (Submission, "A submission of orchestrate (manifests/NAME.yaml)"),
    "script": (Script, "Conversations of a scripted model (TASK.yaml)"),
    "user": (UserScript, "Replies of a scripted user of orchestrate (user.yaml)"),
    "world": (World, "Tools of a task's world (world/tools.yaml)"),
    "settings": (SettingsFile, "Settings of orchestrate (orchestrate.toml)"),
}
_FROM_DEFAULTS = {"instruction", "checks"}
"""Required fields of a task that the defaults of its suite may give."""


class _Generator(GenerateJsonSchema):
    """Draft 2020-12, named in each schema."""

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return {"$schema": self.schema_dialect, **super().generate(schema, mode)}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by name: task, suite, agent, submission, script, user, world, settings."""
    return {name: _schema(name, model, title) for name, (model, title) in _MODELS.items()}


def _schema(name: str, model: type[BaseModel], title: str) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_Generator)
    schema |= {"$id": f"{_BASE}:{name}", "title": title}
    if name == "task":
        schema["required"] = [field for field in schema["required"] if field not in _FROM_DEFAULTS]
    plain: dict[str, Any] = _for_editors(schema, top=True)
    return plain


def _for_editors(value: Any, *, top: bool = False) -> Any:
    """Drop the titles that repeat a field's name, which editors show anyway, and make each description plain text."""
    if isinstance(value, list):
        return [_for_editors(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _keyword(key, each) for key, each in value.items() if top or key != "title" or not isinstance(each, str)
    }


def _keyword(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _for_editors(inner) for name, inner in value.items()}
    if key == "description" and isinstance(value, str):
        return " ".join(value.replace("``", "`").split())  # a docstring in one line, code between single backquotes
    return _for_editors(value)
