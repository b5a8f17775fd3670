"""Close a launch whose process died: nobody else will say how it ended."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orchestrator.errors import InfrastructureError, LeaseLostError
from orchestrator.interfaces import Gateway, ObjectStore, PlannedTrial
from orchestrator.records.outcome import Outcome, Seal, Times
from orchestrator.records.usage import NOTHING_USED, Usage
from orchestrator.trial.marker import commit_outcome


@dataclass(frozen=True, kw_only=True)
class Undertaker:
    """Seals lost launches at the gateway and commits what stands for them."""

    run: str
    store: ObjectStore
    gateway: Gateway
    hold: Callable[[], Awaitable[None]]
    """As in ``Crew``."""
    writer_id: str
    epoch: int

    async def knows(self, planned: PlannedTrial) -> bool:
        """Return whether the gateway knows the trial's next launch, which is then sealed. Raises GatewayError."""
        return await self._seal(planned) is not None

    async def bury(self, planned: PlannedTrial, cause: str, message: str) -> Outcome:
        """Revoke what the trial's next launch may still use and return the outcome that stands for it: a tombstone, or the real one.

        Raises StoreError and LeaseLostError.
        """
        try:
            seal = await self._seal(planned)
        except LeaseLostError:
            raise
        except InfrastructureError:  # a gateway that is gone has revoked every token
            seal = None
        tombstone = self._tombstone(planned, seal, cause, message)
        await self.hold()
        return await commit_outcome(self.store, tombstone)

    async def _seal(self, planned: PlannedTrial) -> Seal | None:
        return await self.gateway.seal_lost(self.run, planned.id, planned.first_launch, self.epoch)

    def _tombstone(self, planned: PlannedTrial, seal: Seal | None, cause: str, message: str) -> Outcome:
        now = time.time()
        unknown = Usage() if planned.agent.agent.models else NOTHING_USED
        return Outcome(
            run=self.run,
            trial=str(planned.id),
            launch=planned.first_launch,
            outcome_class="infra",
            termination_reason="infra_lost",
            trajectory=None if seal is None else seal.trajectory,
            usage=unknown if seal is None else seal.usage,
            steps=0 if seal is None else seal.steps,
            tool_calls=0 if seal is None else seal.tool_calls,
            models=() if seal is None else seal.models,
            times=Times(started=now, ended=now, working_s=0, waiting_s=0),
            error=message,
            cause=cause,
            writer_id=self.writer_id,
            epoch=self.epoch,
        )
