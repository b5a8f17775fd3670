"""One launch: everything the gateway knows of it, from registration to seal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import JsonValue

from orchestrator.gateway.body import Buffered, Pool
from orchestrator.gateway.calls import Route
from orchestrator.gateway.clock import WorkingClock
from orchestrator.gateway.config import CommonConfig
from orchestrator.gateway.egress import Egress
from orchestrator.gateway.findings import Findings
from orchestrator.gateway.listener import LaunchListener
from orchestrator.gateway.meter import Meter
from orchestrator.gateway.pod import LaunchPod
from orchestrator.gateway.real_dates import RealDates
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.toolbox import Toolbox
from orchestrator.gateway.transcript import Transcript
from orchestrator.gateway.users import Conversation
from orchestrator.gateway.wire import LaunchBody, LaunchNews, Orders, Part, StopWord
from orchestrator.gateway.worlds.engine import LaunchWorld
from orchestrator.interfaces import Trajectory
from orchestrator.records.base import BlobRef
from orchestrator.records.outcome import Seal
from orchestrator.records.state import FinalAnswer
from orchestrator.records.termination import BudgetReason
from orchestrator.records.usage import NOTHING_USED, Usage

_SHORTEST_NAP = 0.01
_LONGEST_NAP = 5.0
"""Time that was taken for waiting may turn out to have been work, which nobody tells the watch of."""
_MOST_REFUSALS = 200
"""Refusals recorded one by one; later ones are only counted."""

_OVER: dict[str | None, str] = {
    "model_api_error": "the model provider has failed for good; the trial ends now",
    "user_simulator_error": "the model that plays the user keeps failing, and this trial ends now",
    "infra_lost": "the gateway was started anew and has lost what it did for this trial, which ends now",
}
"""What a launch is told that has ended by a failure of ours."""

RequestFailure = Literal["model_request_error", "context_exhausted", "model_api_error"]


class Launch:
    """State of one launch. Its rules are in ``agent`` (the agent), ``pods`` (a pod's own programs), ``admin`` (driver), ``relay``
    (frozen state) and ``sealing``.
    """

    world: LaunchWorld | None = None
    """The database of its task's world and the tools over it."""
    apis: frozenset[str] = frozenset()
    """HTTP APIs of its task, which are tools as well."""
    brought: tuple[dict[str, JsonValue], ...] = ()
    """Tools of MCP servers of its task as they were listed, for who records their answers: ``{name, description, arguments}``."""
    talk: Conversation | None = None
    """With the task's user."""
    user_usage: Usage = NOTHING_USED
    """What the model has used that plays the user."""
    fixture_misses: int = 0
    """Calls that the recorded answers of its task do not hold."""
    egress: Egress | None = None
    """The way out, where its task has a network."""
    finish: FinalAnswer | None = None
    """What the agent said by ``finish``."""
    generation: int = 0
    """Counts registrations that made tokens: the last one's are good."""
    expires: int = 0
    """Until when they are, in seconds since 1970."""
    minted_until: int = 0
    """The same as the tokens say it themselves, who cannot know when a pod will begin: never earlier."""
    request_failure: RequestFailure | None = None
    """Set while the last model call is one that failed: by its request, or at the provider after a part of the answer was shown."""
    stopped: StopWord | None = None
    listener: LaunchListener | None = None
    started: float | None = None
    """When its working clock started, seconds since 1970."""
    unheard: bool = False
    """The gateway was away, and nothing has been heard of the agent since."""
    summary: dict[str, Any] | None = None
    """What an earlier process has written as the last event, before it made a seal of it."""
    sealing: bool = False
    seal: Seal | None = None

    def __init__(
        self, body: LaunchBody, trajectory: Trajectory, routes: dict[str, Route], config: CommonConfig, pool: Pool
    ) -> None:
        self.id = body.id
        self.body = body
        self.routes = routes
        self.config = config
        self.trajectory = trajectory
        self.transcript = Transcript(trajectory)
        self.meter = Meter(body.budgets)
        self.clock = WorkingClock()
        self.dates: RealDates | None = None
        self.buffered = Buffered(config.limits.buffered_bytes, pool)
        self.findings = Findings(self._found)
        self.tools = Toolbox()  # what the gateway offers beside models
        self.models: set[str] = set()
        self.long_answers: set[str] = set()
        """Models that have needed longer for a whole answer than one is waited for."""
        self.stop = asyncio.Event()
        """Set when the sandbox should be ended."""
        self.pod = LaunchPod(body.id, config.limits)
        self.changed: Callable[[], None] = lambda: None
        """Called when it is to be stopped, is sealed or has delivered."""
        self.keep: Callable[[], None] = lambda: None
        """Called when something changed that its trajectory does not tell and a process after this one must know."""
        self.mark: Callable[[bool], None] = lambda _is_open: None
        """Called when its first connection to the outside begins, and when its last one has ended."""
        self.calls: set[asyncio.Task[Any]] = set()
        self.turns = asyncio.Semaphore(
            min([config.limits.calls, *(route.limiter.ceiling for route in routes.values())])
        )
        """Places for calls at the provider, so that one launch cannot fill a queue that all share and call that waiting. No more than the
        provider has: calls that wait for others of their own launch do not wait for the provider."""
        self.seal_lock = asyncio.Lock()
        self.sealed = asyncio.Event()
        self.parts: dict[Part, BlobRef] = {}
        """What has been taken of its state."""
        self._refusals = 0
        self._timers: list[asyncio.TimerHandle] = []
        self._wall: asyncio.Task[None] | None = None

    @property
    def hosted(self) -> frozenset[str]:
        """Types of tools that may run at the provider."""
        return frozenset(self.body.hosted_tools)

    @property
    def over(self) -> bool:
        """Whether all that it leaves is in the store. What was printed may be nothing."""
        if self.config.serves_pods:
            return self.pod.delivered.is_set()
        return "entries" in self.parts and "changes" in self.parts

    def record_beginning(self) -> None:
        """Write the first event of its trajectory."""
        facts = self.body.model_dump(mode="json", include={"run", "trial", "launch", "models", "budgets", "seed"})
        if self.brought:
            facts["tools"] = list(self.brought)
        self.trajectory.append("launch", "gateway", facts)

    def refuse_when_lost(self) -> None:
        """Raise Refusal when it has ended by a failure of ours: what its agent does now counts for nothing, and changes nothing."""
        if self.stopped in _OVER:
            raise Refusal(502, "model_api_error", _OVER[self.stopped], code=self.stopped)

    def start_clock(self) -> None:
        """Start the working clock and watch its limit."""
        if self.clock.started is None:
            self.clock.start(time.monotonic())
            self.started = time.time()
            self.keep()
        self._wall = self._wall or asyncio.create_task(self._watch_wall())

    def stop_clock(self) -> None:
        """Stop the working clock and all timers."""
        self.clock.stop(time.monotonic())
        for timer in self._timers:
            timer.cancel()
        if self._wall is not None:
            self._wall.cancel()

    def end(self, word: StopWord, after_s: float = 0) -> None:
        """Decide why the launch ends, the first time, and ask for its end after some seconds."""
        if self.stopped is None:
            self.stopped = word
            self.trajectory.append("budget", "gateway", {"reason": word, "end_in_s": after_s, **self.counters()})
        if not self.sealing:
            self._timers.append(asyncio.get_running_loop().call_later(after_s, self._stop))

    def spend(self, reason: BudgetReason) -> None:
        """A limit was reached: the agent has been told and gets a moment to end by itself."""
        if self.stopped is None:
            self.end(reason, 0 if reason == "wall_clock" else self.config.grace_seconds)

    def refused(self, refusal: Refusal, what: str) -> None:
        """Record that something was refused."""
        if refusal.finding:
            self.findings.add(refusal.kind, f"{what}: {refusal.message}")
        self._refusals += 1
        if self._refusals <= _MOST_REFUSALS:
            data: dict[str, JsonValue] = {
                "what": what,
                "status": refusal.status,
                "kind": refusal.kind,
                "code": refusal.code,
                "message": refusal.message,
            }
            self.trajectory.append("refusal", "gateway", data)

    def recall_refusal(self) -> None:
        """Count a refusal of which an earlier process has told."""
        self._refusals += 1

    def _found(self, kind: str, detail: str) -> None:
        self.trajectory.append("finding", "gateway", {"kind": kind, "detail": detail})

    def counters(self) -> dict[str, JsonValue]:
        """Return the main numbers, for events."""
        usage = self.meter.usage
        return {
            "steps": self.meter.steps,
            "tool_calls": self.meter.tool_calls,
            "tokens": usage.total,
            "cost_nano_usd": usage.cost_nano_usd,
        }

    def orders(self) -> Orders:
        """Return what its pod's freezer has to do."""
        word: StopWord | Literal["cancelled"] | None = "cancelled" if self.pod.halted.is_set() else None
        return Orders(stopped=self.stopped if self.stop.is_set() else word, sealed=self.sealed.is_set())

    def _stop(self) -> None:
        self.stop.set()
        self.changed()

    def news(self) -> LaunchNews:
        """Return how it stands, for its driver."""
        return LaunchNews(
            launch=self.id,
            stopped=self.stopped if self.stop.is_set() else None,
            sealed=self.sealed.is_set(),
            delivered=self.pod.delivered.is_set(),
        )

    async def _watch_wall(self) -> None:
        limit = self.body.budgets.max_wall_seconds
        # Waiting stops the working clock, so the time that is left must be looked at again after each nap.
        while (left := limit - self.clock.working(time.monotonic())) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(max(left, _SHORTEST_NAP), _LONGEST_NAP))
        self.meter.spend("wall_clock")
        self.spend("wall_clock")
