"""How far one run is: who drives it, what came of its trials, what is left, and how long that may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.driver.execute import Execution
from orchestrator.driver.lookout import RunState, Sight
from orchestrator.driver.wishes import is_stop
from orchestrator.errors import InfrastructureError, SpendingLimitError
from orchestrator.records.lease import Beat, Wish
from orchestrator.records.verdict import TrialResult


@dataclass(frozen=True, kw_only=True)
class AgentStanding:
    """One agent in a run."""

    agent: str
    planned: int
    counts: Mapping[TrialResult, int]
    """Trials by word of the denominator table; words without a trial are absent."""
    left: int
    """Trials that ``resume`` would run or grade."""
    infra_share: float
    """infra / planned."""
    spent_nano_usd: int | None
    """None: a price is unknown."""


@dataclass(frozen=True)
class Standing:
    """A run at one moment."""

    data: RunData
    sight: Sight
    wish: Wish | None = None
    """What was wanted of it last; None when nobody has said anything, or nobody asks."""

    @property
    def stop(self) -> Wish | None:
        """Return the stop that somebody asked for and no driver has carried out yet."""
        return self.wish if is_stop(self.wish) and self.state not in {"stopped", "complete"} else None

    @property
    def agents(self) -> tuple[AgentStanding, ...]:
        """Return the agents, in the order of the manifest."""
        rows = self.data.rows
        return tuple(
            self._agent(agent.name, [row for row in rows if row.agent.name == agent.name])
            for agent in self.data.manifest.agents
        )

    def _agent(self, name: str, rows: list[TrialRow]) -> AgentStanding:
        counts = Counter(row.result for row in rows)
        return AgentStanding(
            agent=name,
            planned=len(rows),
            counts=counts,
            left=sum(row.is_left(self.data.manifest.max_launches) for row in rows),
            infra_share=counts["infra"] / len(rows) if rows else 0.0,
            spent_nano_usd=_sum(row.spent_nano_usd for row in rows),
        )

    @property
    def planned(self) -> int:
        """All trials."""
        return len(self.data.rows)

    @property
    def to_grade(self) -> int:
        """Trials with a result and no verdict yet."""
        return sum(self._is_left(row) and _has_result(row) for row in self.data.rows)

    @property
    def to_run(self) -> int:
        """Trials that need a launch, those that run now among them."""
        return sum(self._is_left(row) and not _has_result(row) for row in self.data.rows)

    @property
    def left(self) -> int:
        """Trials that ``resume`` would run or grade."""
        return self.to_run + self.to_grade

    def _is_left(self, row: TrialRow) -> bool:
        return row.is_left(self.data.manifest.max_launches)

    @property
    def state(self) -> RunState:
        """Return the one word for it."""
        return self.sight.run_state(self.left, self.planned - self.left)

    @property
    def phases(self) -> Mapping[str, int]:
        """Trials that run now, by phase, as the driver last said; empty when nobody drives."""
        return {} if (beat := self._beat) is None else beat.phases

    @property
    def waits(self) -> Mapping[str, int]:
        """Trials that run but do not get on, by reason, as the driver last said; empty when nobody drives."""
        return {} if (beat := self._beat) is None else beat.waits

    @property
    def _beat(self) -> Beat | None:
        """The last sign of life of a driver that drives."""
        return self.sight.holder.beat if self.sight.holder and self.sight.state == "driving" else None

    @property
    def counts(self) -> Mapping[TrialResult, int]:
        """Trials that are over, by word. One whose launch failed and is made again is not."""
        return Counter(row.result for row in self.data.rows if not self._is_left(row))

    @property
    def failed_launches(self) -> Mapping[str, int]:
        """Committed launches that failed on our side, by cause."""
        launches = [launch for row in self.data.rows for launch in row.launches if launch.outcome_class == "infra"]
        return dict(sorted(Counter(launch.cause or "unknown" for launch in launches).items()))

    @property
    def spent_nano_usd(self) -> int | None:
        """What every committed launch cost; None: a price is unknown."""
        return _sum(row.spent_nano_usd for row in self.data.rows)

    @property
    def eta_s(self) -> float | None:
        """Seconds until the end at the pace of this driver so far; None when it drives no more, has brought no trial to an end, or
        all that runs waits.
        """
        holder = self.sight.holder
        if self.sight.state != "driving" or holder is None or holder.beat is None or not holder.beat.ended:
            return None
        if 0 < sum(holder.beat.phases.values()) <= sum(holder.beat.waits.values()):
            return None
        return (holder.beat.at - holder.claim.at) / holder.beat.ended * self.left

    def execution(self) -> Execution:
        """Return what its last driver would say of it at its end. What it says of money needs no more than a message."""
        release = self.sight.holder.release if self.sight.holder else None
        reason, detail = (release.reason, release.detail) if release else ("failed", "")
        lost = tuple(row.trial for row in self.data.rows if not _has_result(row) and not self._is_left(row))
        return Execution(
            0,
            self.left,
            lost,
            InfrastructureError(detail) if reason == "paused" else None,
            SpendingLimitError(detail) if reason == "limit" else None,
        )


def _has_result(row: TrialRow) -> bool:
    return row.outcome is not None and row.outcome.outcome_class == "result"


def _sum(costs: Iterable[int | None]) -> int | None:
    every = list(costs)
    return None if None in every else sum(cost for cost in every if cost is not None)
