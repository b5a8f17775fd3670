"""Everything that can be set, as models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, StringConstraints, model_validator

from orchestrator.settings.kubernetes import Kubernetes
from orchestrator.settings.part import ADDRESS, NetworkText, Part
from orchestrator.settings.price import Price

KNOWN_PROVIDERS = {
    "openai": ("OPENAI_API_KEY", "https://api.openai.com/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "https://api.anthropic.com/v1"),
}
"""Providers that need no file: their key's variable, and their address. Each speaks the API of its name."""
MOST_AT_ONE_TIME = 256
"""Trials that one machine may run at one time, and gradings that one grader takes."""
MOST_IN_FLIGHT = 20_000
"""Trials that one driver may run at one time on a cluster."""


ProviderType = Literal["openai", "anthropic", "bedrock", "http", "mcp"]
"""The APIs that providers speak; ``http`` and ``mcp`` are tool servers of tasks (``upstream``), not providers of models."""
ProviderEndpoint = Literal["chat", "responses", "messages", "embeddings"]
"""Shapes of calls to models."""


class KeySource(Part):
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


class Provider(Part):
    """A model provider."""

    type: ProviderType = "openai"
    """The API that it speaks: ``openai``, which most are compatible with, Azure among them; ``anthropic``; or ``bedrock``, which is asked
    for Claude models with the credentials that AWS tools find."""
    base_url: str = Field(pattern=ADDRESS)
    """Address without ``/chat/completions`` or ``/messages``, and without a user or key in it."""
    query: dict[str, str] = Field(default_factory=dict)
    """Added to the address of every call, such as ``{api-version = "2024-10-21"}``."""
    endpoints: tuple[ProviderEndpoint, ...] | None = None
    """What it offers. Absent: ``chat, responses, embeddings`` of ``openai``, ``messages, chat`` of ``anthropic``, ``messages`` of
    ``bedrock``."""
    region: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$")
    """Region of ``bedrock``; read out of its address when absent."""
    key: KeySource | None = None
    """Where the key comes from; None: the provider needs none."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """More headers for every call. They may hold secrets and are never shown."""
    timeout_seconds: float = Field(default=300, gt=0)
    """Seconds that one attempt may take; of a stream, those without a sign of life."""
    concurrency: int = Field(default=64, ge=1)
    """Most calls at one time. While the provider says that it is too much there are fewer."""


class KeyedProvider(Provider):
    """A provider with its key, as loaded."""

    secret: SecretStr | None = Field(default=None, exclude=True)
    """The key itself; None when the provider needs none or when it could not be read."""


class Limits(Part):
    """What one run may use."""

    trials: int | None = Field(default=None, gt=0)
    """Most trials."""
    cost_usd: float | None = Field(default=None, gt=0)
    """Most US dollars."""


ProviderName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$")]
ModelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+/\S+$")]


class Egress(Part):
    """What tasks with a network may reach beside public addresses, through the gateway of this machine."""

    allowed: tuple[NetworkText, ...] = ()
    """Networks in CIDR form that may be reached though they are not public, such as that of a mirror. Tasks still list hosts."""
    denied: tuple[NetworkText, ...] = ()
    """Networks that may not be reached though they are public."""


class SettingsFile(Part):
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
    concurrency: int | None = Field(default=None, ge=1, le=MOST_IN_FLIGHT)
    """Trials at one time, on one machine at most 256; by its processors when absent, 20 on a cluster."""
    providers: Mapping[ProviderName, Provider] = Field(default_factory=dict)
    """Model providers by name. ``scripted`` is built in."""
    prices: dict[ModelName, Price] = Field(default_factory=dict)
    """Prices by ``provider/name``; they win over published ones, and an agent's own over them."""
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
    egress: Egress = Egress()
    """What tasks with a network may reach."""
    kubernetes: Kubernetes = Kubernetes()
    """Trials as pods of a cluster."""


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
                "type": provider.type,
                "base_url": provider.base_url,
                "query": provider.query,
                "endpoints": provider.endpoints,
                "region": provider.region,
                "key": provider.secret.get_secret_value() if provider.secret else None,
                "headers": {header: value.get_secret_value() for header, value in provider.headers.items()},
                "timeout_seconds": provider.timeout_seconds,
                "concurrency": provider.concurrency,
            }
            for name, provider in self.providers.items()
        }
