"""The task file: what an agent is asked, where, within which limits, and what decides the result."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from orchestrator.spec.base import Bytes, Glob, Name, RelativePath, Spec
from orchestrator.spec.checks import AnyOfCheck, Check, Invariant, Judge, Measure, TraceCheck
from orchestrator.spec.hosts import HostRuleText

RESERVED = {
    "services": "extra containers beside the agent",
    "steps": "tasks of several steps",
    "environment.resources.gpu": "graphics processors",
}
"""Words of the format that are kept for later: refused by name, so that no file means something else one day."""

IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$"
"""A reference of a container image, as far as a text can be one: it never begins like an option."""

PINNED_IMAGE = r"^([A-Za-z0-9][A-Za-z0-9._:/-]*@)?sha256:[0-9a-f]{64}$"
"""An image that can mean only one thing: a name with a digest, or the id of an image on this machine."""

ToolPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z*?][A-Za-z0-9_*?-]{0,63}$")]
"""Name of a tool, in which ``*`` and ``?`` may stand for others."""
ArgumentPath = Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+){0,31}$", max_length=1000)]
"""Where a value is: names with dots between them, ``*`` for every name or every entry of a list."""

Expect = Literal["complete", "decline", "ask", "ask_then_complete"]
Kind = Literal["capability", "regression"]


class Origin(Spec):
    """Where the task comes from. Exactly one of the three."""

    incident: str | None = None
    """Key of the incident in a tracker. Incident tasks always run in a gate."""
    intent: str | None = None
    """The production intent that it stands for."""
    synthetic: str | None = None
    """Why it was made up."""

    @model_validator(mode="after")
    def _one(self) -> Origin:
        if sum(value is not None for value in (self.incident, self.intent, self.synthetic)) != 1:
            msg = "give exactly one of incident, intent, synthetic"
            raise ValueError(msg)
        return self


class RepositoryWorkspace(Spec):
    """A git repository at one commit, without later history and without a remote."""

    repository: str
    """URL or path that ``git`` can clone."""
    commit: str = Field(pattern=r"^[0-9a-f]{7,40}$")
    """The commit, in hex."""


class ImageWorkspace(Spec):
    """A folder that is already in the task's image."""

    image_path: str = Field(pattern=r"^/")
    """Absolute path in the image."""


class Resources(Spec):
    """What one trial may use."""

    cpu: float = Field(default=1, gt=0, le=64)
    """Processors."""
    memory: Bytes = 2**30
    """Memory in bytes, for example ``1Gi``."""
    disk: Bytes = 2**30
    """Workspace and temporary files together, in bytes."""
    processes: int = Field(default=256, ge=8, le=32768)
    """Processes and threads at one time."""


class StateOptions(Spec):
    """What is kept of the world the agent leaves."""

    exclude: tuple[Glob, ...] = ()
    """Patterns over the workspace that are not frozen. May not cover a checked path."""


class AllowlistNetwork(Spec):
    """Some hosts may be reached, through the gateway's logged proxy."""

    allowlist: tuple[HostRuleText, ...] = Field(min_length=1)
    """``HOST``, ``*.HOST`` or ``*``, each with ``:PORT`` or ``:*``; without a port it means 443."""


def _workspace_kind(value: Any) -> str:
    if isinstance(value, ImageWorkspace) or (isinstance(value, dict) and "image_path" in value):
        return "image"
    return "repository" if isinstance(value, dict | RepositoryWorkspace) else "folder"


def _network_kind(value: Any) -> str:
    return "allowlist" if isinstance(value, dict | AllowlistNetwork) else "word"


Workspace = Annotated[
    Annotated[RelativePath, Tag("folder")]
    | Annotated[RepositoryWorkspace, Tag("repository")]
    | Annotated[ImageWorkspace, Tag("image")],
    Discriminator(_workspace_kind),
]
Network = Annotated[
    Annotated[Literal["model_only", "public"], Tag("word")] | Annotated[AllowlistNetwork, Tag("allowlist")],
    Discriminator(_network_kind),
]


