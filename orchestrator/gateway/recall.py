"""Brings a launch to where the process before this one has left it, from its trajectory.

Each event does to the launch's memory what happened when it was written. A model call, a call of a tool or a connection to the outside that
was under way when that process died is lost: nobody knows what came of it, so the launch ends as ``infra_lost``, unless the agent had
finished. All other launches go on. The time in which there was no gateway is waiting, not the agent's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.gateway.findings import printable
from orchestrator.gateway.finish import final_answer
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.pod import Begun
from orchestrator.gateway.provider import TIMED_OUT
from orchestrator.gateway.volume import Absence, Card, CardPod
from orchestrator.records.state import FinalAnswer
from orchestrator.records.termination import BudgetReason
from orchestrator.records.usage import Usage

_LEAST_WAIT = 0.001
_FAILURES = frozenset({"model_api_error", "model_request_error", "context_exhausted"})
_REQUEST_FAILURES = _FAILURES - {"model_api_error"}
Raw = Mapping[str, Any]


class Recall:
    """Takes the events of one launch, in order."""

    def __init__(self, launch: Launch, now: float, monotonic: float) -> None:
        """``now`` is the time in seconds since 1970, ``monotonic`` the same instant by the clock of the launch."""
        self._launch = launch
        self._offset = monotonic - now
        self._models: dict[int, str | None] = {}
        """Model calls without an answer, with the word for how they have failed for good, if they have."""
        self._tools: dict[int, Raw] = {}
        """Calls of tools without a result."""
        self._is_cut = False
        self.events = 0
        self._by_type: dict[str, Callable[[Raw], None]] = {
            "model_request": self._request,
            "model_response": self._response,
            "model_error": self._error,
            "tool_call": self._tool_call,
            "tool_result": self._tool_result,
            "egress": self._egress,
            "finish": self._finish,
            "budget": self._budget,
            "refusal": lambda _event: launch.recall_refusal(),
            "finding": lambda event: launch.findings.recall(event["kind"], event["detail"]),
            "seal": self._seal,
        }

    @property
    def lost(self) -> str | None:
        """What was under way when the process died; None: nothing."""
        if self._is_cut:
            return "its trajectory was too large to tell what was under way"
        if any(failure is None or failure == "aborted" for failure in self._models.values()):
            return "a model call was under way"
        return "a call of a tool was under way" if self._tools else None

    def take(self, event: Raw) -> None:
        """Take the next event, one flat object."""
        self.events += 1
        if "cut" in event:
            self._is_cut = True
        elif (take := self._by_type.get(event["type"])) is not None:
            take(event)

    def _request(self, event: Raw) -> None:
        self._launch.transcript.recall(event)
        self._models[event["seq"]] = None

    def _response(self, event: Raw) -> None:
        launch = self._launch
        failure = self._models.pop(event["request"], None)
        launch.meter.recall(Usage.model_validate(event["tokens"]))
        if event["model"] is not None:
            launch.models.add(printable(event["model"], 200))
        launch.request_failure = failure if failure in _FAILURES else None  # type: ignore[assignment]
        self._count_calls([part["name"] for part in event["message"]["parts"] if part["type"] == "tool_call"])
        waited, came = event["waited_s"], event["t"] - event["seconds"] + self._offset
        if waited >= _LEAST_WAIT:
            launch.clock.waited(came - waited, came)

    def _error(self, event: Raw) -> None:
        launch, failure, tokens = self._launch, event["failure"], event.get("tokens")
        is_step = failure not in {None, "aborted"} and event["code"] != TIMED_OUT
        if tokens is not None:
            (launch.meter.recall if is_step else launch.meter.add)(Usage.model_validate(tokens))
        if failure is None:
            return
        self._models[event["request"]] = failure
        if failure in _FAILURES:
            launch.request_failure = failure
        if failure in _REQUEST_FAILURES:
            launch.meter.take_side_call()

    def _count_calls(self, names: list[str | None]) -> None:
        """Count what an answer has asked for. What exceeds the limit was not counted: none of the calls of that answer."""
        meter = self._launch.meter
        if meter.spent != "tool_call_cap" and meter.tool_calls + len(names) <= meter.budgets.max_tool_calls:
            meter.tool_calls += len(names)
            self._launch.tools.announced(names)

    def _tool_call(self, event: Raw) -> None:
        launch = self._launch
        if event["source"] == "agent":  # counted with its answer
            return
        self._tools[event["seq"]] = event
        tool = launch.tools.find(event["name"])
        is_counted = launch.tools.take_announced(event["name"])
        if tool is not None and not (tool.is_free and event["valid"]) and not is_counted:
            launch.meter.tool_calls += 1

    def _tool_result(self, event: Raw) -> None:
        if event["source"] == "agent":
            return
        call = self._tools.pop(event["call"], None)
        tool = None if call is None else self._launch.tools.find(call["name"])
        if call is None or tool is None:
            return
        if tool.recall_result is not None:
            if call["valid"]:
                tool.recall_result(call["arguments"], event)
        elif event["outcome"] == "ok" or (tool.recalls_failures and call["valid"]):
            tool.recall(call["arguments"])

    def _finish(self, event: Raw) -> None:
        said = {name: event[name] for name in FinalAnswer.model_fields if event.get(name) is not None}
        self._launch.finish = final_answer(said)

    def _egress(self, event: Raw) -> None:
        if self._launch.egress is not None:
            self._launch.egress.recall(event["sent"] + event["received"])

    def _budget(self, event: Raw) -> None:
        launch = self._launch
        launch.stopped = reason = event["reason"]
        if reason not in {"model_api_error", "user_simulator_error", "infra_lost"}:
            spent: BudgetReason = reason
            launch.meter.spent = spent
        if reason == "tool_call_cap":  # it counts what had been asked for then, which no event before it tells
            launch.meter.tool_calls = event["tool_calls"]

    def _seal(self, event: Raw) -> None:
        self._launch.summary = {"stopped": event["stopped"], "waiting_s": event["waiting_s"]}


def go_on(launch: Launch, card: Card, recall: Recall, absence: Absence, *, was_outside: bool) -> None:
    """Let a launch go on whose trajectory has been read, or end it as lost. ``was_outside``: it had connections to the outside."""
    take_card(launch, card)
    launch.tools.sessions.adopts = True
    now = time.time()
    offset = time.monotonic() - now
    if card.started is not None:
        launch.started = card.started
        launch.clock.start(card.started + offset)
        launch.clock.waited(absence.since + offset, now + offset)
    if launch.summary is not None:
        launch.stop.set()
        return
    launch.unheard = card.started is not None
    launch.findings.add("gateway_restarted", f"the gateway was away for {max(0.0, now - absence.since):.1f} s")
    lost = recall.lost or ("a connection to the outside was open" if was_outside else None)
    if absence.machine_died:
        lost = "its machine died, so the last of its trajectory may be missing"
    if lost is not None and launch.finish is None and launch.stopped is None:
        launch.findings.add("gateway_lost", lost)
        launch.end("infra_lost")
    if card.started is not None:
        launch.start_clock()
    if launch.stopped is not None:
        launch.stop.set()
    launch.trajectory.hand_over()


def take_card(launch: Launch, card: Card) -> None:
    """Take over what a launch is, beside its trajectory."""
    launch.generation, launch.expires, launch.minted_until = card.generation, card.expires, card.minted_until
    if card.begun is not None:
        launch.pod.begin(Begun(uid=card.begun.uid, address=card.begun.address))
    if card.halted:
        launch.pod.halted.set()
    launch.parts = dict(card.parts)


def card_of(launch: Launch) -> Card:
    """Return what a launch is, beside its trajectory."""
    begun = launch.pod.begun
    return Card(
        body=launch.body,
        generation=launch.generation,
        expires=launch.expires,
        minted_until=launch.minted_until,
        begun=None if begun is None else CardPod(uid=begun.uid, address=begun.address),
        started=launch.started,
        halted=launch.pod.halted.is_set(),
        parts=launch.parts,
    )
