"""What driver and gateway say to each other, as models that both sides use."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    FiniteFloat,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from orchestrator.interfaces import LaunchRequest
from orchestrator.records.base import BlobRef, Record
from orchestrator.records.ids import TrialId, launch_id
from orchestrator.records.outcome import Exit
from orchestrator.records.state import Finding, FrozenState
from orchestrator.records.termination import BudgetReason, SupervisedLimit
from orchestrator.settings import Price
from orchestrator.spec.hosts import HostRuleText
from orchestrator.spec.task import Budgets, User

StopWord = BudgetReason | Literal["model_api_error", "user_simulator_error", "infra_lost"]
Part = Literal["output", "entries", "changes"]
"""A part of what a launch leaves: the end of what it printed, the list of entries, the tar of changes."""


def _decodable(text: str) -> str:
    base64.b64decode(text, validate=True)  # what it raises is a ValueError
    return text


Base64 = Annotated[str, AfterValidator(_decodable)]


def _if_usable(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        return None


Advice = WrapValidator(_if_usable)
"""What an agent could write itself: where it is nonsense it is nothing, and never a reason to refuse the rest."""


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
    user: User | None = None
    user_price: Price | None = None
    now: AwareDatetime | None = None
    bundles: tuple[BundleName, ...] = ()
    egress: tuple[HostRuleText, ...] = ()
    hosted_tools: tuple[str, ...] = ()

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
            user=request.user,
            user_price=request.user_price,
            now=request.now,
            egress=request.egress,
            bundles=tuple(BundleName(audience=each.audience, digest=each.digest) for each in request.bundles),
            hosted_tools=request.hosted_tools,
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
    prepare_token: str | None = None
    """None where no pods are served."""
    instance: str = ""
    """Which gateway made the tokens, also when it was started anew: it is the same one as long as it has its volume."""
    process: str = ""
    """Which process of it has registered the launch."""
    known: bool = False
    """The launch was registered before."""
    begun: bool = False
    """A pod of it has begun."""
    sealed: bool = False
    """It is over."""


class Instance(Record):
    """``GET /admin/instance``."""

    instance: str
    """Name of the gateway, the same as long as it has its volume: another one knows nothing of its launches but what is in the store."""
    version: str


class Prepared(Record):
    """The answer to ``POST /launch/prepared``."""

    launch: str


class Canaries(Record):
    """``GET /launch/canaries``."""

    canaries: tuple[str, ...]
    """``IP:PORT`` of each listener that the gateway has just reached, and that no pod may reach."""


class AdmitBody(Record):
    """``POST /relay/admit``: whose freezer is this?"""

    token: str = Field(max_length=400)
    peer: str | None = Field(default=None, max_length=100)
    """The address that it comes from, where addresses tell pods apart."""


class Admission(LaunchName):
    """What a relay has to know about a launch before it takes a part of its state."""

    sealed: bool
    max_state_bytes: int
    done: dict[Part, BlobRef]
    """Parts that were taken before."""


class PartBody(Record):
    """``POST /relay/parts``: a part is in the store."""

    launch: str
    part: Part
    blob: BlobRef


class Parts(Record):
    """What has been taken of a state: a part that somebody else delivered first is the one that counts."""

    done: dict[Part, BlobRef]


class FreezeReport(Record):
    """``POST /launch/frozen``: the freezer of a pod has given all parts to the relay. Everything in it is data, none of it is trusted."""

    final_b64: Base64 | None = Field(default=None, max_length=96 << 10)
    """Raw bytes of ``/output/final.json``, when it is a regular file of at most 64 KiB."""
    output_b64: Base64 = Field(default="", max_length=2 << 20)
    """The end of what the agent's process printed."""
    findings: tuple[Finding, ...] = ()
    """What was seen while freezing."""
    exit: Annotated[Exit | None, Advice] = None
    """The agent's ending as its supervisor noted it."""
    started: Annotated[FiniteFloat | None, Advice] = None
    """When the agent started, by the pod's clock."""
    ended: Annotated[FiniteFloat | None, Advice] = None
    """When it was found dead, by the pod's clock."""
    disk_bytes: int | None = Field(default=None, ge=0)
    """Bytes in the writable folders."""
    cause: Annotated[SupervisedLimit | None, Advice] = None
    """What the supervisor ended the agent for, if it was that."""
    over_disk: bool = False
    """The agent was ended for what it took of the disk."""
    interrupted: bool = False
    """The freezer was told to end while the agent was alive as far as it knew."""
    lost: str | None = Field(default=None, max_length=1000)
    """Why there is no state, when there is none."""


class Delivered(Record):
    """The answer to the driver's wait for a state; nothing is set when none came in time."""

    report: FreezeReport | None = None
    state: FrozenState | None = None
    """None: there is none, and the report says why."""
    output: BlobRef | None = None
    cancelled: bool = False
    """An operator asked for the end before any limit was reached."""


class StopAnswer(Record):
    """The answer to a long poll: neither is set when nothing happened in time."""

    stopped: StopWord | None = None
    sealed: bool = False


class LaunchNews(Record):
    """How a launch stands to which something happened."""

    launch: str
    stopped: StopWord | None = None
    sealed: bool = False
    delivered: bool = False
    """Its freezer has delivered, and what can be had."""


class News(Record):
    """The answer to a driver's long poll ``GET /admin/runs/{run}/news``: what happened to launches since number ``after``."""

    instance: str
    """Which process tells; another one counts anew."""
    last: int
    """Number of the last thing that is told here: ``after`` of the next question."""
    anew: bool = False
    """Not since ``after`` but since the beginning."""
    whole: bool = True
    """False: some of it is forgotten."""
    launches: tuple[LaunchNews, ...] = ()


class Orders(Record):
    """The answer to a freezer's long poll ``GET /launch/stop``: neither is set when nothing happened in time."""

    stopped: StopWord | Literal["cancelled"] | None = None
    """End the agent: a limit is reached, or an operator says so."""
    sealed: bool = False
    """Deliver: the agent is gone."""
