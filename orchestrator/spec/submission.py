"""The submission file: suite x agents x samples x where, in ``manifests/<name>.yaml``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from orchestrator.settings.models import MOST_IN_FLIGHT
from orchestrator.spec.base import Spec


class RunLimits(Spec):
    """What the whole run may use."""

    trials: int | None = Field(default=None, gt=0)
    """Most trials."""
    cost_usd: float | None = Field(default=None, gt=0)
    """Most US dollars."""


class Submission(Spec):
    """What ``orchestrate submit FILE`` runs. Paths are relative to the file."""

    suite: str = Field(min_length=1)
    """Folder of the suite."""
    agents: tuple[str, ...] = Field(min_length=1)
    """Agent files, or names of files in ``agents/`` beside this one, or ``oracle`` and ``nop``."""
    samples: int | None = Field(default=None, ge=1, le=1000)
    """Trials per task and agent; the task's own number when absent."""
    tasks: tuple[str, ...] = ()
    """Patterns of task ids; all when empty."""
    backend: Literal["auto", "bubblewrap", "container", "kubernetes"] = "auto"
    """Where trials run."""
    pool: Literal["inline", "ray"] | None = None
    """Who runs them: this process, or processes of a Ray cluster; as the settings say when absent."""
    concurrency: int | None = Field(default=None, ge=1, le=MOST_IN_FLIGHT)
    """Trials at one time; by the machine's processors when absent."""
    limits: RunLimits = RunLimits()
    """What the run may use."""
    kubernetes: dict[str, JsonValue] = Field(default_factory=dict)
    """Overrides for the cluster."""
    schedule: str | None = None
    """Cron line for a nightly run."""
