"""Budgets of one launch: what was used, what is left, and who must wait or stop.

A call takes its step before it is sent, so parallel calls can never exceed the step limit; tokens and costs are known only
afterwards, so those limits can be exceeded by the calls that were in flight when they were reached. Tool calls are counted
as models ask for them: what would exceed their limit is withheld. Calls of the gateway's own tools that no model asked for are counted
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


_SIDE_CALLS = 10
"""For each step: questions to a provider that are no steps, and calls that it refused as wrong."""


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
        self._side_calls = 0
        self._in_flight = 0
        self._settled = asyncio.Condition()

    async def reserve(self) -> None:
        """Take one step for a call that is about to be sent; ``settle`` must follow.

        Waits while the last steps are in flight, since one of them may yet fail. Raises BudgetSpentError.
        """
        async with self._settled:
            while True:
                self.check()
                if self.steps + self._in_flight < self.budgets.max_steps:
                    self._in_flight += 1
                    return
                await self._settled.wait()

    async def settle(self, usage: Usage | None) -> None:
        """End a call: with its usage when a response came, with None when none did."""
        async with self._settled:
            self._in_flight -= 1
            self._settled.notify_all()
            if usage is not None:
                self.steps += 1
                self.usage = self.usage.plus(usage)

    def take_side_call(self) -> bool:
        """Count something that a provider is asked and that is no step. Returns whether it is not too much."""
        self._side_calls += 1
        return self._side_calls <= self._most_side_calls

    @property
    def may_ask(self) -> bool:
        """Whether a provider may be asked for something that may turn out to be no step."""
        return self._side_calls < self._most_side_calls

    @property
    def _most_side_calls(self) -> int:
        return _SIDE_CALLS * self.budgets.max_steps

    def recall(self, usage: Usage) -> None:
        """Count a response of which an earlier process has known."""
        self.steps += 1
        self.usage = self.usage.plus(usage)

    def take_tool_calls(self, count: int) -> None:
        """Count tool calls that a model asks for.

        Raises BudgetSpentError when there are more than are left: none of them may reach the agent.
        """
        if self.tool_calls + count > self.budgets.max_tool_calls:
            raise self.spend("tool_call_cap")
        self.tool_calls += count

    def return_tool_calls(self, count: int) -> None:
        """Take back what was counted of an answer that has failed before anybody saw it."""
        self.tool_calls -= count

    def add(self, usage: Usage) -> None:
        """Count what was used for no response."""
        self.usage = self.usage.plus(usage)

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
        return {f"x-orchestrate-{name.replace('_', '-')}-left": text for name, text in self._left().items()}

    def left_in_numbers(self) -> dict[str, int | float]:
        """Return what is left; US dollars only where they are limited and known."""
        return {name: float(text) if name == "usd" else int(text) for name, text in self._left().items()}

    def _left(self) -> dict[str, str]:
        budgets = self.budgets
        found = {
            "steps": str(max(0, budgets.max_steps - self.steps)),
            "tool_calls": str(max(0, budgets.max_tool_calls - self.tool_calls)),
            "tokens": str(max(0, budgets.max_tokens - self.usage.total)),
        }
        if budgets.max_cost_usd is not None and self.usage.cost_nano_usd is not None:
            found["usd"] = f"{max(0.0, budgets.max_cost_usd - self.usage.cost_nano_usd / NANO):.6f}"
        return found

    def check(self) -> None:
        """Raise BudgetSpentError when a limit is reached: whoever has waited for a place asks again before a call is sent."""
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
