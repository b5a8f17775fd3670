"""The gateway as the driver sees it, agents as programs, the grader, and trajectories."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from orchestrator.interfaces.sandbox import BundleRef, Door, Frozen, PodDoor, PodSink, RelaySink
from orchestrator.interfaces.waits import unheard
from orchestrator.records.event import EventSource, EventType
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Exit, Seal
from orchestrator.records.probe import ProbeResult
from orchestrator.records.termination import BudgetReason, SupervisedLimit
from orchestrator.records.usage import Spending
from orchestrator.records.verdict import Verdict
from orchestrator.settings import Price
from orchestrator.spec.task import Budgets, User


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What the driver tells the gateway about a launch."""

    run: str
    trial: TrialId
    launch: int
    """From 1."""
    epoch: int
    """The driver's epoch; a lower one than was seen before is refused."""
    budgets: Budgets
    models: Mapping[str, str]
    """Alias to ``provider/name``."""
    prices: Mapping[str, Price]
    """Price by model; a model that is absent has none."""
    seed: int
    """The trial's seed."""
    task: str
    """Task id: chooses the script."""
    scripts: str | None = None
    """Digest of the agent's conversation files (audience ``world``)."""
    world: str | None = None
    """Digest of the task's world bundle."""
    user: User | None = None
    """Whom the agent can ask."""
    user_price: Price | None = None
    """What the model costs that plays the user, if that is known."""
    now: datetime | None = None
    """Where the task's clock begins; None: the real one."""
    egress: tuple[str, ...] = ()
    """Rules of hosts that the sandbox may reach through the gateway (``spec.hosts``)."""
    bundles: tuple[BundleRef, ...] = ()
    """Whole bundles that a pod of this launch may fetch; nothing else is given to it."""
    hosted_tools: tuple[str, ...] = ()
    """Types of tools that may run at the model's provider."""


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What the gateway gives back."""

    launch: str
    """Short name of the launch."""
    agent_token: str
    """The only secret that enters the sandbox; good for this launch until its seal."""
    door: Door | PodDoor
    """How the sandbox reaches the gateway."""
    sink: RelaySink | PodSink
    """Where the state goes."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What a pod's freezer left with relay and gateway."""

    frozen: Frozen
    """The state; None in it when the freezer says that it could not be had."""
    exit: Exit | None
    """The agent's ending as its supervisor noted it: advice, in a place that the agent can write to."""
    started: float | None
    """When the agent started, by the pod's clock; advice too."""
    ended: float | None
    """When the freezer found it dead, by the pod's clock."""
    disk_bytes: int | None
    """Bytes that the workspace and the other writable folders held, as the freezer found them."""
    cause: SupervisedLimit | None = None
    """The limit for which the supervisor ended the agent, if it was that; advice too."""
    interrupted: bool = False
    """The pod was told to go (deleted, evicted) while its agent was alive, as far as its freezer knew."""
    cancelled: bool = False
    """An operator asked for the end before any limit was reached: a driver that comes later must know."""


class Gateway(Protocol):
    """The driver's side of the gateway.

    Methods may raise GatewayError, StoreError when the store behind it fails, and LeaseLostError when a later driver of the run was heard.
    """

    async def register(self, request: LaunchRequest) -> Registration:
        """Make a launch known. Registering it again gives the same launch: with fresh tokens where its sandbox died with whoever registered
        it, with the same ones where it is a pod, which goes on.
        """
        ...

    async def stop_reason(
        self, launch: str
    ) -> BudgetReason | Literal["model_api_error", "user_simulator_error", "infra_lost"]:
        """Wait until the gateway wants the launch stopped (a spent budget, working time over, no model to be had) and say why."""
        ...

    async def seal(self, launch: str) -> Seal:
        """Revoke the agent's token, settle open calls, close the trajectory. Sealing twice gives the same seal."""
        ...

    async def stop(self, launch: str) -> None:
        """Have a launch that this driver registered stopped by its pod's own freezer, since an operator asks for it.

        Harmless when repeated, and after the end.
        """
        ...

    async def delivered(self, launch: str) -> Delivery:
        """Wait until the freezer of a sealed launch's pod has delivered, and say what. May be awaited again."""
        ...

    async def probe(self, model: str) -> ProbeResult:
        """Make one tiny call to a model of a configured provider, for no launch: nothing is recorded or counted."""
        ...

    async def spending(self, run: str) -> Spending:
        """Return what the launches of a run have used here so far, for a progress display."""
        ...

    async def seal_lost(self, run: str, trial: TrialId, launch: int, epoch: int) -> Seal | None:
        """Seal a launch that another process registered and that died; None when this gateway never knew of it."""
        ...


