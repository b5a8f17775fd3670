"""The run manifest: every digest that a number depends on, written once before the first trial.

It holds all that driver, gateway and grader need to go on without the files the run was made from. It holds no check:
those are in the graders bundles, which only the grader reads.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Literal

from pydantic import Field

from orchestrator.records.base import Record
from orchestrator.records.ids import TrialId
from orchestrator.records.prices import KnownPrice
from orchestrator.records.state import EndedAs
from orchestrator.settings import Price
from orchestrator.spec.agent import Agent
from orchestrator.spec.submission import RunLimits
from orchestrator.spec.suite import Quarantined
from orchestrator.spec.task import Budgets, Environment, Expect, Kind, Tools, User


class Bundles(Record):
    """Tree digests (``sha256:…``) of a task's bundles, one per audience."""

    sandbox: str
    """Instruction, workspace, memory: the only thing that an agent's sandbox gets."""
    world: str
    """Tools, seeds, cassettes, scripts, budgets: the gateway's."""
    graders: str
    """Checks, hidden tests, goals: the grader's."""
    solutions: dict[str, str] = Field(default_factory=dict)
    """``oracle`` and ``wrong/NAME`` to the solution that such an agent gets."""


class ManifestTask(Record):
    """What is known of a task outside of the grader."""

    id: str
    """Task id."""
    version: int
    """The author's version."""
    digest: str
    """Digest of the whole task: model after defaults, and all bundles."""
    kind: Kind
    """capability or regression."""
    tier: int
    """1 to 4."""
    expect: Expect
    """The right ending."""
    final_checked: EndedAs | None = None
    """The ending that a ``final`` check lists, if the task has one."""
    tags: tuple[str, ...] = ()
    """Slices."""
    environment: Environment
    """Where the agent works. Its ``image`` is pinned where the backend uses images."""
    image_id: str | None = None
    """``sha256:…`` of the image that agents and hidden tests run in; None: the backend uses no image."""
    budgets: Budgets
    """What it may spend."""
    user: User | None = None
    """Whom the agent can ask."""
    user_prompt: str | None = None
    """Digest of all that the model is told that plays the user; None: none does."""
    user_price: KnownPrice | None = None
    """What the model costs that plays the user; None: nobody knows, or none does."""
    tools: Tools = Tools()
    """What it expects of tools."""
    hosted_tools: tuple[str, ...] = ()
    """Types of tools that may run at the model's provider."""
    samples: int = Field(ge=1)
    """Trials per agent in this run."""
    bundles: Bundles
    """Digests by audience."""
    memory: str | None = None
    """Tree digest (``sha256:…``) of what its agent is said to remember; None: nothing."""


class ManifestAgent(Record):
    """One agent of the run."""

    name: str
    """File name without its end, or ``oracle``, ``nop``, ``wrong/NAME``."""
    digest: str
    """Digest of the file, its bundle, prompt and scripts."""
    agent: Agent
    """The configuration."""
    prompt: str | None = None
    """Text of the prompt file."""
    bundle: str | None = None
    """Digest of the agent's own files (audience ``sandbox``)."""
    bundle_bytes: int = Field(default=0, ge=0)
    """Bytes of these files: a sandbox that fetches them needs room for them beside the task's disk."""
    scripts: str | None = None
    """Digest of the conversation files (audience ``world``)."""
    prices: dict[str, KnownPrice] = Field(default_factory=dict)
    """What its models cost in this run, by ``provider/name``; a model without an entry has no known price."""

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Its models without a price, sorted."""
        return tuple(sorted(set(self.agent.models.values()) - set(self.prices)))

    def price_of(self) -> dict[str, Price]:
        """Return the prices alone."""
        return {model: known.price for model, known in self.prices.items()}


class Code(Record):
    """The commit that the suite came from."""

    commit: str | None = None
    """Full hex, None outside of a repository."""
    dirty: bool | None = None
    """Whether files differed from it."""


def runs_task(agent: str, solutions: Collection[str]) -> bool:
    """Return whether an agent has trials on a task with these solutions: a wrong solution only where it was written for."""
    return not agent.startswith("wrong/") or agent in solutions


Origin = Literal["run", "production"]
"""``run``: trials that were made here. ``production``: traces of work that was done elsewhere, imported; nobody grades them."""
ChosenBy = Literal["failed", "infra", "tasks"]
"""How the trials of a rerun were chosen: by what came of them, or by task."""


class RunManifest(Record):
    """One run."""

    schema_version: Literal[1] = 1
    run: str
    """Run id."""
    created_at: datetime
    """When it was submitted, UTC."""
    orchestrate_version: str
    """Version of this program."""
    code: Code
    """Where the suite came from."""
    suite: str
    """Suite id."""
    suite_digest: str
    """Digest of the suite file and all its tasks, those left out of this run included."""
    metric: str
    """The suite's metric."""
    k: int
    """``k`` of the metric."""
    quarantine: tuple[Quarantined, ...] = ()
    """Quarantine entries in force at submission."""
    tasks: tuple[ManifestTask, ...]
    """The tasks of this run, sorted by id."""
    agents: tuple[ManifestAgent, ...]
    """The agents, in the order given."""
    seed: int = Field(ge=0)
    """Seed of the run; from the content of suite and agents, so equal submissions behave equally."""
    backend: str
    """Sandbox backend."""
    labels: dict[str, str] = Field(default_factory=dict)
    """What the backend does not promise in full."""
    pool: str
    """Who ran the trials."""
    max_launches: int = Field(default=3, ge=1)
    """Launches per trial, at most."""
    limits: RunLimits = RunLimits()
    """What the run may use."""
    price_table: str | None = None
    """Digest of all prices of the agents; None when no price is known."""
    grader_version: str = ""
    """Version of the grader service that was wired in; empty when it is one of a cluster, whose verdicts say it."""

    rerun_of: str | None = None
    """The run that this one repeats, or repeats a part of; None for a run of its own."""
    chosen: tuple[str, ...] | None = None
    """The only trials of a rerun, each ``TASK@AGENT:N``; None: every sample of every task by every agent."""
    chosen_by: tuple[ChosenBy, ...] = ()
    """How they were chosen. Trials chosen because they failed are no sample of the suite."""

    origin: Origin = "run"
    """Where its trials come from."""
    traces: dict[str, str] = Field(default_factory=dict)
    """Of imported traces: trial to the digest of what was imported, so that nothing is imported twice."""

    @property
    def is_imported(self) -> bool:
        """Whether its trials are traces from elsewhere: there is nothing to run, resume or grade."""
        return self.origin == "production"

    @property
    def is_biased(self) -> bool:
        """Whether trials were chosen by the agent's results, so that their rates estimate nothing."""
        return "failed" in self.chosen_by

    def trials(self) -> dict[TrialId, tuple[ManifestTask, ManifestAgent]]:
        """Return every planned trial: by task id, then by agent in the order given, then by sample."""
        chosen = None if self.chosen is None else set(self.chosen)
        return {
            trial: (task, agent)
            for task in sorted(self.tasks, key=lambda task: task.id)
            for agent in self.agents
            if runs_task(agent.name, task.bundles.solutions)
            for trial in (TrialId(task.id, agent.name, sample) for sample in range(1, task.samples + 1))
            if chosen is None or str(trial) in chosen
        }

    def task(self, task_id: str) -> ManifestTask:
        """Return the task of that id. Raises KeyError."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise KeyError(task_id)

    def agent(self, name: str) -> ManifestAgent:
        """Return the agent of that name. Raises KeyError."""
        for agent in self.agents:
            if agent.name == name:
                return agent
        raise KeyError(name)
