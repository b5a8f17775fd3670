"""Configuration files of gateway and relay on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, StringConstraints

from orchestrator.gateway.config import (
    AdminTokens,
    AgentLimits,
    CheckedConfig,
    ClusterConfig,
    EgressConfig,
    ProviderConfig,
)
from orchestrator.gateway.relay_service import RelayConfig
from orchestrator.settings import ProviderEndpoint, ProviderType
from orchestrator.settings.kubernetes import ENDPOINT
from orchestrator.settings.part import ADDRESS
from orchestrator.settings.service_file import Secrets, read_service_file
from orchestrator.spec.base import Bytes

Endpoint = Annotated[str, StringConstraints(pattern=ENDPOINT)]
Url = Annotated[str, StringConstraints(pattern=ADDRESS)]


class TokenFiles(CheckedConfig):
    """Files with what those on the admin port must show."""

    driver: Path
    relay: Path
    reaper: Path


class ProviderFile(CheckedConfig):
    """A provider of models."""

    type: ProviderType = "openai"
    """The API that it speaks."""
    base_url: Url
    """Address without ``/chat/completions`` or ``/messages``."""
    query: dict[str, str] = Field(default_factory=dict)
    """Added to the address of every call."""
    endpoints: tuple[ProviderEndpoint, ...] | None = None
    """What it offers; as usual for its type when absent."""
    region: str | None = None
    """Region of ``bedrock``; read out of its address when absent."""
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
    folder_bytes: Bytes | None = None
    """Size of its disk: what agents send is recorded up to half of it at one time. Absent: 4 GiB."""
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
    egress: EgressConfig = EgressConfig(enabled=False)
    """What tasks with a network may reach; nothing unless enabled."""
    grace_seconds: float = Field(default=5, ge=0)
    """From a spent budget to the end of the agent."""
    settle_seconds: float = Field(default=2, ge=0)
    """How long open model calls may go on when their launch is sealed."""
    max_state_bytes: int = Field(default=64 << 30, gt=0)
    """Largest frozen state."""
    drain_seconds: float = Field(default=300, ge=0)
    """How long calls that are under way may go on after SIGTERM."""
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
    uploads: int = Field(default=16, ge=1)
    """Parts of states that are taken at one time: each may take 24 MiB of memory."""
    pod_addresses: bool = True
    """As for the gateway."""


def read_gateway_file(path: Path) -> tuple[GatewayFile, ClusterConfig]:
    """Return a gateway's file and what it says, with the secrets read. Raises SpecError with every problem: file, field, reason."""
    file = read_service_file(path, GatewayFile, _GROUPS)
    secrets = Secrets(path)
    tokens = {role: secrets.token(f"tokens.{role}", getattr(file.tokens, role)) for role in TokenFiles.model_fields}
    secrets.distinct(tokens)
    providers = {name: _provider(name, each, secrets) for name, each in file.providers.items()}
    secrets.check()
    common = file.model_dump(exclude={"store", "cache", "folder_bytes", "tokens", "providers", "limits", "egress"})
    return file, ClusterConfig(
        **common, limits=file.limits, egress=file.egress, tokens=AdminTokens(**tokens), providers=providers
    )


def read_relay_file(path: Path) -> tuple[RelayFile, RelayConfig]:
    """Return a relay's file and what it says, with its token read. Raises SpecError with every problem: file, field, reason."""
    file = read_service_file(path, RelayFile, {})
    secrets = Secrets(path)
    token = secrets.token("token", file.token)
    secrets.check()
    return file, RelayConfig(
        listen=file.listen,
        gateways=file.gateways,
        token=token,
        uploads=file.uploads,
        pod_addresses=file.pod_addresses,
    )


_GROUPS = {
    "tokens": tuple(TokenFiles.model_fields),
    "providers": tuple(ProviderFile.model_fields),
    "limits": tuple(AgentLimits.model_fields),
    "egress": tuple(EgressConfig.model_fields),
}


def _provider(name: str, file: ProviderFile, secrets: Secrets) -> ProviderConfig:
    at = f"providers.{name}"
    return ProviderConfig(
        **file.model_dump(exclude={"key_file", "headers_file"}),
        key=SecretStr(secrets.text(f"{at}.key_file", file.key_file)) if file.key_file else None,
        headers=secrets.headers(f"{at}.headers_file", file.headers_file) if file.headers_file else {},
    )