@dataclass(frozen=True, kw_only=True)
class AgentProgram:
    """An agent rendered for one trial: what the sandbox runs. Pure data."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    bundle: str | None = None
    """Digest of files laid read-only at ``/agent`` (audience ``sandbox``)."""
    files: Path | None = None
    """Or: a folder of this program laid read-only at ``/agent``."""
    solution: str | None = None
    """Digest of a solutions bundle laid read-only at ``/solution``."""
    requires: tuple[str, ...] = ()
    """Programs that it needs beside the task's."""


class Grader(Protocol):
    """The driver's side of the grader service."""

    async def grade(self, run: str, trial: TrialId, waits: Callable[[str], None] = unheard) -> Verdict:
        """Return the verdict of a committed trial, made now or before. Raises GraderError when the service cannot answer.

        ``waits`` is told why that takes longer, in one line without anything of an agent, and ``""`` when nothing is waited for.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ClosedTrajectory:
    """A trajectory file that nobody will write to again."""

    path: Path
    sha256: str
    """Digest of the file's bytes, in hex."""
    size: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class WrittenTrajectory:
    """A trajectory file that is being written."""

    path: Path
    size: int
    """Bytes that are on the disk: they will not change any more."""


class Trajectory(Protocol):
    """The ordered record of one launch while it is written."""

    def append(self, kind: EventType, source: EventSource, data: Mapping[str, JsonValue]) -> int:
        """Add an event and return its number; -1 when closed. It is on disk within 50 ms; a failing disk shows in ``close``."""
        ...

    def hand_over(self) -> None:
        """Put all events so far out of this process's hands: whoever goes on after its end at any instant from now on has them."""
        ...

    async def flush(self) -> None:
        """Return once all events so far are on disk; a failing disk shows in ``close``."""
        ...

    def written(self) -> WrittenTrajectory | None:
        """Return what can be read of it already; None once it is closed."""
        ...

    async def close(self, data: Mapping[str, JsonValue]) -> ClosedTrajectory:
        """Write the last event (``seal``) and return once all is on disk.

        Closing twice gives the same. Raises StoreError.
        """
        ...


class ResumedTrajectory(Trajectory, Protocol):
    """A trajectory that an earlier process began."""

    async def recall(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Read it, once and before anything else. ``take`` gets the events in order, on another thread, as one flat object each; texts
        that stand in an earlier event are empty, but not in ``tool_call`` and ``finish`` of source ``gateway``.

        One that ends with its ``seal`` only needs to be closed. Raises StoreError when it is damaged.
        """
        ...


class TrajectoryFactory(Protocol):
    """Makes trajectories."""

    async def open(self, name: str) -> Trajectory:
        """Begin the trajectory of a launch. Raises StoreError: cause ``trajectory_exists`` when the name is taken."""
        ...

    def keep_only(self, names: Container[str]) -> None:
        """Remove what earlier processes have left of launches that have none of these names."""
        ...

    async def resume(self, name: str) -> ResumedTrajectory | None:
        """Return the trajectory of a launch that an earlier process has not finished; None when there is none. Raises StoreError."""
        ...
