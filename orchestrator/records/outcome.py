"""What a launch came to: the gateway's seal and the driver's outcome marker."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.records.base import BlobRef, Record
from orchestrator.records.state import EndedAs, FinalAnswer, Finding, FrozenState
from orchestrator.records.termination import BudgetReason, OutcomeClass, TerminationReason
from orchestrator.records.usage import Usage

Unrecorded = Literal["tokens", "times", "waiting"]


class Question(Record):
    """What the agent asked the task's user, as the gateway saw it."""

    question: str
    """The agent's words, at most 8,000 characters."""
    reply: str | None
    """Id of the reply that the user gave; None: none fitted, and the user said so, or a model plays the user."""
    said: str | None = None
    """The beginning of what a user said that a model plays, at most 500 characters."""


class Seal(Record):
    """The gateway's last word on a launch: tokens revoked, open calls settled, trajectory closed with its hash."""

    schema_version: Literal[1] = 1
    run: str
    """Run id."""
    trial: str
    """``TASK@AGENT:N``."""
    launch: int = Field(ge=1)
    """Launch number, from 1."""
    trajectory: BlobRef
    """The closed trajectory file."""
    world: BlobRef | None = None
    """The database of the task's world, closed; None: the task has none."""
    fixture_misses: int = Field(default=0, ge=0)
    """Calls that the recorded responses do not hold: the agent left the path that was recorded."""
    usage: Usage
    """Everything the launch's model calls used."""
    user_usage: Usage | None = None
    """What the simulated user's model calls used, not part of ``usage``; None: not known."""
    steps: int = Field(ge=0)
    """Model responses."""
    tool_calls: int = Field(ge=0)
    """Tool calls."""
    waiting_s: float = Field(ge=0)
    """Seconds of waiting that are not the agent's: provider queue and retries."""
    stopped: (
        BudgetReason | Literal["model_api_error", "model_request_error", "user_simulator_error", "infra_lost"] | None
    ) = None
    """The limit that was reached, or the failure that ended the work, if any. ``infra_lost``: the gateway died while it did something for
    the agent."""
    unheard: bool = False
    """The gateway was away, and nothing was heard of the agent since."""
    finish: FinalAnswer | None = None
    """The ending given by the ``finish`` tool, if any; the first one counts."""
    questions: tuple[Question, ...] | None = None
    """What the agent asked, in order; None: there was nobody to ask."""
    models: tuple[str, ...] = ()
    """Model ids as they came back from the providers, sorted."""
    findings: tuple[Finding, ...] = ()
    """What the gateway noticed."""


class Exit(Record):
    """How the agent's first process ended, seen from outside."""

    code: int | None = None
    """Exit code, if it exited."""
    signal: int | None = None
    """Signal that ended it, if one did."""


class Times(Record):
    """When and how long. Times are seconds since 1970 (UTC)."""

    started: float
    """When the agent's process started; when the launch started, if the agent never did."""
    ended: float
    """When the tree was seen dead."""
    working_s: float = Field(ge=0)
    """Wall clock without waiting, in seconds."""
    waiting_s: float = Field(ge=0)
    """Waiting at the gateway, in seconds."""
    setup_s: float = Field(default=0, ge=0)
    """From registration to the agent's start, in seconds."""
    freeze_s: float = Field(default=0, ge=0)
    """From the tree's death to the committed state, in seconds."""


class Outcome(Record):
    """What the driver commits for a launch. Its presence ends the launch."""

    schema_version: Literal[1] = 1
    run: str
    """Run id."""
    trial: str
    """``TASK@AGENT:N``."""
    launch: int = Field(ge=1)
    """Launch number, from 1."""
    outcome_class: OutcomeClass
    """``result`` is graded; ``infra`` leads to another launch; ``cancelled`` does not."""
    termination_reason: TerminationReason
    """How it ended."""
    ended_as: EndedAs | None = None
    """The ending that the agent gave, if it gave a valid one."""
    final: FinalAnswer | None = None
    """The whole answer."""
    questions: tuple[Question, ...] | None = None
    """What the agent asked the task's user, in order; None: the task has none, or nothing is known."""
    exit: Exit | None = None
    """How the first process ended."""
    state: FrozenState | None = None
    """The frozen world; None when there is none to grade."""
    output: BlobRef | None = None
    """The last output of the agent's process, standard output and error together."""
    trajectory: BlobRef | None = None
    """The closed trajectory."""
    usage: Usage
    """What the model calls used."""
    user_usage: Usage | None = None
    """What the simulated user's model calls used, not part of ``usage``; None: not known."""
    steps: int = Field(default=0, ge=0)
    """Model responses."""
    tool_calls: int = Field(default=0, ge=0)
    """Tool calls."""
    fixture_misses: int = Field(default=0, ge=0)
    """Calls that the recorded responses do not hold."""
    models: tuple[str, ...] = ()
    """Model ids as they came back."""
    times: Times
    """When and how long."""
    findings: tuple[Finding, ...] = ()
    """What was noticed."""
    unrecorded: tuple[Unrecorded, ...] = ()
    """What nobody knows of an imported trace: the fields about it hold zeros that mean nothing."""
    labels: dict[str, str] = Field(default_factory=dict)
    """What the sandbox could not promise in full, such as ``limits: sampled``."""
    error: str | None = None
    """For ``infra``: what failed, in one line."""
    cause: str | None = None
    """For ``infra``: the short word under which equal failures are counted."""
    writer_id: str
    """Who wrote it."""
    epoch: int = Field(default=1, ge=1)
    """The driver's epoch."""

    def tells(self, what: Unrecorded) -> bool:
        """Return whether that was recorded, as it always is of a launch made here."""
        return what not in self.unrecorded

    @property
    def spent_nano_usd(self) -> int | None:
        """What its models cost, with the one that played the user; None: not known."""
        user = 0 if self.user_usage is None else self.user_usage.cost_nano_usd
        return None if user is None or self.usage.cost_nano_usd is None else self.usage.cost_nano_usd + user

    @property
    def known_steps(self) -> int | None:
        """Model responses; None: none was seen, and the agent may have asked models that nobody metered."""
        return self.steps if self.steps or self.tells("tokens") else None

    @property
    def working_s(self) -> float | None:
        """Wall clock without waiting, in seconds; None: not recorded."""
        return self.times.working_s if self.tells("times") else None

    @property
    def waiting_s(self) -> float | None:
        """Seconds of waiting at the gateway; None: not recorded."""
        return self.times.waiting_s if self.tells("waiting") else None
