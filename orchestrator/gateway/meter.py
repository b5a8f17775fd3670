"""Budgets of one launch: what was used, what is left, and who must wait or stop.

A call takes its step before it is sent, so parallel calls can never exceed the step limit; tokens and costs are known only
afterwards, so those limits can be exceeded by the calls that were in flight when they were reached. Tool calls are counted
in model answers: an answer that would exceed their limit is withheld. Calls of the gateway's own tools that no model asked for are counted
as they come.
"""

from __future__ import annotations

import asyncio

from orchestrator.records.termination import BudgetReason
from orchestrator.records.usage import NOTHING_USED, Usage
from orchestrator.spec.task import Budgets

NANO = 10**9

_WORDS: dict[BudgetReason, str] = {
    "step_cap": "the limit of {} model responses is reached",
    "tool_call_cap": "the limit of {} tool calls is reached",
    "token_budget": "the limit of {} tokens is reached",
    "cost_budget": "the limit of {} US dollars is reached",
    "wall_clock": "the limit of {} seconds of working time is reached",
    "context_exhausted": "the model's context is full",
}


class BudgetSpentError(Exception):
    """A limit was reached; ``reason`` says which."""

    def __init__(self, reason: BudgetReason, message: str) -> None:
        super().__init__(message)
        self.reason: BudgetReason = reason


class Meter:
    """Counts one launch's model calls against its budgets."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.steps = 0
        self.tool_calls = 0
        self.usage: Usage = NOTHING_USED
        self.spent: BudgetReason | None = None
        """The limit that was reached first."""
        self._in_flight = 0
        self._settled = asyncio.Condition()

    async def reserve(self) -> None:
        """Take one step for a call that is about to be sent; ``settle`` must follow.

        Waits while the last steps are in flight, since one of them may yet fail. Raises BudgetSpentError.
        """
        async with self._settled:
            while True:
                self._check()
                if self.steps + self._in_flight < self.budgets.max_steps:
                    self._in_flight += 1
                    return
                await self._settled.wait()

    async def settle(self, usage: Usage | None, tool_calls: int = 0) -> None:
        """End a call: with its usage when a response came, with None when none did.

        Raises BudgetSpentError when the response has more tool calls than are left: it must not reach the agent.
        """
        async with self._settled:
            self._in_flight -= 1
            self._settled.notify_all()
            if usage is None:
                return
            self.steps += 1
            self.usage = self.usage.plus(usage)
            if self.tool_calls + tool_calls > self.budgets.max_tool_calls:
                raise self.spend("tool_call_cap")
            self.tool_calls += tool_calls

    def admit_tool_call(self, *, is_counted: bool) -> None:
        """Admit a call of one of the gateway's tools, and count it unless it was counted in a model's answer.

        Raises BudgetSpentError.
        """
        if self.spent:
            raise self.spend(self.spent)
        if is_counted:
            return
        if self.tool_calls >= self.budgets.max_tool_calls:
            raise self.spend("tool_call_cap")
        self.tool_calls += 1

    def spend(self, reason: BudgetReason) -> BudgetSpentError:
        """Note that a limit was reached; the first one stays. Returns the error to raise."""
        self.spent = self.spent or reason
        return BudgetSpentError(self.spent, self._message(self.spent))

    def left(self) -> dict[str, str]:
        """Return what is left, as response headers."""
        budgets = self.budgets
        found = {
            "x-orchestrate-steps-left": str(max(0, budgets.max_steps - self.steps)),
            "x-orchestrate-tool-calls-left": str(max(0, budgets.max_tool_calls - self.tool_calls)),
            "x-orchestrate-tokens-left": str(max(0, budgets.max_tokens - self.usage.total)),
        }
        if budgets.max_cost_usd is not None and self.usage.cost_nano_usd is not None:
            found["x-orchestrate-usd-left"] = f"{max(0.0, budgets.max_cost_usd - self.usage.cost_nano_usd / NANO):.6f}"
        return found

    def _check(self) -> None:
        budgets, used = self.budgets, self.usage
        if self.spent:
            raise self.spend(self.spent)
        if self.steps >= budgets.max_steps:
            raise self.spend("step_cap")
        if used.total >= budgets.max_tokens:
            raise self.spend("token_budget")
        limit = budgets.max_cost_usd
        # An unknown cost cannot be held under a limit: registration admits priced models only, so a lost price means lost usage.
        if limit is not None and (used.cost_nano_usd is None or used.cost_nano_usd >= round(limit * NANO)):
            raise self.spend("cost_budget")

    def _message(self, reason: BudgetReason) -> str:
        limits: dict[BudgetReason, object] = {
            "step_cap": self.budgets.max_steps,
            "tool_call_cap": self.budgets.max_tool_calls,
            "token_budget": self.budgets.max_tokens,
            "cost_budget": self.budgets.max_cost_usd,
            "wall_clock": self.budgets.max_wall_seconds,
        }
        return _WORDS[reason].format(limits.get(reason)) + "; the trial ends now"
