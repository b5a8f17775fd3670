"""Check what was read, and say in plain words what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError

from orchestrator.errors import nearest
from orchestrator.settings.collected import Collected, Where
from orchestrator.settings.kubernetes import ENDPOINT, NAMESPACE, Kubernetes, RuntimeClasses, Toleration
from orchestrator.settings.models import Egress, KeySource, Limits, Provider, SettingsFile
from orchestrator.settings.part import ADDRESS
from orchestrator.settings.price import Price, PriceTier

_PATTERNS = {
    ADDRESS: "must be an http:// or https:// address without a user or key in it",
    r"^[a-z0-9_-]+$": "must be a provider's name: lower case letters, digits, dashes, underscores",
    r"^[a-z0-9_-]+/\S+$": "must be PROVIDER/NAME, for example openai/gpt-5-mini",
    NAMESPACE: "must be a name of the cluster's: lower case letters, digits, dashes, at most 63",
    ENDPOINT: "must be HOST:PORT",
}


def validated(found: Collected) -> SettingsFile | None:
    """Return the settings; None when there is a mistake, which is complained of where it was made."""
    try:
        return SettingsFile.model_validate_json(json.dumps(found.values, default=str))
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            path = tuple(str(part) for part in each["loc"] if part != "[key]")
            found.complain(path, _message(each, path, found.get(path)))
        return None


def _message(error: Any, path: Where, value: Any) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if len(path) == 3 and path[0] == "providers" and path[2] == "key" and kind == "model_type":
        return 'must be {env = "NAME"} or {file = "PATH"}, never the key itself'
    if kind == "missing":
        return "this setting is required"
    if kind == "extra_forbidden":
        valid = _valid_names(path[:-1])
        guess = nearest(path[-1], valid)
        return f"unknown setting{guess or '; known are ' + ', '.join(valid)}"
    if kind == "literal_error":
        words = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        return f"must be one of {', '.join(words)}{nearest(value, words) if isinstance(value, str) else ''}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(context["pattern"]), f"must match the pattern {context['pattern']}")
    if kind == "string_too_short":
        return "must not be empty"
    return (
        str(error["msg"])
        .replace("Input should", "must")
        .replace("must be a valid", "must be a")
        .replace("a integer", "a whole number")
    )


def _valid_names(path: Where) -> list[str]:
    """Return the names that a group of settings has."""
    groups: dict[Where, type[BaseModel]] = {
        (): SettingsFile,
        ("limits",): Limits,
        ("egress",): Egress,
        ("kubernetes",): Kubernetes,
        ("kubernetes", "runtime_classes"): RuntimeClasses,
    }
    entries: dict[tuple[str, int], type[BaseModel]] = {  # by the names around it, and how deep it is
        ("providers", 2): Provider,
        ("providers", 3): KeySource,
        ("prices", 2): Price,
        ("prices", 4): PriceTier,
        ("kubernetes", 3): Toleration,
    }
    model = groups.get(path) or entries.get((path[0], len(path)))
    return [] if model is None else list(model.model_fields)
