"""What earlier trials of a suite did cost and how long they worked, by task and agent: for estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.dataset.commits import load_snapshot
from orchestrator.dataset.query import query
from orchestrator.interfaces import ObjectStore

_SQL = """
SELECT task, agent, task_digest, agent_digest,
       count(spent_nano_usd), coalesce(sum(spent_nano_usd), 0)::HUGEINT, count(working_s), coalesce(sum(working_s), 0)
FROM trials WHERE outcome_class = 'result' AND origin IS DISTINCT FROM 'production' GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True)
class Pair:
    """A task and an agent, as they are named and as they are."""

    task: str
    agent: str
    task_digest: str
    agent_digest: str


@dataclass(frozen=True)
class Past:
    """Sums over trials with a result. A trial costs what all its launches did."""

    priced: int = 0
    """Trials whose cost is known."""
    cost_nano_usd: int = 0
    """Of these, together."""
    timed: int = 0
    """Trials whose time is known."""
    working_s: float = 0
    """Working seconds of these, together."""

    @property
    def mean_cost(self) -> int | None:
        """Mean cost of a trial in nano USD; None when none is known."""
        return round(self.cost_nano_usd / self.priced) if self.priced else None

    @property
    def mean_seconds(self) -> float | None:
        """Mean working time of a trial; None when none is known."""
        return self.working_s / self.timed if self.timed else None

    def plus(self, other: Past) -> Past:
        """Return both together."""
        return Past(
            self.priced + other.priced,
            self.cost_nano_usd + other.cost_nano_usd,
            self.timed + other.timed,
            self.working_s + other.working_s,
        )


class History:
    """Earlier trials of one suite."""

    def __init__(self, known: Sequence[tuple[Pair, Past]]) -> None:
        self._same = dict(known)
        self._named: dict[tuple[str, str], Past] = {}
        for pair, past in known:
            name = (pair.task, pair.agent)
            self._named[name] = self._named.get(name, Past()).plus(past)

    def same(self, pair: Pair) -> Past | None:
        """Return what is known of exactly this task and this agent."""
        return self._same.get(pair)

    def named(self, pair: Pair) -> Past | None:
        """Return what is known of any task and agent of these names."""
        return self._named.get((pair.task, pair.agent))


NO_HISTORY = History(())


async def read_history(store: ObjectStore, suite: str, cache: Path) -> History:
    """Return the earlier trials of a suite that the dataset has. Raises StoreError when it cannot be read."""
    snapshot = await load_snapshot(store)
    if not any(part.suite == suite for part in snapshot.of_table("trials")):
        return NO_HISTORY
    found = await query(store, _SQL, cache, suite=suite)
    return History([(Pair(*row[:4]), Past(*row[4:])) for row in found.rows])
