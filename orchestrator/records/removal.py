"""What gc says before it deletes anything that others may be about to use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.records.base import Record


class Removal(Record):
    """A removal begins. Create-only and never deleted: what is left of a removed run."""

    schema_version: Literal[1] = 1
    at: float
    """When, seconds since 1970."""
    by: str
    """Unique name of the process that removes."""
    why: str
    """In words: what was asked for."""
    suite: str | None = None
    """Suite of a removed run; None when its manifest could not be read."""


class Removed(Record):
    """A removal has ended: nothing of it is left."""

    schema_version: Literal[1] = 1
    at: float
    """When, seconds since 1970."""
    objects: int = Field(ge=0)
    """Objects that this process deleted."""
    size: int = Field(ge=0)
    """Their bytes."""
