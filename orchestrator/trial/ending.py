"""Decide how a launch ended. Pure: from what the sandbox, the gateway and the agent's own answer say, in that order of trust."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.interfaces import Ending
from orchestrator.records.outcome import Seal
from orchestrator.records.state import FinalAnswer
from orchestrator.records.termination import TerminationReason

_SEEN_FROM_OUTSIDE: dict[str, TerminationReason] = {
    "out_of_memory": "out_of_memory",
    "out_of_disk": "out_of_disk",
    "out_of_processes": "out_of_processes",
}
_ONLY_WHEN_THE_AGENT_GAVE_UP = ("model_request_error", "context_exhausted")
"""Refusals of a provider that nothing enforces: an agent that ends well after one has coped with it."""

_GATEWAY = "gateway_restarted"


@dataclass(frozen=True)
class Decision:
    """The reason, and for a reason of ours the short word of its cause."""

    reason: TerminationReason
    cause: str | None = None
    error: str | None = None


_FAILED_AT_THE_GATEWAY: dict[str | None, Decision] = {
    "model_api_error": Decision(
        "model_api_error", "model_api_error", "the model provider could not be reached or kept failing; see `logs`"
    ),
    "user_simulator_error": Decision(
        "user_simulator_error",
        "user_simulator_error",
        "the model that plays the user could not be reached or kept failing; see `logs`",
    ),
    "infra_lost": Decision("infra_lost", _GATEWAY, "the gateway died while it did something for the agent; see `logs`"),
}


def decide(
    ending: Ending, seal: Seal, final: FinalAnswer | None, *, cancelled: bool, over_disk: bool = False
) -> Decision:
    """Return the termination reason; ``over_disk`` when the freezer found more than the disk limit.

    Precedence: an operator's stop; memory, disk and processes; the wall clock; a limit or failure at the gateway; the answer's status; exit
    code 0; a model that answered only with errors; anything else. A launch that spent more than half of its hard deadline waiting for a
    provider is ours, not the agent's.
    """
    if ending.cause == "stopped" and (
        cancelled or seal.stopped is None
    ):  # an operator asked this driver or one before it
        return Decision("cancelled")
    if ending.cause in _SEEN_FROM_OUTSIDE or over_disk:
        return Decision(_SEEN_FROM_OUTSIDE.get(ending.cause, "out_of_disk"))
    wall = ending.ended - ending.started
    if ending.cause == "wall_clock" and seal.waiting_s > wall / 2:
        return Decision(
            "infra_lost", "waiting", f"{seal.waiting_s:.0f} s of {wall:.0f} s were spent waiting for the model provider"
        )
    if ending.cause == "wall_clock" or seal.stopped == "wall_clock":
        return Decision("wall_clock")
    if seal.stopped in _FAILED_AT_THE_GATEWAY:
        return _FAILED_AT_THE_GATEWAY[seal.stopped]
    if seal.stopped is not None and seal.stopped not in _ONLY_WHEN_THE_AGENT_GAVE_UP:
        return Decision(seal.stopped)
    reason = _own_ending(ending, seal, final)
    if seal.unheard and reason in {"unhandled_exception", *_ONLY_WHEN_THE_AGENT_GAVE_UP}:
        return Decision(
            "infra_lost", _GATEWAY, "the agent failed while the gateway was away, or soon after; see `logs`"
        )
    return Decision(reason)


def _own_ending(ending: Ending, seal: Seal, final: FinalAnswer | None) -> TerminationReason:
    if final is not None:
        return final.status
    if ending.exit.code == 0:
        return "completed"
    return seal.stopped if seal.stopped in _ONLY_WHEN_THE_AGENT_GAVE_UP else "unhandled_exception"
