"""What a check gets to see of a trial, and the tools it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from grader_service.programs import Programs
from grader_service.settings import GraderSettings
from orchestrator.errors import SandboxError
from orchestrator.interfaces import Ending, Frozen, Input, SandboxSpec
from orchestrator.interfaces.waits import unheard
from orchestrator.records.manifest import ManifestTask
from orchestrator.records.outcome import Outcome
from orchestrator.records.verdict import GradingError
from orchestrator.spec.task import Task


class PermanentError(Exception):
    """The grading cannot give a result, now or later. Becomes the verdict ``grader_error``."""

    def __init__(self, error: GradingError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, kw_only=True)
class Case:
    """One trial, its evidence verified and on this machine."""

    name: str
    """Short unique name, for sandboxes."""
    task: Task
    """The whole task, checks included."""
    planned: ManifestTask
    """What the manifest says about it."""
    outcome: Outcome
    """The winning outcome."""
    sandbox: Path
    """Sandbox bundle: what the agent was given."""
    graders: Path
    """Graders bundle."""
    state: Path | None
    """Folder with ``entries.jsonl`` and ``changes.tar``; None when the launch left nothing."""
    waits: Callable[[str], None] = unheard
    """Told why it has to wait for sandboxes; and ``""`` when it waits no more."""

    @property
    def state_bytes(self) -> int:
        """The most bytes that a frozen workspace can have: twice its disk, by links and sparse files or beside what was shown."""
        return 2 * self.planned.environment.resources.disk

    def pristine(self) -> tuple[Input, ...]:
        """The workspace as the agent got it, for a sandbox; an empty one has no folder in its bundle."""
        folder = self.sandbox / "workspace"
        return (Input(source=folder, target="/grader/pristine"),) if folder.is_dir() else ()


@dataclass(frozen=True, kw_only=True)
class LimitedJob:
    """Checks for a limited child: where they look, and how far they may go."""

    name: str
    """Short unique name."""
    checks: Sequence[Mapping[str, JsonValue]]
    """The checks as JSON, in order."""
    state: Path
    """Folder with ``entries.jsonl`` and ``changes.tar``."""
    pristine: Path | None
    """The workspace as the agent got it; None: it was empty."""
    hidden: Path | None
    """Files under ``hidden/`` of the task; None: there are none."""
    state_bytes: int
    """The most bytes that the frozen workspace can have."""
    packages: tuple[str, ...]
    """Python packages that the checks load."""
    lay: bool
    """Put the whole workspace together even if no check asks for it."""
    check_seconds: int
    """Processor time of one check."""
    check_memory_bytes: int
    """Memory of one check."""

    @property
    def wall_seconds(self) -> float:
        """Wall clock of the whole job."""
        return self.check_seconds * 2 * len(self.checks) + 60

    @property
    def disk_bytes(self) -> int:
        """Disk of the whole job."""
        return self.state_bytes + (256 << 20)


@dataclass(frozen=True, kw_only=True)
class LimitedEnd:
    """What became of a limited child."""

    ending: Ending
    answer: bytes | None
    """What it answered, not parsed; None: nothing."""
    output: bytes
    """The end of what it said beside."""


class LimitedChildren(Protocol):
    """Where processes parse what agents left: without a credential, a network, or a way to other trials' files."""

    async def run(self, job: LimitedJob) -> LimitedEnd:
        """Run one limited child to its end. Raises SandboxError when none could be had."""
        ...


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two sandboxes that start together, joined by a line: each program has one end of it as descriptor 3."""

    runner: SandboxSpec
    """Runs hidden tests; no byte of the agent comes here but through the line."""
    subject: SandboxSpec
    """Runs the agent's work; sees nothing hidden. Its image is the place's business."""


@dataclass(frozen=True, kw_only=True)
class PairEnd:
    """How a pair ended."""

    runner: Ending
    frozen: Frozen
    """What the runner left; no state."""
    subject: Ending | None
    """The subject's ending if it came before the runner's; else it was ended by us."""


class PairedSandboxes(Protocol):
    """Where hidden tests and the work that they ask run."""

    def identity(self, planned: ManifestTask) -> Mapping[str, JsonValue]:
        """Return what a verdict depends on of the place where a task's pairs run: kind, images."""
        ...

    async def run(self, name: str, planned: ManifestTask, pairs: Sequence[Pair]) -> Sequence[PairEnd]:
        """Run the pairs of one verdict to their ends and return these in order.

        ``name`` is short and unique to the launch. What a subject does to itself is an ending; raises SandboxError for everything else.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What is the same for all trials."""

    limited: LimitedChildren
    pairs: PairedSandboxes
    programs: Programs
    settings: GraderSettings


__all__ = [
    "Case", "Ending", "Frozen", "LimitedChildren", "LimitedEnd", "LimitedJob", "Pair", "PairEnd", "PairedSandboxes", "PermanentError",
    "SandboxError", "Tools",
]  # fmt: skip
