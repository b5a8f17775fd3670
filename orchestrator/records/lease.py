"""Who drives a run: claims, signs of life, what people want of it, and what was set aside for launches that run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.records.base import Record


class Process(Record):
    """A process of a machine, named so that a later one of the same number is not mistaken for it."""

    host: str
    """Name of the machine."""
    pid: int
    """Its number there."""
    started: int | None = None
    """When it began, in clock ticks since the machine's start; None where that cannot be read."""
    boot: str | None = None
    """The machine's boot id; None where that cannot be read."""
    namespace: str | None = None
    """The name spaces of process numbers and of time; None where they cannot be read."""


class Claim(Record):
    """A driver takes a run. Create-only, numbered from 1 without gaps: the highest one holds the run."""

    schema_version: Literal[1] = 1
    run: str
    """Run id."""
    epoch: int = Field(ge=1)
    """Number of the claim."""
    writer_id: str
    """Unique name of the driver."""
    process: Process
    """Which process it is."""
    at: float
    """When, seconds since 1970."""
    term_s: float = Field(gt=0)
    """Seconds without a sign of life after which another driver may take the run."""


class Beat(Record):
    """A sign of life of a driver, with how far it is."""

    schema_version: Literal[1] = 1
    epoch: int = Field(ge=1)
    """The claim that is renewed."""
    number: int = Field(ge=1)
    """From 1."""
    at: float
    """When, seconds since 1970, by the driver's clock."""
    phases: dict[str, int] = Field(default_factory=dict)
    """Trials that run now, by phase."""
    ended: int = Field(default=0, ge=0)
    """Trials that this driver brought to an end."""
    failed_launches: dict[str, int] = Field(default_factory=dict)
    """Launches that failed on our side under this driver, by cause."""
    waits: dict[str, int] = Field(default_factory=dict)
    """Trials that run but do not get on, by the reason for it."""


ReleaseReason = Literal["ended", "stopped", "paused", "limit", "failed", "removed", "yielded"]
"""``ended``: nothing is left to do. ``stopped``: a person asked for it. ``paused``: the same failure of ours came again and again.
``limit``: the run may not spend more. ``removed``: a gc removes the run. ``yielded``: the driver was told to end, as by a node that is
drained; what it started goes on, for the next driver. ``failed``: anything else of ours."""


class Release(Record):
    """A driver lets go of a run: nobody has to wait for its silence."""

    schema_version: Literal[1] = 1
    epoch: int = Field(ge=1)
    """The claim that ends."""
    at: float
    """When, seconds since 1970."""
    reason: ReleaseReason
    """Why."""
    detail: str = ""
    """More of it for a person: who asked, or which failure."""


class Wish(Record):
    """What a person wants of a run. Create-only, numbered from 1 without gaps: the last one holds for whoever drives the run."""

    schema_version: Literal[1] = 1
    number: int = Field(ge=1)
    """From 1."""
    wants: Literal["stop", "go_on"]
    """``stop``: in order. ``go_on``: a stop before it is lifted."""
    at: float
    """When, seconds since 1970."""
    by: str
    """User and machine."""


class Reservation(Record):
    """What a launch may cost, set aside before it starts in a run with a spending limit."""

    schema_version: Literal[1] = 1
    trial: str
    """``TASK@AGENT:N``."""
    launch: int = Field(ge=1)
    """Launch number."""
    epoch: int = Field(ge=1)
    """The claim under which it was set aside."""
    nano_usd: int = Field(ge=0)
    """Billionths of a US dollar."""
