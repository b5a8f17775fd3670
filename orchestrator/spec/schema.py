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

_BASE = "urn:orchestrate:schema:1"
_MODELS: dict[str, tuple[type[BaseModel], str]] = {
    "task": (Task, "A task of orchestrate (task.yaml)"),
    "suite": (Suite, "A suite of orchestrate (suite.yaml)"),
    "agent": (Agent, "An agent of orchestrate (manifests/agents/NAME.yaml)"),
    "submission": (Submission, "A submission of orchestrate (manifests/NAME.yaml)"),
    "script": (Script, "Conversations of a scripted model (TASK.yaml)"),
    "settings": (SettingsFile, "Settings of orchestrate (orchestrate.toml)"),
}
_FROM_DEFAULTS = {"instruction", "checks"}
"""Required fields of a task that the defaults of its suite may give."""


class _Generator(GenerateJsonSchema):
    """Draft 2020-12, named in each schema."""

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return {"$schema": self.schema_dialect, **super().generate(schema, mode)}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by name: task, suite, agent, submission, script, settings."""
    return {name: _schema(name, model, title) for name, (model, title) in _MODELS.items()}


def _schema(name: str, model: type[BaseModel], title: str) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_Generator)
    schema |= {"$id": f"{_BASE}:{name}", "title": title}
    if name == "task":
        schema["required"] = [field for field in schema["required"] if field not in _FROM_DEFAULTS]
    plain: dict[str, Any] = _without_titles(schema, top=True)
    return plain


def _without_titles(value: Any, *, top: bool = False) -> Any:
    """Drop the titles that repeat a field's name; editors show the name anyway."""
    if isinstance(value, list):
        return [_without_titles(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_titles(each)
        if key != "properties"
        else {name: _without_titles(inner) for name, inner in each.items()}
        for key, each in value.items()
        if top or key != "title" or not isinstance(each, str)
    }
