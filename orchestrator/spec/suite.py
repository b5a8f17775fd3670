"""The suite file: defaults of its tasks, the metric that names it, and the quarantine list."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import Field, JsonValue

from orchestrator.spec.base import Name, Spec


class Quarantined(Spec):
    """One flaky task with somebody who cares. It still runs and is shown; it leaves the denominator."""

    task: Name
    """The task's id."""
    owner: str = Field(min_length=1)
    """Who mends it."""
    issue: str = Field(min_length=1)
    """Where that is written down."""
    expires: date
    """Last day on which the entry has an effect (UTC)."""


class Suite(Spec):
    """``suite.yaml``. Tasks are the sub-folders with a ``task.yaml``."""

    id: Name
    """Name of the suite."""
    description: str = ""
    """One or two sentences for people."""
    metric: Literal["pass_rate", "pass_at_k", "pass_hat_k"] = "pass_rate"
    """The number that stands for the suite."""
    k: int = Field(default=1, ge=1)
    """``k`` of the metric."""
    defaults: dict[str, JsonValue] = Field(default_factory=dict)
    """Fields of a task file that its tasks get when they do not say otherwise; mappings are merged, lists are not."""
    quarantine: tuple[Quarantined, ...] = ()
    """Tasks that may fail for now."""
