"""What driver, coordinator and supervisors tell each other. Small, picklable, without secrets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.errors import OrchestrateError
from orchestrator.interfaces import Phase, PlannedTrial, TrialEnd
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome
from orchestrator.records.verdict import Verdict
from orchestrator.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What coordinator and supervisors are made from; the same again after each restart."""

    run: str
    manifest_sha256: str
    """Digest of the manifest's bytes in hex: whoever reads another manifest in its store looks at another store."""
    version: str
    """Version of this program at the driver."""
    epoch: int
    term_s: float
    """Term of the lease in seconds."""
    settings: Settings
    """The driver's settings, without providers."""
    services: Path | None
    """File of the driver's machine that says where its services are; None: they are a cluster's, and the settings say where."""
    scratch: Path
    """The driver's folder for sandboxes."""
    slots: tuple[int, ...]
    """Trials that each supervisor runs at one time, by index."""
    limit_usd: float | None = None
    """The run's spending limit, if it has one."""
    stages: bool = False
    """Whether supervisors write the rows of ended trials ahead for the dataset."""


@dataclass(frozen=True)
class Job:
    """One trial to run, to take over, or to grade."""

    trial: TrialId
    kind: Literal["run", "left", "grade"]
    launch: int
    """To run or take over: the next launch. To grade: the launch with the result."""
    launches_left: int = 0

    @classmethod
    def to_run(cls, planned: PlannedTrial, kind: Literal["run", "left"] = "run") -> Job:
        """Return the job of running a trial, or of taking its next launch over."""
        return cls(planned.id, kind, planned.first_launch, planned.launches_left)

    @classmethod
    def to_grade(cls, planned: PlannedTrial, outcome: Outcome) -> Job:
        """Return the job of grading a committed result."""
        return cls(planned.id, "grade", outcome.launch)


@dataclass(frozen=True)
class PhaseEntered:
    """A trial entered a phase."""

    trial: TrialId
    phase: Phase


@dataclass(frozen=True)
class Waits:
    """A trial does not get on, and why; empty: it does again."""

    trial: TrialId
    why: str


@dataclass(frozen=True)
class LaunchFailed:
    """A launch ended for a reason that is ours."""

    trial: TrialId
    launch: int
    cause: str
    message: str


@dataclass(frozen=True)
class LaunchSettled:
    """The outcome of a launch is committed."""

    outcome: bytes


@dataclass(frozen=True)
class LaunchForfeited:
    """A launch that was set aside for has no committed outcome."""

    trial: TrialId
    launch: int


@dataclass(frozen=True)
class Ended:
    """A trial came to its end."""

    trial: TrialId
    outcome: bytes
    verdict: bytes | None

    @classmethod
    def of(cls, end: TrialEnd) -> Ended:
        """Return the message for an end."""
        return cls(end.trial, end.outcome.to_bytes(), None if end.verdict is None else end.verdict.to_bytes())

    def read(self) -> TrialEnd:
        """Return the end."""
        verdict = None if self.verdict is None else Verdict.from_bytes(self.verdict)
        return TrialEnd(trial=self.trial, outcome=Outcome.from_bytes(self.outcome), verdict=verdict)


@dataclass(frozen=True)
class Failure:
    """An error of this project on its way to another process: its class need not take its parts again."""

    type: type[OrchestrateError]
    args: tuple[object, ...]
    state: dict[str, object]

    @classmethod
    def of(cls, error: OrchestrateError) -> Failure:
        """Return the message for an error."""
        return cls(type(error), error.args, dict(error.__dict__))

    def error(self) -> OrchestrateError:
        """Return the error."""
        made = self.type.__new__(self.type, *self.args)
        made.__dict__.update(self.state)
        return made


@dataclass(frozen=True)
class Aborted:
    """A trial has no end in this pool: a supervisor met an error that is not the trial's."""

    trial: TrialId
    failure: Failure


Event = PhaseEntered | Waits | LaunchFailed | LaunchSettled | LaunchForfeited | Ended | Aborted


@dataclass(frozen=True)
class Numbered:
    """An event with its origin and its number there, so that nothing is counted twice when it is sent again."""

    origin: str
    number: int
    event: Event


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a supervisor tells with each call. It makes one call at a time."""

    index: int
    """Which of the supervisors, from 0."""
    name: str
    """Of this process; the next one with this index has another."""
    generation: int
    """Counted by the driver, from 1: of two processes with one index the higher one counts. No clock of any machine says which is later."""
    number: int
    """Counts its reports, from 1."""
    holds: tuple[TrialId, ...]
    """Everything that it works on now."""
    free: int
    """Trials that it could take beside."""
    events: tuple[Numbered, ...]
    """What happened since the last report that was answered."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a supervisor is told in answer."""

    coordinator: str
    """Name of the coordinator's process."""
    jobs: tuple[Job, ...] = ()
    stop: bool = False
    """Stop, freeze and commit what runs."""
    replaced: bool = False
    """Another process has taken this one's place: end at once."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What the driver is told in answer to a call."""

    coordinator: str
    """Name of the coordinator's process; the next one has another."""
    events: tuple[Numbered, ...] = ()
    last: int = 0
    """Number of the last of them in the coordinator's own count, for the next call."""
    over: bool = False
    """Nothing runs, and nothing more will be started."""
    failure: Failure | None = None
    """With ``over``: why it ended early."""
