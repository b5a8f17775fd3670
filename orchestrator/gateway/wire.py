"""What driver and gateway say to each other, as models that both sides use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.interfaces import LaunchRequest
from orchestrator.records.base import Record
from orchestrator.records.ids import TrialId, launch_id
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


class LaunchBody(LaunchName):
    """``POST /admin/launches``."""

    budgets: Budgets
    models: dict[str, str]
    prices: dict[str, Price]
    seed: int
    task: str
    scripts: str | None = None
    world: str | None = None

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


class StopAnswer(Record):
    """The answer to a long poll: neither is set when nothing happened in time."""

    stopped: StopWord | None = None
    sealed: bool = False
