"""Configuration files of gateway and relay on a cluster: JSON, with each secret in a file of its own that it names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, SecretStr, StringConstraints, ValidationError

from orchestrator.errors import Problem, SpecError, nearest
from orchestrator.gateway.config import AdminTokens, AgentLimits, CheckedConfig, ClusterConfig, ProviderConfig
from orchestrator.gateway.relay_service import RelayConfig
from orchestrator.settings.kubernetes import ENDPOINT
from orchestrator.settings.part import ADDRESS

_SHORTEST_TOKEN = 16
_SECRET_BYTES = 64 << 10
Endpoint = Annotated[str, StringConstraints(pattern=ENDPOINT)]
Url = Annotated[str, StringConstraints(pattern=ADDRESS)]
_PATTERNS = {
    ENDPOINT: "must be HOST:PORT",
    ADDRESS: "must be an http:// or https:// address without a user or key in it",
}
Model = TypeVar("Model", bound=BaseModel)


class TokenFiles(CheckedConfig):
    """Files with what those on the admin port must show."""

    driver: Path
    relay: Path
    reaper: Path


class ProviderFile(CheckedConfig):
    """An OpenAI-compatible provider."""

    base_url: Url
    """Address without ``/chat/completions``."""
    key_file: Path | None = None
    """File with nothing but the key; None: the provider needs none."""
    headers_file: Path | None = None
    """JSON file with more headers: one object of names and values."""
    timeout_seconds: float = Field(default=300, gt=0)
    """Seconds that one attempt may take."""
    concurrency: int = Field(default=64, ge=1)
    """Calls at one time."""
    attempts: int = Field(default=5, ge=1)
    """Attempts of one call, the first included."""
    backoff_seconds: float = Field(default=0.5, ge=0)
    """Pause before the second attempt; doubled for each further one."""


class GatewayFile(CheckedConfig):
    """``orchestrate serve gateway --config FILE``."""

    store: str = Field(min_length=1)
    """URL of the store."""
    cache: Path
    """Folder for unpacked bundles."""
    folder: Path
    """Folder for trajectories while they are written."""
    agent: Endpoint
    """Where pods come."""
    admin: Endpoint
    """Where drivers, relays and the reaper come."""
    tokens: TokenFiles
    """What these show."""
    providers: dict[str, ProviderFile] = Field(default_factory=dict)
    """Model providers by name; ``scripted`` is built in."""
    canaries: tuple[Endpoint, ...] = ()
    """Listeners that the gateway reaches and no pod may."""
    limits: AgentLimits = AgentLimits()
    """What one launch may do."""
    grace_seconds: float = Field(default=5, ge=0)
    """From a spent budget to the end of the agent."""
    settle_seconds: float = Field(default=2, ge=0)
    """How long open model calls may go on when their launch is sealed."""
    max_state_bytes: int = Field(default=64 << 30, gt=0)
    """Largest frozen state."""
    pod_addresses: bool = True
    """Whether connections come from the pods' own addresses, one for each. False where the network hides them (SNAT)."""


class RelayFile(CheckedConfig):
    """``orchestrate serve relay --config FILE``."""

    store: str = Field(min_length=1)
    """URL of the store."""
    listen: Endpoint
    """Where pods come."""
    gateways: tuple[Url, ...] = Field(min_length=1)
    """Admin addresses of the gateways, in the order that drivers have them in."""
    token: Path
    """File with what the relay shows at gateways."""
    pod_addresses: bool = True
    """As for the gateway."""


def read_gateway_file(path: Path) -> tuple[GatewayFile, ClusterConfig]:
    """Return a gateway's file and what it says, with the secrets read. Raises SpecError with every problem: file, field, reason."""
    file = _read(path, GatewayFile)
    secrets = _Secrets(path)
    tokens = {role: secrets.token(f"tokens.{role}", getattr(file.tokens, role)) for role in TokenFiles.model_fields}
    secrets.distinct(tokens)
    providers = {name: _provider(name, each, secrets) for name, each in file.providers.items()}
    secrets.check()
    common = file.model_dump(exclude={"store", "cache", "tokens", "providers", "limits"})
    return file, ClusterConfig(**common, limits=file.limits, tokens=AdminTokens(**tokens), providers=providers)


