"""The trajectory metrics of a whole run: from the dataset where it has them, else from the trajectories, while these are not too large."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.dataset.kept import kept_rows
from orchestrator.dataset.metrics import trial_metrics
from orchestrator.dataset.rows import RunData
from orchestrator.dataset.steps import ReadEvents, launch_name, read_steps
from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records.ids import TrialId
from orchestrator.stats.trajectory import FORMS, TrialMetrics

MOST_BYTES = 64 << 20
"""Bytes of trajectories that a report reads when the dataset has no rows of the run as it is now."""


@dataclass(frozen=True)
class Measured:
    """Metrics by trial, each in both forms."""

    trials: Mapping[TrialId, tuple[TrialMetrics, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader must know about them."""


def unmeasured(data: RunData) -> Measured:
    """Return what the records alone say: no call is known."""
    return Measured({row.trial: found for row in data.rows if (found := trial_metrics(row, None))})


async def read_metrics(store: ObjectStore, cache: Path, events: ReadEvents, data: RunData) -> Measured:
    """Return the metrics of a run's trials. What cannot be read is told in a note, and is null.

    ``cache``: folder for parts that had to be fetched.
    """
    try:
        rows = await kept_rows(store, cache, data, "metrics")
        return await _of_trajectories(events, data) if rows is None else Measured(_from_rows(rows))
    except StoreError as error:
        return Measured(unmeasured(data).trials, (f"the trajectories could not be read: {error}",))


def _from_rows(rows: Iterable[Mapping[str, Any]]) -> Mapping[TrialId, tuple[TrialMetrics, ...]]:
    names = list(TrialMetrics.__dataclass_fields__)
    found: dict[TrialId, dict[str, TrialMetrics]] = {}
    for row in rows:
        trial = TrialId(row["task"], row["agent"], row["sample"])
        found.setdefault(trial, {})[row["form"]] = TrialMetrics(**{name: row[name] for name in names})
    return {trial: tuple(forms[form] for form in FORMS if form in forms) for trial, forms in found.items()}


async def _of_trajectories(events: ReadEvents, data: RunData) -> Measured:
    winners = [(row.trial, row.outcome) for row in data.rows if row.outcome and row.outcome.outcome_class == "result"]
    size = sum(outcome.trajectory.size for _, outcome in winners if outcome.trajectory)
    if size > MOST_BYTES:
        note = f"the {size >> 20} MiB of trajectories were not read: make the run's rows with: orchestrate rebuild {data.manifest.run}"
        return Measured(unmeasured(data).trials, (note,))
    steps, gone = await read_steps(data.manifest, winners, events)
    found = {}
    for row in data.rows:
        if row.outcome is None:
            continue
        lost = row.outcome.trajectory is None or launch_name(row.trial, row.outcome.launch) in gone
        mine = trial_metrics(row, None if lost else steps.get((row.trial, row.outcome.launch), ()))
        if mine:
            found[row.trial] = mine
    return Measured(found)
