"""What a check gets to see of a trial, and the tools it may use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grader_service.programs import Programs
from grader_service.settings import GraderSettings
from orchestrator.errors import SandboxError
from orchestrator.interfaces import Ending, Frozen, Input, SandboxBackend, SandboxSpec
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

    @property
    def image(self) -> str | None:
        """The image that the agent worked in; None: it worked in none."""
        return None if self.planned.image_id is None else self.planned.environment.image

    @property
    def state_bytes(self) -> int:
        """The most bytes that a frozen workspace can have: twice its disk, by links and sparse files or beside what was shown."""
        return 2 * self.planned.environment.resources.disk

    def pristine(self) -> tuple[Input, ...]:
        """The workspace as the agent got it, for a sandbox; an empty one has no folder in its bundle."""
        folder = self.sandbox / "workspace"
        return (Input(source=folder, target="/grader/pristine"),) if folder.is_dir() else ()


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What is the same for all trials."""

    backend: SandboxBackend
    """Where everything runs that is ours."""
    containers: SandboxBackend | None
    """Where the agent's work runs that was made in an image; None: this service grades none."""
    programs: Programs
    settings: GraderSettings


async def run_to_end(backend: SandboxBackend, spec: SandboxSpec) -> tuple[Ending, Frozen]:
    """Run one sandbox until its tree is dead. Raises SandboxError."""
    async with backend.open(spec) as sandbox:
        ending = await sandbox.ended()
        return ending, await sandbox.freeze()


__all__ = ["Case", "Ending", "Frozen", "PermanentError", "SandboxError", "Tools", "run_to_end"]
