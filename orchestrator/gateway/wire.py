"""What driver and gateway say to each other, as models that both sides use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.interfaces import LaunchRequest
from orchestrator.records.base import BlobRef, Record
from orchestrator.records.ids import TrialId, launch_id
from orchestrator.records.outcome import Exit
from orchestrator.records.state import Finding, FrozenState
from orchestrator.records.termination import BudgetReason
from orchestrator.spec.agent import Price
from orchestrator.spec.task import Budgets

StopWord = BudgetReason | Literal["model_api_error"]


class LaunchName(Record):
    """Which launch is meant; enough to find its records after a restart."""

    run: str = Field(min_length=1, max_length=200)
    trial: str = Field(max_length=400)
    launch: int = Field(ge=1)
    epoch: int = Field(ge=0)

    @property
    def id(self) -> str:
        """The short name."""
        return launch_id(self.run, self.trial, self.launch)

    @property
    def trial_id(self) -> TrialId:
        """The trial, parsed. Raises ValueError."""
        return TrialId.parse(self.trial)


class BundleName(Record):
    """A bundle that a pod may fetch."""

    audience: Literal["sandbox", "solutions"]
    digest: str = Field(max_length=100)


class LaunchBody(LaunchName):
    """``POST /admin/launches``."""

    budgets: Budgets
    models: dict[str, str]
    prices: dict[str, Price]
    seed: int
    task: str
    scripts: str | None = None
    world: str | None = None
    bundles: tuple[BundleName, ...] = ()

    @classmethod
    def of(cls, request: LaunchRequest) -> LaunchBody:
        """Return the wire form of a request."""
        return cls(
            run=request.run,
            trial=str(request.trial),
            launch=request.launch,
            epoch=request.epoch,
            budgets=request.budgets,
            models=dict(request.models),
            prices=dict(request.prices),
            seed=request.seed,
            task=request.task,
            scripts=request.scripts,
            world=request.world,
            bundles=tuple(BundleName(audience=each.audience, digest=each.digest) for each in request.bundles),
        )


class ProbeBody(Record):
    """``POST /admin/probe``: ask a model once, for no launch."""

    model: str = Field(max_length=400)
    """``provider/name``."""


class Registered(Record):
    """The answer to a registration."""

    launch: str
    agent_token: str
    freezer_token: str


class FreezeReport(Record):
    """``POST /launch/frozen``: the freezer of a pod has given all parts to the relay. Everything in it is data, none of it is trusted."""

    final_b64: str | None = Field(default=None, max_length=96 << 10)
    """Raw bytes of ``/output/final.json``, when it is a regular file of at most 64 KiB."""
    output_b64: str = Field(default="", max_length=2 << 20)
    """The end of what the agent's process printed."""
    findings: tuple[Finding, ...] = ()
    """What was seen while freezing."""
    exit: Exit | None = None
    """The agent's ending as its supervisor noted it."""
    started: float | None = None
    """When the agent started, by the pod's clock."""
    ended: float | None = None
    """When it was found dead, by the pod's clock."""
    disk_bytes: int | None = Field(default=None, ge=0)
    """Bytes in the writable folders."""
    lost: str | None = Field(default=None, max_length=1000)
    """Why there is no state, when there is none."""


class Delivered(Record):
    """The answer to the driver's wait for a state; nothing is set when none came in time."""

    report: FreezeReport | None = None
    state: FrozenState | None = None
    """None: there is none, and the report says why."""
    output: BlobRef | None = None


class StopAnswer(Record):
    """The answer to a long poll: neither is set when nothing happened in time."""

    stopped: StopWord | None = None
    sealed: bool = False
