"""How trials end: a closed list, decided by the harness, never read from text."""

from __future__ import annotations

from typing import Literal, get_args

TerminationReason = Literal[
    "completed",
    "declined",
    "asked",
    "step_cap",
    "tool_call_cap",
    "token_budget",
    "cost_budget",
    "wall_clock",
    "context_exhausted",
    "tool_error_limit",
    "policy_stop",
    "out_of_memory",
    "out_of_disk",
    "out_of_processes",
    "model_request_error",
    "unhandled_exception",
    "model_api_error",
    "user_simulator_error",
    "infra_lost",
    "cancelled",
    "not_recorded",
]
"""Every way in which a launch can end; ``not_recorded``: an imported trace does not say, and nobody guesses."""

TerminationClass = Literal["agent", "budget", "infra", "operator", "none"]
OutcomeClass = Literal["result", "infra", "cancelled"]

TERMINATION_CLASS: dict[TerminationReason, TerminationClass] = {
    "completed": "agent",
    "declined": "agent",
    "asked": "agent",
    "step_cap": "budget",
    "tool_call_cap": "budget",
    "token_budget": "budget",
    "cost_budget": "budget",
    "wall_clock": "budget",
    "context_exhausted": "budget",
    "tool_error_limit": "agent",
    "policy_stop": "agent",
    "out_of_memory": "agent",
    "out_of_disk": "agent",
    "out_of_processes": "agent",
    "model_request_error": "agent",
    "unhandled_exception": "agent",
    "model_api_error": "infra",
    "user_simulator_error": "infra",
    "infra_lost": "infra",
    "cancelled": "operator",
    "not_recorded": "none",
}
"""Who caused each ending. Only ``infra`` and ``operator`` leave the denominator; ``none`` is never in one, since imports are not graded."""

REASONS: tuple[TerminationReason, ...] = get_args(TerminationReason)

SupervisedLimit = Literal["out_of_memory", "out_of_processes"]
"""Limits that the first process of a pod's agent watches."""
BudgetReason = Literal["step_cap", "tool_call_cap", "token_budget", "cost_budget", "wall_clock", "context_exhausted"]


def outcome_class(reason: TerminationReason) -> OutcomeClass:
    """Return the class of an outcome that ended like this."""
    return {"agent": "result", "budget": "result", "none": "result", "infra": "infra", "operator": "cancelled"}[
        TERMINATION_CLASS[reason]
    ]  # type: ignore[return-value]