def read_relay_file(path: Path) -> tuple[RelayFile, RelayConfig]:
    """Return a relay's file and what it says, with its token read. Raises SpecError with every problem: file, field, reason."""
    file = _read(path, RelayFile)
    secrets = _Secrets(path)
    token = secrets.token("token", file.token)
    secrets.check()
    return file, RelayConfig(listen=file.listen, gateways=file.gateways, token=token, pod_addresses=file.pod_addresses)


_GROUPS = {
    "tokens": tuple(TokenFiles.model_fields),
    "providers": tuple(ProviderFile.model_fields),
    "limits": tuple(AgentLimits.model_fields),
}


class _Secrets:
    """Reads the files that a configuration names, and collects what is wrong with them."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)
        self._problems: list[Problem] = []

    def token(self, field: str, path: Path) -> SecretStr:
        """Return a token."""
        found = self.text(field, path)
        if found and len(found) < _SHORTEST_TOKEN:
            self._complain(field, f"{path} has {len(found)} characters; a token needs {_SHORTEST_TOKEN} or more")
        return SecretStr(found)

    def text(self, field: str, path: Path) -> str:
        """Return what a file holds, without the white space around it; empty when that is a problem."""
        try:
            with path.open("rb") as file:
                found = file.read(_SECRET_BYTES).decode().strip()
        except OSError as error:
            self._complain(field, f"{path} cannot be read: {error.strerror}")
            return ""
        except UnicodeDecodeError:
            found = ""
        if not found or ("\n" in found and not found.startswith("{")):
            self._complain(field, f"{path} must hold one line of text and nothing else")
            return ""
        return found

    def headers(self, field: str, path: Path) -> dict[str, SecretStr]:
        """Return the headers of a file."""
        found = self.text(field, path)
        try:
            value = json.loads(found) if found else {}
        except ValueError:
            value = None
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            self._complain(field, f"{path} must be a JSON object of header names and texts")
            return {}
        return {name: SecretStr(text) for name, text in value.items()}

    def distinct(self, tokens: Mapping[str, SecretStr]) -> None:
        """Complain of tokens that several roles share: whoever has one would be all of them."""
        counts = Counter(token.get_secret_value() for token in tokens.values())
        same = sorted(
            role for role, token in tokens.items() if token.get_secret_value() and counts[token.get_secret_value()] > 1
        )
        if same:
            self._complain("tokens", f"{' and '.join(same)} have the same token; give each role one of its own")

    def check(self) -> None:
        """Raise SpecError when there was a problem."""
        if self._problems:
            raise SpecError(self._problems)

    def _complain(self, field: str, message: str) -> None:
        self._problems.append(Problem(self._file, field=field, message=message))


def _provider(name: str, file: ProviderFile, secrets: _Secrets) -> ProviderConfig:
    at = f"providers.{name}"
    return ProviderConfig(
        base_url=file.base_url,
        key=SecretStr(secrets.text(f"{at}.key_file", file.key_file)) if file.key_file else None,
        headers=secrets.headers(f"{at}.headers_file", file.headers_file) if file.headers_file else {},
        timeout_seconds=file.timeout_seconds,
        concurrency=file.concurrency,
        attempts=file.attempts,
        backoff_seconds=file.backoff_seconds,
    )


def _read(path: Path, model: type[Model]) -> Model:
    try:
        data = path.read_bytes()
        json.loads(data)
        return model.model_validate_json(data)
    except OSError as error:
        raise SpecError([Problem(str(path), message=f"cannot be read: {error.strerror}")]) from None
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        names = {"": tuple(model.model_fields), **_GROUPS}
        problems = [Problem(str(path), field=_dotted(each["loc"]), message=_words(each, names)) for each in found]
        raise SpecError(problems) from None
    except json.JSONDecodeError as error:
        raise SpecError([Problem(str(path), error.lineno, error.colno, message=f"is not JSON: {error.msg}")]) from None
    except ValueError:
        raise SpecError([Problem(str(path), message="is not JSON: it is no UTF-8 text")]) from None


def _dotted(place: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _words(error: Any, names: Mapping[str, tuple[str, ...]]) -> str:
    """Return what is wrong, in words that never hold a value. ``names`` are the fields of each group."""
    kind, place = error["type"], error["loc"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        valid = names.get(str(place[0]) if len(place) > 1 else "", ())
        guess = nearest(str(place[-1]), valid)
        return f"is not a field{guess or '; there are ' + ', '.join(valid) if valid else ''}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS[str(error["ctx"]["pattern"])]
    return str(error["msg"]).replace("Input should", "must").replace("must be a valid", "must be a")
