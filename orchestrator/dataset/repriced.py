"""What a run would have cost at other prices: every model response that was counted is priced again.

What was never known stays unknown: responses without token counts, calls that were broken off, models without a price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.dataset.kept import kept_rows
from orchestrator.dataset.measured import MOST_BYTES, Measured
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.dataset.steps import ReadEvents, Row, read_steps
from orchestrator.errors import SpecError
from orchestrator.interfaces import ObjectStore
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome
from orchestrator.records.prices import KnownPrice, price_digest, priced
from orchestrator.records.usage import NOTHING_USED, Usage
from orchestrator.settings import Price

_TOKENS = ("uncached_input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning")
_UNKNOWABLE = frozenset({"call_aborted", "price_unknown"})
"""Findings of the gateway: a call was open at the end, an answer came by a service that costs otherwise."""
_STEPS_WITH_TOKENS = 2
"""Version of the table ``steps`` that first had them."""

Responses = Mapping[tuple[TrialId, int], list[Row]]
"""Rows of ``steps`` by trial and launch."""
PriceOf = Callable[[str, str], KnownPrice | None]
"""Returns what a model costs, by the agent's name and the model's ``provider/name``."""


@dataclass(frozen=True)
class Repriced:
    """A run at other prices."""

    data: RunData
    """The same run, its manifest with these prices, its outcomes with these costs."""

    def metrics(self, measured: Measured) -> Measured:
        """Return metrics of the run with these costs."""
        costs = {row.trial: row.outcome.usage.cost_nano_usd for row in self.data.rows if row.outcome}
        form = "agent" if self.data.manifest.is_imported else "gateway"
        trials = {
            trial: tuple(replace(each, cost_nano_usd=costs[trial]) if each.form == form else each for each in forms)
            for trial, forms in measured.trials.items()
        }
        return replace(measured, trials=trials)


async def read_responses(store: ObjectStore, cache: Path, events: ReadEvents, data: RunData) -> Responses:
    """Return the rows of all launches, from the dataset where it has them, else from the trajectories.

    Raises SpecError when these are too large to be read for a report, and StoreError.
    """
    rows = await kept_rows(store, cache, data, "steps", since=_STEPS_WITH_TOKENS)
    if rows is not None:
        found: dict[tuple[TrialId, int], list[Row]] = {}
        for row in rows:
            found.setdefault((TrialId(row["task"], row["agent"], row["sample"]), row["launch"]), []).append(row)
        return found
    launches = [(row.trial, launch) for row in data.rows for launch in row.launches]
    size = sum(launch.trajectory.size for _, launch in launches if launch.trajectory)
    if size > MOST_BYTES:
        run = data.manifest.run
        msg = (
            f"the {size >> 20} MiB of trajectories are too much to read for a report; first: orchestrate rebuild {run}"
        )
        raise SpecError(msg)
    steps, _ = await read_steps(data.manifest, launches, events)
    return steps


def reprice(data: RunData, responses: Responses, price_of: PriceOf, whose: str) -> Repriced:
    """Return a run at other prices; ``whose`` prices they are is told in a note."""
    asked: dict[str, set[str]] = {agent.name: set(agent.agent.models.values()) for agent in data.manifest.agents}
    for (trial, _), found in responses.items():
        asked[trial.agent] |= {row["asked"] for row in found if row.get("asked")}
    agents = tuple(
        agent.model_copy(update={"prices": _table(agent.name, asked[agent.name], price_of)})
        for agent in data.manifest.agents
    )
    table = price_digest(agent.prices for agent in agents)
    manifest = data.manifest.model_copy(update={"agents": agents, "price_table": table})
    by_name = {agent.name: agent for agent in agents}
    rows = tuple(_row(replace(row, agent=by_name[row.agent.name]), responses) for row in data.rows)
    note = f"costs are at {whose}, not at those of the run"
    return Repriced(replace(data, manifest=manifest, rows=rows, notes=(*data.notes, note)))


def _table(agent: str, models: Iterable[str], price_of: PriceOf) -> dict[str, KnownPrice]:
    found = {model: price_of(agent, model) for model in sorted(models)}
    return {model: known for model, known in found.items() if known is not None}


def _row(row: TrialRow, responses: Responses) -> TrialRow:
    prices = row.agent.price_of()
    launches = tuple(_launch(launch, responses.get((row.trial, launch.launch)), prices) for launch in row.launches)
    winner = next((new for old, new in zip(row.launches, launches, strict=True) if old is row.outcome), row.outcome)
    return replace(row, launches=launches, outcome=winner)


def _launch(launch: Outcome, rows: Iterable[Row] | None, prices: Mapping[str, Price]) -> Outcome:
    cost = _cost(launch, [row for row in rows or () if row["type"] == "model_response"], prices)
    return launch.model_copy(update={"usage": launch.usage.model_copy(update={"cost_nano_usd": cost})})


def _cost(launch: Outcome, rows: list[Row], prices: Mapping[str, Price]) -> int | None:
    """Return what a launch costs; None when not all that it used is known, or has a price."""
    if not launch.steps and not launch.usage.total:
        return launch.usage.cost_nano_usd
    total = NOTHING_USED
    for row in rows:
        if (usage := _counted(row)) is None:
            return None
        total = total.plus(priced(usage, prices.get(str(row["asked"]))))
    whole = len(rows) == launch.steps and total.total == launch.usage.total
    return None if not whole or _untold(launch, rows) else total.cost_nano_usd


def _untold(launch: Outcome, rows: list[Row]) -> bool:
    """Return whether something was used that no response tells of, or not all that is to know."""
    lost = launch.usage.cost_nano_usd is None and all(row["cost_nano_usd"] is not None for row in rows)
    return lost or any(finding.type in _UNKNOWABLE for finding in launch.findings)


def _counted(row: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of a response; None when they were not reported."""
    tokens: dict[str, Any] = {name: row.get(name) for name in _TOKENS}
    guessed = row.get("estimated") and row.get("cost_nano_usd") is None
    return None if None in tokens.values() or guessed else Usage(**tokens)
