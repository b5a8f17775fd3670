"""What a gateway is told when it starts.

On one machine it is one JSON line on standard input, because it holds secrets; on a cluster a file, with the secrets in files of their
own (``service_file``).
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from orchestrator.errors import SpecError
from orchestrator.settings import ProviderEndpoint, ProviderType
from orchestrator.settings.part import NetworkText


class CheckedConfig(BaseModel):
    """Base of configurations: strict, and silent about values, since some are secrets."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )


class ProviderConfig(CheckedConfig):
    """A provider of models."""

    type: ProviderType = "openai"
    """The API that it speaks."""
    base_url: str = Field(pattern=r"^https?://")
    """Address without ``/chat/completions`` or ``/messages``."""
    query: dict[str, str] = Field(default_factory=dict)
    """Added to the address of every call."""
    endpoints: tuple[ProviderEndpoint, ...] | None = None
    """What it offers; as usual for its type when absent."""
    region: str | None = None
    """Region of ``bedrock``."""
    key: SecretStr | None = None
    """Shown as the provider's API wants it; None shows none."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """More headers; their values are kept as secret as the key."""
    timeout_seconds: float = Field(default=300, gt=0)
    """Seconds that one attempt may take; of a stream, those without a sign of life."""
    stream_seconds: float = Field(default=3600, gt=0)
    """Seconds that a stream may take in all, however lively it is."""
    concurrency: int = Field(default=64, ge=1)
    """Most calls at one time; more wait, and waiting is not the agent's time. Fewer while the provider says that it is too much."""
    attempts: int = Field(default=5, ge=1)
    """Attempts of one call, the first included."""
    backoff_seconds: float = Field(default=0.5, ge=0)
    """Pause before the second attempt; doubled for each further one, 60 s at most."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is cut out of everything that a provider says. A value of less than 8 characters would cut ordinary words."""
        values = [self.key, *self.headers.values()]
        return tuple(found for value in values if value is not None and len(found := value.get_secret_value()) >= 8)


class AgentLimits(CheckedConfig):
    """What one launch may do to this process."""

    body_bytes: int = Field(default=16 << 20, gt=0)
    """Largest request body."""
    buffered_bytes: int = Field(default=64 << 20, gt=0)
    """All request bodies of one launch that are being read or handled."""
    depth: int = Field(default=64, gt=0)
    """Nesting of JSON."""
    values: int = Field(default=100_000, gt=0)
    """Values in one request's JSON: two bytes of text can become hundreds in memory, and each is looked at."""
    messages: int = Field(default=10_000, gt=0)
    """Messages in one request."""
    calls: int = Field(default=16, gt=0)
    """Model calls at one time; more wait, and waiting for calls of one's own is the agent's time."""
    connections: int = Field(default=32, gt=0)
    """Connections at one time on a launch's own listener, where more wait in the kernel's queue; requests at one time of a pod."""
    waiting: int = Field(default=64, ge=0)
    """Further requests of a pod's agent that may wait for a place; more are refused."""
    idle_seconds: float = Field(default=60, gt=0)
    """How long a connection may be without a whole request head."""
    body_seconds: float = Field(default=30, gt=0)
    """How long a request body may take to arrive."""
    stall_seconds: float = Field(default=60, gt=0)
    """How long the reader of a stream may keep its model waiting, all its pauses together; then it is taken for gone."""


class EgressConfig(CheckedConfig):
    """What tasks with a network may reach, beside the rules of each task."""

    enabled: bool = True
    """Whether this gateway can reach anything outside: tasks that need it are refused where not."""
    allowed: tuple[NetworkText, ...] = ()
    """Networks (CIDR) that may be reached though they are not public."""
    denied: tuple[NetworkText, ...] = ()
    """Networks (CIDR) that may not be reached though they are public."""
    connections: int = Field(default=16, gt=0)
    """Connections of one launch at one time."""
    bytes: int = Field(default=16 << 30, gt=0)
    """Bytes of one launch, both directions together."""
    connect_seconds: float = Field(default=10, gt=0)
    """How long a name may take to be found, and an address to answer."""
    idle_seconds: float = Field(default=300, gt=0)
    """How long a connection may be still."""

    @property
    def allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """``allowed``, parsed."""
        return tuple(map(ip_network, self.allowed))

    @property
    def denied_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """``denied``, parsed."""
        return tuple(map(ip_network, self.denied))


class CommonConfig(CheckedConfig):
    """What every gateway is told."""

    folder: Path
    """Folder for trajectory files while they are written."""
    providers: dict[str, ProviderConfig] = Field(default_factory=dict)
    """Providers by name; ``scripted`` is built in."""
    epoch: int = Field(default=0, ge=0)
    """Driver epochs below this one are refused from the start."""
    limits: AgentLimits = AgentLimits()
    """What one launch may do."""
    egress: EgressConfig = EgressConfig()
    """What tasks with a network may reach."""
    world_program: tuple[str, ...] = ()
    """The command of the program that holds worlds; without one, tasks with a world are refused."""
    grace_seconds: float = Field(default=5, ge=0)
    """From the answer ``budget_exhausted`` to the end of the sandbox."""
    settle_seconds: float = Field(default=2, ge=0)
    """How long open model calls may go on when their launch is sealed."""
    max_state_bytes: int = Field(default=64 << 30, gt=0)
    """Largest frozen state."""

    @property
    def serves_pods(self) -> bool:
        """Whether sandboxes are pods: they come over the network, outlive their drivers, and have programs of their own."""
        return False


class GatewayConfig(CommonConfig):
    """A gateway on one machine."""

    socket: str = Field(min_length=1)
    """Unix socket for driver and freezers (HTTP). At most 107 bytes."""
    door: str = Field(min_length=1)
    """Unix socket that takes the listening sockets of sandboxes. At most 107 bytes."""
    admin_token: SecretStr
    """What the driver must show."""

    @classmethod
    def from_json_line(cls, line: str | bytes) -> GatewayConfig:
        """Read the configuration. Raises SpecError, which names fields and never values."""
        try:
            return cls.model_validate_json(line)
        except ValidationError as error:
            found = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)]
            msg = "the gateway's configuration on standard input is not usable: " + "; ".join(found)
            raise SpecError(msg) from None


class AdminTokens(CheckedConfig):
    """What those on the admin port must show; each opens its own endpoints and no others."""

    driver: SecretStr
    relay: SecretStr
    reaper: SecretStr


class ClusterConfig(CommonConfig):
    """A gateway that serves pods."""

    agent: str
    """``HOST:PORT`` that pods reach."""
    admin: str
    """``HOST:PORT`` that drivers, relays and the reaper reach."""
    tokens: AdminTokens
    """Who is who on the admin port."""
    canaries: tuple[str, ...] = ()
    """``HOST:PORT`` of listeners that the gateway can reach and no pod may."""
    drain_seconds: float = Field(default=300, ge=0)
    """How long calls that are under way may go on after SIGTERM."""
    pod_addresses: bool = True
    """Whether connections come from the pods' own addresses, one for each: tokens are then bound to them."""

    @property
    def serves_pods(self) -> bool:
        """True."""
        return True
