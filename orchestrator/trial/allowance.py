"""The allowance of a run without a spending limit."""

from __future__ import annotations

from orchestrator.interfaces import PlannedTrial
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome


class Unlimited:
    """Sets nothing aside. Implements Allowance."""

    async def reserve(self, planned: PlannedTrial, launch: int) -> None:
        """Nothing to set aside."""

    async def settle(self, outcome: Outcome) -> None:
        """Nothing to settle."""

    async def forfeit(self, trial: TrialId, launch: int) -> None:
        """Nothing to count."""
