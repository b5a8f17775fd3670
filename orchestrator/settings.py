"""What this machine is told: flags, then ``ORCHESTRATE_*``, then ``orchestrate.toml`` here or in a parent, then
defaults.

This is the only module that reads the environment. Importing it loads pydantic and the standard library alone.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, ValidationError, model_validator

from orchestrator.errors import Problem, SpecError, nearest

FILE = "orchestrate.toml"
_PREFIX = "ORCHESTRATE_"
KNOWN_PROVIDERS = {
    "openai": ("OPENAI_API_KEY", "https://api.openai.com/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "https://api.anthropic.com/v1"),
}
"""Providers that need no file: their key's variable, and their address for chat completions."""
MOST_AT_ONE_TIME = 256
"""Trials that one machine may run at one time, and gradings that one grader takes."""
MOST_PRICE_USD = 100_000
"""For a million tokens: above every real price, and low enough for sums in billionths of a dollar to fit in 64 bits."""
_KEY_BYTES = 64 << 10
_SETTABLE = (
    ("store",),
    ("backend",),
    ("container_engine",),
    ("pool",),
    ("supervisors",),
    ("concurrency",),
    ("confirm_over_usd",),
    ("limits", "trials"),
    ("limits", "cost_usd"),
    ("cache",),
    ("scratch",),
    ("logs",),
    ("max_launches",),
)
"""Settings that have a variable: ``ORCHESTRATE_LIMITS_TRIALS`` and so on."""
_NUMBERS = {
    ("supervisors",),
    ("concurrency",),
    ("confirm_over_usd",),
    ("limits", "trials"),
    ("limits", "cost_usd"),
    ("max_launches",),
}
_NOT_SETTINGS = {"ORCHESTRATE_GATEWAY", "ORCHESTRATE_TOKEN", "ORCHESTRATE_MODEL"}
"""Variables that programs inside a sandbox get."""
_OTHERS = ("ORCHESTRATE_GRADER_", "ORCHESTRATE_MODEL_", "ORCHESTRATE_TEST_")
"""Prefixes of variables that other programs read."""
_PATTERNS = {
    r"^https?://[^@\s]+$": "must be an http:// or https:// address without a user or key in it",
    r"^[a-z0-9_-]+$": "must be a provider's name: lower case letters, digits, dashes, underscores",
    r"^[a-z0-9_-]+/\S+$": "must be PROVIDER/NAME, for example openai/gpt-5-mini",
}


_ENGINE_VARIABLES = {
    *(
        "PATH",
        "HOME",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "STORAGE_DRIVER",
        "STORAGE_OPTS",
    ),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION"),
    *("CONTAINER_HOST", "CONTAINER_CONNECTION"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF"),
}
"""Variables that tell podman and docker where things are; none of them is a secret."""


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )


class KeySource(_Part):
    """Where a key is read from: one of the two."""

    env: str | None = Field(default=None, min_length=1)
    """Name of an environment variable."""
    file: str | None = Field(default=None, min_length=1)
    """File with nothing but the key; relative to ``orchestrate.toml``."""

    @model_validator(mode="after")
    def _one(self) -> KeySource:
        if (self.env is None) == (self.file is None):
            msg = 'give one of env, file: key = {env = "NAME"} or key = {file = "PATH"}'
            raise ValueError(msg)
        return self