class Environment(Spec):
    """Where the agent works."""

    image: Annotated[str, StringConstraints(pattern=IMAGE)] | None = None
    """Container image: ``name@sha256:…``, or a name that ``images.lock.json`` pins. In what the loader returns it is the
    pinned image, of a ``build`` too."""
    build: RelativePath | None = None
    """Folder with a Dockerfile that makes the image; ``images.lock.json`` pins what it made."""
    requires: tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._+-]+$")], ...] = ()
    """Programs that the bubblewrap backend must find on this machine."""
    workspace: Workspace = "workspace/"
    """What the agent starts from: a folder of the task, a repository at a commit, or a folder of the image."""
    workdir: str = Field(default="/workspace", pattern=r"^/")
    """Absolute path that the workspace has in the sandbox."""
    user: Literal["agent", "root"] = "agent"
    """``agent`` is one numeric uid everywhere; ``root`` only where the isolation allows it."""
    isolation: Literal["container", "gvisor", "vm"] = "container"
    """``container`` means namespaces on a shared kernel; the others are stronger and refused where they are not to be had."""
    network: Network = "model_only"
    """``model_only``: nothing but the gateway. ``public`` goes through a logged proxy and labels the trial unfrozen."""
    resources: Resources = Resources()
    """Limits of one trial."""
    now: AwareDatetime | None = None
    """The frozen clock, RFC 3339 with a zone."""
    memory: RelativePath | None = None
    """Folder with the agent's frozen memory, laid read-only at ``/memory``."""
    state: StateOptions = StateOptions()
    """What is frozen."""


class HttpUpstream(Spec):
    """A plain HTTP API."""

    methods: tuple[Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], ...] = Field(
        default=("GET",), min_length=1
    )
    """What may be asked for."""


class McpUpstream(Spec):
    """An MCP server (streamable HTTP)."""

    tools: tuple[ToolPattern, ...] = Field(default=("*",), min_length=1)
    """Which of its tools are offered."""


