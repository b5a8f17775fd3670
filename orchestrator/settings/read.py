"""Read the settings file and the variables."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from orchestrator.errors import Problem, nearest
from orchestrator.settings.collected import Collected, Origin, Where
from orchestrator.settings.models import KNOWN_PROVIDERS, ProviderType
from orchestrator.settings.toml import toml_lines

_PREFIX = "ORCHESTRATE_"
_KUBERNETES_WORDS = (
    *("context", "driver", "drivers_namespace", "pod_image", "task_image", "relay", "grader"),
    *("grader_data", "grader_scratch"),
    *("gateway_token_file", "grader_token_file", "topology_spread", "queue", "scheduler_name", "priority_class"),
)
_KUBERNETES_LISTS = ("namespaces", "root_namespaces", "gateways", "agent_gateways", "denied", "pull_secrets")
_KUBERNETES_NUMBERS = (
    *("namespace_pods", "cpu_request_share", "memory_request_share", "creates_per_second"),
    *("freeze_seconds", "pull_seconds", "absence_seconds"),
)
_NUMBERS: set[Where] = {
    ("supervisors",),
    ("concurrency",),
    ("confirm_over_usd",),
    ("limits", "trials"),
    ("limits", "cost_usd"),
    ("max_launches",),
    *(("kubernetes", name) for name in _KUBERNETES_NUMBERS),
}
_LISTS: set[Where] = {
    *(("egress", name) for name in ("allowed", "denied")),
    *(("kubernetes", name) for name in _KUBERNETES_LISTS),
}
_FLAGS: set[Where] = {("kubernetes", "image_volumes"), ("kubernetes", "task_egress")}
_SETTABLE: tuple[Where, ...] = (
    ("store",),
    ("backend",),
    ("container_engine",),
    ("pool",),
    ("cache",),
    ("scratch",),
    ("logs",),
    *(("kubernetes", name) for name in _KUBERNETES_WORDS),
    *sorted(_NUMBERS | _LISTS | _FLAGS),
)
"""Settings that have a variable: ``ORCHESTRATE_LIMITS_TRIALS`` and so on. Lists are separated by commas."""
_PATHS: set[Where] = {
    *(("store",), ("cache",), ("scratch",), ("logs",)),
    *(("kubernetes", "gateway_token_file"), ("kubernetes", "grader_token_file")),
}
_NOT_SETTINGS = {"ORCHESTRATE_GATEWAY", "ORCHESTRATE_TOKEN", "ORCHESTRATE_MODEL", "ORCHESTRATE_NOW"}
"""Variables that programs inside a sandbox get."""
_OTHERS = ("ORCHESTRATE_GRADER_", "ORCHESTRATE_MODEL_", "ORCHESTRATE_TEST_")
"""Prefixes of variables that other programs read."""


def anchored(path: Where, value: Any, folder: Path) -> Any:
    """Return a path-like setting relative to the folder of the place where it was written, as an absolute path."""
    if path not in _PATHS or not isinstance(value, str) or not value:
        return value
    return value if "://" in value else str(folder / Path(value).expanduser())


def read_variables(variables: Mapping[str, str], cwd: Path, found: Collected) -> None:
    """Put in what the variables of settings say, and complain of those that are none."""
    known = {f"{_PREFIX}{'_'.join(path).upper()}": path for path in _SETTABLE}
    for name in sorted(variables):
        if not name.startswith(_PREFIX) or name in _NOT_SETTINGS or name.startswith(_OTHERS):
            continue
        if name not in known:
            found.problems.append(Problem(name, message=f"no setting has this variable{nearest(name, known)}"))
        elif variables[name]:
            path = known[name]
            found.put(path, anchored(path, _typed(path, variables[name]), cwd), Origin(name))


def _typed(path: Where, text: str) -> Any:
    """Return a variable's text as a number where a number is wanted and it is one, likewise as true or false, and as a list."""
    if path in _LISTS:
        return [part for part in (part.strip() for part in text.split(",")) if part]
    if path in _FLAGS:
        return {"true": True, "false": False}.get(text.lower(), text)
    if path not in _NUMBERS:
        return text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def read_file(file: Path | None, cwd: Path, found: Collected) -> None:
    """Put in what the settings file says; there may be none."""
    if file is None:
        return
    shown = str(file.relative_to(cwd)) if file.is_relative_to(cwd) else str(file)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        found.problems.append(Problem(shown, message=f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError:
        found.problems.append(Problem(shown, message="the file is not UTF-8 text"))
    else:
        read_text(text, shown, file.parent, found)


def read_text(text: str, shown: str, folder: Path, found: Collected) -> None:
    """Put in what the text of a settings file says; paths in it are relative to ``folder``."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"^(.*?) \(at line (\d+), column (\d+)\)$", str(error))
        place = (int(match[2]), int(match[3])) if match else (0, 0)
        message = f"not valid TOML: {match[1] if match else error}"
        found.problems.append(Problem(shown, *place, message=message))
        return
    lines = toml_lines(text)
    for name, value in values.items():
        found.put((name,), anchored((name,), value, folder), Origin(shown, *lines.get((name,), (0, 0))))
    for path, (line, column) in lines.items():
        found.origins[path] = Origin(shown, line, column)


def known_providers(variables: Mapping[str, str], found: Collected) -> None:
    """Put in the providers whose keys are in the environment, unless the settings file has them."""
    providers = found.values.get("providers", {})
    for name, (variable, address) in KNOWN_PROVIDERS.items():
        if variables.get(variable, "").strip() and isinstance(providers, dict) and name not in providers:
            found.put(
                ("providers", name), {"type": name, "base_url": address, "key": {"env": variable}}, Origin(variable)
            )


def named_providers(found: Collected) -> None:
    """Let a provider that is named like an API speak it, unless it says another ``type``."""
    providers = found.values.get("providers", {})
    for name in get_args(ProviderType) if isinstance(providers, dict) else ():
        table = providers.get(name)
        if isinstance(table, dict) and "type" not in table:
            found.put(("providers", name, "type"), name, found.origin(("providers", name)))