class Provider(_Part):
    """A model provider with an OpenAI-compatible address."""

    base_url: str = Field(pattern=r"^https?://[^@\s]+$")
    """Address without ``/chat/completions``, and without a user or key in it."""
    key: KeySource | None = None
    """Where the key comes from; None: the provider needs none."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """More headers for every call. They may hold secrets and are never shown."""
    timeout_seconds: float = Field(default=300, gt=0)
    """Seconds that one attempt may take."""
    concurrency: int = Field(default=64, ge=1)
    """Calls at one time."""


class KeyedProvider(Provider):
    """A provider with its key, as loaded."""

    secret: SecretStr | None = Field(default=None, exclude=True)
    """The key itself; None when the provider needs none or when it could not be read."""


class ModelPrice(_Part):
    """US dollars for a million tokens."""

    input: float = Field(ge=0, le=MOST_PRICE_USD)
    """Uncached input tokens."""
    output: float = Field(ge=0, le=MOST_PRICE_USD)
    """Output tokens, reasoning included."""
    cache_read: float | None = Field(default=None, ge=0, le=MOST_PRICE_USD)
    """Input tokens read from a cache; as ``input`` when absent."""
    cache_write: float | None = Field(default=None, ge=0, le=MOST_PRICE_USD)
    """Input tokens written to a cache; as ``input`` when absent."""


class Limits(_Part):
    """What one run may use."""

    trials: int | None = Field(default=None, gt=0)
    """Most trials."""
    cost_usd: float | None = Field(default=None, gt=0)
    """Most US dollars."""


ProviderName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$")]
ModelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+/\S+$")]


class SettingsFile(_Part):
    """``orchestrate.toml``: everything that can be set. Paths in it are relative to it."""

    store: str = Field(default=".orchestrate/store", min_length=1)
    """Where runs are kept: a folder, a ``file://`` URL, or ``s3://BUCKET/PREFIX`` with ``?endpoint=http://HOST:PORT`` for a
    service that speaks S3. Credentials are found as AWS tools find them and never stand here."""
    backend: Literal["auto", "bubblewrap", "container", "kubernetes"] = "auto"
    """Where trials run."""
    container_engine: str | None = Field(default=None, min_length=1)
    """The container engine, ``podman`` or ``docker``, with global options of its own where it needs any; the first that is found when
    absent."""
    pool: Literal["inline", "ray"] = "inline"
    """Who runs them: this process, or processes of a Ray cluster: that of ``RAY_ADDRESS``, or one of our own on this machine."""
    supervisors: int | None = Field(default=None, ge=1, le=MOST_AT_ONE_TIME)
    """Processes that run trials with ``pool = "ray"``; by the processors of the cluster when absent."""
    concurrency: int | None = Field(default=None, ge=1, le=MOST_AT_ONE_TIME)
    """Trials at one time; by the machine's processors when absent."""
    providers: Mapping[ProviderName, Provider] = Field(default_factory=dict)
    """Model providers by name. ``scripted`` is built in."""
    prices: dict[ModelName, ModelPrice] = Field(default_factory=dict)
    """Prices by ``provider/name``; an agent's own prices win."""
    confirm_over_usd: float = Field(default=10, ge=0)
    """Estimated cost in US dollars above which ``submit`` asks first."""
    limits: Limits = Limits()
    """What one run may use, unless its submission says less."""
    cache: Path = Path(".orchestrate/cache")
    """Folder for unpacked bundles."""
    scratch: Path | None = None
    """Folder for sockets and for sandboxes while they run; its path must be short. The system's temporary folder when absent."""
    logs: Path = Path(".orchestrate/logs")
    """Folder for the logs of gateway and grader."""
    max_launches: int = Field(default=3, ge=1, le=20)
    """Launches of one trial, when infrastructure fails."""


class Settings(SettingsFile):
    """The settings in force. Every path is absolute."""

    providers: Mapping[ProviderName, KeyedProvider] = Field(default_factory=dict)
    """Model providers by name, with their keys. ``scripted`` is built in."""
    key_problems: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Provider to the reason why its key could not be read. Only a run that uses the provider is stopped by it."""
    sources: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Where each setting came from: ``flag``, a variable, ``FILE:LINE`` or ``default``."""

    def provider_secrets(self) -> dict[str, dict[str, Any]]:
        """Return the providers as the gateway is told them.

        With keys in plain text: only for the pipe to the gateway.
        """
        return {
            name: {
                "base_url": provider.base_url,
                "key": provider.secret.get_secret_value() if provider.secret else None,
                "headers": {header: value.get_secret_value() for header, value in provider.headers.items()},
                "timeout_seconds": provider.timeout_seconds,
                "concurrency": provider.concurrency,
            }
            for name, provider in self.providers.items()
        }


def ray_address() -> str | None:
    """Return the address of the Ray cluster that this user works with, as Ray's own tools take it; None: there is none."""
    return os.environ.get("RAY_ADDRESS", "").strip() or None


def local_ray_variables(token: Path) -> dict[str, str]:
    """Return the variables for a Ray cluster on this machine that only the owner of the token file can use.

    Every process of it, and every process that connects to it, must have them before it loads Ray.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system: listen on the loopback interface alone
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def set_variables(variables: Mapping[str, str]) -> None:
    """Set variables of this process, for libraries that read nothing else."""
    os.environ.update(variables)


_Path = tuple[str, ...]
_FLAG = "flag"


@dataclass
class _Origin:
    """One place that settings come from."""

    name: str
    """``flag``, a variable's name, or the shown path of the file."""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass
