"""Find the settings in force: read all places, check, put together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from orchestrator.errors import Problem, SpecError
from orchestrator.settings.check import validated
from orchestrator.settings.collected import FLAG, Collected, Origin
from orchestrator.settings.environment import variables
from orchestrator.settings.kubernetes import Kubernetes
from orchestrator.settings.models import KeyedProvider, KeySource, Provider, Settings, SettingsFile
from orchestrator.settings.read import anchored, known_providers, named_providers, read_file, read_text, read_variables

FILE = "orchestrate.toml"
_KEY_BYTES = 64 << 10


def load_settings(
    cwd: Path, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings in force in a folder.

    ``overrides`` are what was typed: names (dotted for parts, ``limits.trials``) to values; None means not typed.
    ``environ`` is the process's own environment when absent. Raises SpecError with every problem, at its file and line
    or variable.
    """
    found, base, environ = _collected(cwd, environ, overrides)
    checked = validated(found)
    if checked is None or found.problems:
        raise SpecError(found.problems)
    return _finished(checked, found, base, environ)


def usable_settings(
    cwd: Path, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, tuple[Problem, ...]]:
    """Return as ``load_settings`` does, and every problem: what cannot be used has its default instead. For looking, not for runs."""
    found, base, environ = _collected(cwd, environ, overrides)
    while (checked := validated(found)) is None:
        for path in found.wrong:
            found.drop(path)
        found.wrong.clear()
    problems = tuple(sorted(set(found.problems)))
    return _finished(checked, found, base, environ), problems


def settings_of(text: str, name: str) -> Settings:
    """Return what the text of an ``orchestrate.toml`` says that is not on this machine; ``name`` is shown in errors.

    Its keys and token files are not here, so they are not looked for. Raises SpecError with every problem.
    """
    found = Collected()
    read_text(text, name, Path("/"), found)
    named_providers(found)
    checked = validated(found)
    if checked is None or found.problems:
        raise SpecError(found.problems)
    return _finished(checked, found, Path("/"), None)


def _collected(
    cwd: Path, environ: Mapping[str, str] | None, overrides: Mapping[str, Any] | None
) -> tuple[Collected, Path, Mapping[str, str]]:
    """Return what all places say, the folder of the settings file, and the variables."""
    environ = variables(environ)
    cwd = cwd.absolute()
    found = Collected()
    file = next((folder / FILE for folder in (cwd, *cwd.parents) if (folder / FILE).is_file()), None)
    read_file(file, cwd, found)
    read_variables(environ, cwd, found)
    for name, value in (overrides or {}).items():
        if value is not None:
            path = tuple(name.split("."))
            typed = str(value) if isinstance(value, Path) else value
            found.put(path, anchored(path, typed, cwd), Origin(FLAG))
    named_providers(found)
    known_providers(environ, found)
    return found, cwd if file is None else file.parent, environ


def _finished(checked: SettingsFile, found: Collected, base: Path, environ: Mapping[str, str] | None) -> Settings:
    """Return the settings with absolute paths and with keys; without variables no key is looked for."""
    values = {name: getattr(checked, name) for name in SettingsFile.model_fields}
    values["store"] = anchored(("store",), checked.store, base)
    values["cache"], values["logs"] = base / checked.cache, base / checked.logs
    values["scratch"] = None if checked.scratch is None else base / checked.scratch
    providers: dict[str, KeyedProvider] = {}
    problems: dict[str, str] = {}
    for name, provider in checked.providers.items():
        key, problem = (None, "") if provider.key is None or environ is None else _key(provider.key, base, environ)
        if problem:
            problems[name] = problem
        fields = {field: getattr(provider, field) for field in Provider.model_fields}
        providers[name] = KeyedProvider(**fields, secret=None if key is None else SecretStr(key))
    values["providers"] = providers
    values["kubernetes"] = _kubernetes(checked.kubernetes, base)
    return Settings(**values, key_problems=problems, sources=_sources(found))


def _kubernetes(table: Kubernetes, base: Path) -> Kubernetes:
    files = {name: getattr(table, name) for name in ("gateway_token_file", "grader_token_file")}
    return table.model_copy(update={name: base / path.expanduser() for name, path in files.items() if path is not None})


def _sources(found: Collected) -> dict[str, str]:
    sources = {name: str(found.origin((name,))) for name in SettingsFile.model_fields}
    for group in ("providers", "prices", "limits", "egress", "kubernetes"):
        inner = found.values.get(group, {})
        sources |= {f"{group}.{name}": str(found.origin((group, name))) for name in inner}
    return sources


def _key(source: KeySource, base: Path, variables: Mapping[str, str]) -> tuple[str | None, str]:
    """Return a provider's key, or None and why there is none."""
    if source.env is not None:
        value = variables.get(source.env, "").strip()
        return (value, "") if value else (None, f"the variable {source.env} is not set")
    path = base / Path(source.file or "").expanduser()
    try:
        with path.open("rb") as file:
            text = file.read(_KEY_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        return None, f"the key file {path} cannot be read: {reason}"
    if not text or "\n" in text:
        return None, f"the key file {path} must hold one line with the key"
    return text, ""