class Upstream(Spec):
    """A team's real tool server. Only the gateway reaches it: its address and keys stand in the settings, as a provider of type ``http``
    or ``mcp`` of that name."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]
    """Of the provider. An API is the tool of that name, and ``/upstream/NAME/…``; tools of an MCP server are ``NAME_TOOL``."""
    mcp: McpUpstream | None = None
    """It is an MCP server."""
    http: HttpUpstream | None = None
    """It is an HTTP API."""

    @model_validator(mode="after")
    def _one(self) -> Upstream:
        if (self.mcp is None) == (self.http is None):
            msg = 'give exactly one of http, mcp: http: {methods: [GET]} or mcp: {tools: ["*"]}'
            raise ValueError(msg)
        return self


class Fixtures(Spec):
    """Recorded responses of tools."""

    mode: Literal["replay", "record", "live"] = "replay"
    """``replay`` answers ``tools`` from the cassette, ``live`` has the world answer them. ``record``: there is no cassette yet."""
    cassette: RelativePath
    """JSON Lines file of the task."""
    tools: tuple[ToolPattern, ...] = ()
    """Tools of the task's world that are answered from the cassette, by name or pattern (``get_*``). What the cassette itself brings is
    answered from it in any case."""
    volatile: tuple[ArgumentPath, ...] = ()
    """Arguments that make no difference, such as ``request_id`` or ``items.*.sent_at``."""
    redact: tuple[ArgumentPath, ...] = ()
    """Arguments and parts of answers that are secret: a cassette does not hold them, so they make no difference either."""


class User(Spec):
    """A simulated user for conversations."""

    mode: Literal["scripted", "model"]
    """Who plays the user."""
    opening: str | None = None
    """What the user says first; it stands in the instruction."""
    replies: RelativePath | None = None
    """YAML file with scripted replies."""
    model: Annotated[str, StringConstraints(pattern=r"^[^/\s]+/\S+$")] | None = None
    """``provider/name`` of the model that plays the user."""
    persona: Literal["user.md"] | None = None
    """File beside ``task.yaml`` that says to the model who the user is, what they want and what they know."""
    max_turns: int = Field(default=12, gt=0, le=100)
    """Questions that the user answers, at most."""

    @model_validator(mode="after")
    def _one_mode(self) -> User:
        scripted, model = ("replies",), ("model", "persona")
        wanted, others = (scripted, model) if self.mode == "scripted" else (model, scripted)
        problems = [f"mode {self.mode!r} needs {name!r}" for name in wanted if getattr(self, name) is None]
        problems += [f"{name!r} is not for mode {self.mode!r}" for name in others if getattr(self, name) is not None]
        if problems:
            raise ValueError("; ".join(problems))
        return self


class ExpectedTools(Spec):
    """Which tools fit a phase of the work."""

    phase: str
    any_of: tuple[str, ...] = Field(min_length=1)


class Tools(Spec):
    """Tools of the task, for policy and for the trajectory metrics."""

    allow: tuple[str, ...] | None = None
    """Tools that may be called; all when absent."""
    expected: tuple[ExpectedTools, ...] = ()
    """Which tools fit which phase."""
    verify: tuple[str, ...] = ()
    """Patterns of tools and commands that count as verifying."""


class Budgets(Spec):
    """What one trial may spend. Reaching a limit is a result with a reason of its own."""

    max_steps: int = Field(default=40, gt=0)
    """Model responses."""
    max_tool_calls: int = Field(default=100, gt=0)
    """Tool calls."""
    max_wall_seconds: int = Field(default=900, gt=0)
    """Working time in seconds: wall clock without waiting at the gateway."""
    hard_wall_seconds: int | None = Field(default=None, gt=0)
    """Wall clock in seconds after which the sandbox is ended in any case; twice ``max_wall_seconds`` when absent."""
    max_tokens: int = Field(default=200_000, gt=0, le=10**9)
    """Tokens of all model calls, in and out."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """US dollars of all model calls. Refused for a model without a known price."""

    @property
    def hard_seconds(self) -> int:
        """Wall clock in seconds after which the sandbox is ended in any case."""
        return self.hard_wall_seconds or 2 * self.max_wall_seconds


class Task(Spec):
    """One task, after the suite's defaults were filled in."""

    id: Name
    """Name of the task, unique in the suite."""
    version: int = Field(default=1, gt=0)
    """Raised by the author when the task changes its meaning."""
    kind: Kind = "capability"
    """``regression`` tasks block a merge; ``capability`` tasks move a number."""
    tier: int = Field(default=1, ge=1, le=4)
    """1: one call, one write. 2: dependent steps. 3: a seeded failure. 4: under-specified."""
    expect: Expect = "complete"
    """Which ending is right."""
    origin: Origin | None = None
    """Where the task comes from."""
    tags: tuple[Name, ...] = ()
    """Free words for slices."""
    instruction: str = Field(min_length=1)
    """What the agent is asked. Every requirement of the checks must follow from it."""
    environment: Environment = Environment()
    """Where the agent works."""
    world: RelativePath | None = None
    """Folder with the database and the tools over it."""
    upstream: tuple[Upstream, ...] = ()
    """Real tool servers."""
    fixtures: Fixtures | None = None
    """Recorded tool responses."""
    user: User | None = None
    """A simulated user."""
    tools: Tools = Tools()
    """Tool policy and expectations."""
    hosted_tools: tuple[str, ...] = ()
    """Types of tools that may run at the model's provider, as requests name them, such as ``web_search_20250305``. Others are refused, and
    that an agent asked for them is a finding. What they do is not seen by the gateway."""
    budgets: Budgets = Budgets()
    """What a trial may spend."""
    samples: int = Field(default=1, ge=1, le=1000)
    """Trials per agent."""
    checks: tuple[Check, ...] = Field(min_length=1)
    """End-state checks; all must pass."""
    invariants: tuple[Invariant, ...] = ()
    """Absolute gates: any violation fails the trial whatever else passed."""
    trace: tuple[TraceCheck, ...] = ()
    """Checks on the path."""
    judges: tuple[Judge, ...] = ()
    """Questions for a model judge."""
    measures: tuple[Measure, ...] = ()
    """Numbers that are reported."""

    @model_validator(mode="after")
    def _unique_ids(self) -> Task:
        names = [
            each.id for group in (flat_checks(self.checks), self.invariants, self.trace, self.judges) for each in group
        ]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"check ids must be unique, twice: {', '.join(twice)}"
            raise ValueError(msg)
        return self


def egress_rules(network: Network) -> tuple[str, ...]:
    """Return the rules of hosts that a sandbox with this network may reach; none for ``model_only``."""
    if isinstance(network, AllowlistNetwork):
        return network.allowlist
    return ("*:*",) if network == "public" else ()


def is_pinned(image: str) -> bool:
    """Return whether a reference of an image can mean only one image."""
    return re.fullmatch(PINNED_IMAGE, image) is not None


def flat_checks(checks: tuple[Check, ...]) -> list[Check]:
    """Return the single checks, those inside of ``any_of`` included, in order."""
    flat: list[Check] = []
    for check in checks:
        flat.extend(check.any_of if isinstance(check, AnyOfCheck) else (check,))
    return flat
