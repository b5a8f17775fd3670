"""Everyone that a trial needs, in one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.interfaces import (
    AgentProgram,
    Allowance,
    BundleSource,
    Gateway,
    Grader,
    ObjectStore,
    Observer,
    Registration,
    SandboxBackend,
)
from orchestrator.records.manifest import ManifestAgent, ManifestTask


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Everyone that a trial needs. Built by ``wiring``; nothing in ``trial`` names a concrete class."""

    store: ObjectStore
    bundles: BundleSource
    sandboxes: SandboxBackend
    gateway: Gateway
    grader: Grader
    render: Callable[[ManifestAgent, ManifestTask, Registration], AgentProgram]
    """Turns an agent into what a sandbox runs."""
    observer: Observer
    writer_id: str
    """Unique name of this driver process, written into every marker."""
    ready: Callable[[], Awaitable[None]]
    """Waits until the services listen; raises InfrastructureError when they never will."""
    hold: Callable[[], Awaitable[None]]
    """Returns when it is proven that this driver still holds the run; raises LeaseLostError. Asked before each commit."""
    allowance: Allowance
    """What the run may still spend."""
    epoch: int = 1
    """The driver's epoch."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that every trial carries."""