class _Collected:
    """Values from all places, the stronger ones last, with the origin of each."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[_Path, _Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    wrong: list[_Path] = field(default_factory=list)
    """Where the values are that were complained of."""

    def put(self, path: _Path, value: Any, origin: _Origin) -> None:
        """Set one value."""
        here = self.values
        for part in path[:-1]:
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                return
            here = inner
        here[path[-1]] = value
        for known in [each for each in self.origins if each[: len(path)] == path]:
            del self.origins[known]
        self.origins[path] = origin

    def origin(self, path: _Path) -> _Origin:
        """Return where a value, or the nearest thing around it, was set."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        inner = [origin for known, origin in self.origins.items() if known[: len(path)] == path]
        return inner[0] if inner else _Origin("default")

    def complain(self, path: _Path, message: str) -> None:
        """Note a problem where the value was set."""
        self.wrong.append(path)
        origin = self.origin(path)
        if origin.name == _FLAG:
            self.problems.append(Problem(f"--{'.'.join(path).replace('_', '-')}", message=message))
        else:
            self.problems.append(Problem(origin.name, origin.line, origin.column, ".".join(path), message))

    def drop(self, path: _Path) -> None:
        """Forget a value: in a group its entry, else the whole setting."""
        inner = self.values.get(path[0]) if path else None
        top = path[:2] if len(path) > 1 and isinstance(inner, dict) and path[1] in inner else path[:1]
        holder = inner if len(top) == 2 and isinstance(inner, dict) else self.values
        if top:
            holder.pop(top[-1], None)
        else:
            self.values.clear()
        self.origins = {known: origin for known, origin in self.origins.items() if known[: len(top)] != top}

    def get(self, path: _Path) -> Any:
        """Return the value at a path, or None when it is absent."""
        here: Any = self.values
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        return here


def load_settings(
    cwd: Path, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings in force in a folder.

    ``overrides`` are what was typed: names (dotted for parts, ``limits.trials``) to values; None means not typed.
    ``environ`` is the process's own environment when absent. Raises SpecError with every problem, at its file and line
    or variable.
    """
    found, base, variables = _collected(cwd, environ, overrides)
    checked = _validated(found)
    if checked is None or found.problems:
        raise SpecError(found.problems)
    return _finished(checked, found, base, variables)


def usable_settings(
    cwd: Path, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> tuple[Settings, tuple[Problem, ...]]:
    """Return as ``load_settings`` does, and every problem: what cannot be used has its default instead. For looking, not for runs."""
    found, base, variables = _collected(cwd, environ, overrides)
    while (checked := _validated(found)) is None:
        for path in found.wrong:
            found.drop(path)
        found.wrong.clear()
    problems = tuple(sorted(set(found.problems)))
    return _finished(checked, found, base, variables), problems


def _collected(
    cwd: Path, environ: Mapping[str, str] | None, overrides: Mapping[str, Any] | None
) -> tuple[_Collected, Path, Mapping[str, str]]:
    """Return what all places say, the folder of the settings file, and the variables."""
    variables = os.environ if environ is None else environ
    cwd = cwd.absolute()
    found = _Collected()
    file = next((folder / FILE for folder in (cwd, *cwd.parents) if (folder / FILE).is_file()), None)
    base = cwd if file is None else file.parent
    _read_file(file, cwd, found)
    _read_variables(variables, cwd, found)
    for name, value in (overrides or {}).items():
        if value is not None:
            path = tuple(name.split("."))
            typed = str(value) if isinstance(value, Path) else value
            found.put(path, _anchored(path, typed, cwd), _Origin(_FLAG))
    _known_providers(variables, found)
    return found, base, variables


def engine_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a container engine is started with: those that say where its daemon, storage and settings are."""
    variables = os.environ if environ is None else environ
    return {name: value for name, value in variables.items() if name in _ENGINE_VARIABLES}


def _anchored(path: _Path, value: Any, folder: Path) -> Any:
    """Return a path-like setting relative to the folder of the place where it was written, as an absolute path."""
    if path not in {("store",), ("cache",), ("scratch",), ("logs",)} or not isinstance(value, str) or not value:
        return value
    return value if "://" in value else str(folder / Path(value).expanduser())


def _finished(checked: SettingsFile, found: _Collected, base: Path, variables: Mapping[str, str]) -> Settings:
    values = {name: getattr(checked, name) for name in SettingsFile.model_fields}
    values["store"] = _anchored(("store",), checked.store, base)
    values["cache"], values["logs"] = base / checked.cache, base / checked.logs
    values["scratch"] = None if checked.scratch is None else base / checked.scratch
    providers: dict[str, KeyedProvider] = {}
    problems: dict[str, str] = {}
    for name, provider in checked.providers.items():
        key, problem = (None, "") if provider.key is None else _key(provider.key, base, variables)
        if problem:
            problems[name] = problem
        fields = {field: getattr(provider, field) for field in Provider.model_fields}
        providers[name] = KeyedProvider(**fields, secret=None if key is None else SecretStr(key))
    values["providers"] = providers
    return Settings(**values, key_problems=problems, sources=_sources(found))


def _sources(found: _Collected) -> dict[str, str]:
    sources = {name: str(found.origin((name,))) for name in SettingsFile.model_fields}
    for group in ("providers", "prices", "limits"):
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


def _known_providers(variables: Mapping[str, str], found: _Collected) -> None:
    providers = found.values.get("providers", {})
    for name, (variable, address) in KNOWN_PROVIDERS.items():
        if variables.get(variable, "").strip() and isinstance(providers, dict) and name not in providers:
            found.put(("providers", name), {"base_url": address, "key": {"env": variable}}, _Origin(variable))


def _read_variables(variables: Mapping[str, str], cwd: Path, found: _Collected) -> None:
    known = {f"{_PREFIX}{'_'.join(path).upper()}": path for path in _SETTABLE}
    for name in sorted(variables):
        if not name.startswith(_PREFIX) or name in _NOT_SETTINGS or name.startswith(_OTHERS):
            continue
        if name not in known:
            found.problems.append(Problem(name, message=f"no setting has this variable{nearest(name, known)}"))
        elif variables[name]:
            path = known[name]
            found.put(path, _anchored(path, _typed(path, variables[name]), cwd), _Origin(name))


def _typed(path: _Path, text: str) -> Any:
    """Return a variable's text as a number where a number is wanted and it is one."""
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


def _read_file(file: Path | None, cwd: Path, found: _Collected) -> None:
    if file is None:
        return
    shown = str(file.relative_to(cwd)) if file.is_relative_to(cwd) else str(file)
    try:
        text = file.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except OSError as error:
        found.problems.append(Problem(shown, message=f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError:
        found.problems.append(Problem(shown, message="the file is not UTF-8 text"))
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"^(.*?) \(at line (\d+), column (\d+)\)$", str(error))
        place = (int(match[2]), int(match[3])) if match else (0, 0)
        message = f"not valid TOML: {match[1] if match else error}"
        found.problems.append(Problem(shown, *place, message=message))
    else:
        lines = _toml_lines(text)
        for name, value in values.items():
            found.put((name,), _anchored((name,), value, file.parent), _Origin(shown, *lines.get((name,), (0, 0))))
        for path, (line, column) in lines.items():
            found.origins[path] = _Origin(shown, line, column)


_HEADER = re.compile(r"\s*\[{1,2}\s*(.*?)\s*\]{1,2}\s*(#.*)?")
_ASSIGNMENT = re.compile(
    r"""(\s*)((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def _toml_lines(text: str) -> dict[_Path, tuple[int, int]]:
    """Return line and column of each table and key; tomllib keeps none.

    Keys within inline tables have their table's.
    """
    lines: dict[_Path, tuple[int, int]] = {}
    table: _Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        assignment = None if header else _ASSIGNMENT.match(line)
        if header:
            table = tuple(part.strip("\"'") for part in _KEY.findall(header[1]))
            path, column = table, line.index("[") + 1
        elif assignment:
            path = (*table, *(part.strip("\"'") for part in _KEY.findall(assignment[2])))
            column = len(assignment[1]) + 1
        else:
            continue
        for end in range(1, len(path) + 1):
            lines.setdefault(path[:end], (number, column))
    return lines


def _validated(found: _Collected) -> SettingsFile | None:
    try:
        return SettingsFile.model_validate_json(json.dumps(found.values, default=str))
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            path = tuple(str(part) for part in each["loc"] if part != "[key]")
            found.complain(path, _message(each, path, found.get(path)))
        return None


def _message(error: Any, path: _Path, value: Any) -> str:
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


def _valid_names(path: _Path) -> list[str]:
    groups: dict[str, type[BaseModel]] = {"providers": Provider, "prices": ModelPrice, "limits": Limits}
    if not path:
        return list(SettingsFile.model_fields)
    model = KeySource if len(path) == 3 and path[2] == "key" else groups.get(path[0])
    return [] if model is None else list(model.model_fields)
