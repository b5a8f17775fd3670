"""The trajectory metrics of single trials, made of their rows of ``steps`` and of their records.

Reports and the table take them from here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orchestrator.dataset.columns import METRICS
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.dataset.steps import Row, launch_name
from orchestrator.dataset.tables import GRADED, to_arrow, trial_columns
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import ManifestTask
from orchestrator.stats.trajectory import FORMS, Ending, Expected, Step, TrialMetrics, measure

if TYPE_CHECKING:
    import pyarrow as pa

_STEP = ("source", "type", "tool", "known", "valid", "wellformed", "outcome", "goal", "verify", "finish_reason", "code")
"""What the metrics read of a row of ``steps``."""


def trial_metrics(row: TrialRow, steps: Sequence[Row] | None) -> tuple[TrialMetrics, ...]:
    """Return the metrics of a trial in each form; nothing of one without a result.

    ``steps``: the rows of its trajectory in order; None: it is not there.
    """
    outcome = row.outcome
    if outcome is None or outcome.outcome_class != "result":
        return ()
    ending = Ending(
        seen="agent" if row.is_imported else "gateway",
        passed=GRADED.get(row.result),
        claimed=outcome.ended_as,
        reason=outcome.termination_reason,
        steps=outcome.known_steps,
        cost_nano_usd=outcome.usage.cost_nano_usd,
        working_s=outcome.working_s,
    )
    found = None if steps is None else [_step(step) for step in steps]
    return tuple(measure(ending, found, expected_of(row.task), form) for form in FORMS)


def _step(row: Row) -> Step:
    read: dict[str, Any] = {name: row.get(name) for name in _STEP}
    return Step(**read)


def expected_of(task: ManifestTask) -> Expected:
    """Return what a task expects of tools."""
    tools = task.tools
    return Expected(
        allow=None if tools.allow is None else frozenset(tools.allow),
        phases=tuple(frozenset(phase.any_of) for phase in tools.expected),
        verifies=bool(tools.verify),
    )


def metric_table(data: RunData, steps: pa.Table, gone: Collection[str] = ()) -> pa.Table:
    """Return the rows of ``metrics`` of a run from its rows of ``steps``. Raises StoreError.

    ``gone``: names of launches whose trajectory is not in the store any more, as ``read_steps`` returns them.
    """
    return to_arrow(METRICS, list(_rows(data, _by_launch(steps), frozenset(gone))))


def _rows(data: RunData, steps: Mapping[tuple[TrialId, int], Sequence[Row]], gone: frozenset[str]) -> Iterable[Row]:
    for row in data.rows:
        outcome = row.outcome
        # Of a trajectory without rows it is known that nothing was called; of one that is gone, or never was, nothing is.
        known = outcome and outcome.trajectory and launch_name(row.trial, outcome.launch) not in gone
        mine = steps.get((row.trial, outcome.launch), ()) if outcome and known else None
        for found in trial_metrics(row, mine):
            yield {**trial_columns(data.manifest, row.trial), **asdict(found)}


def _by_launch(steps: pa.Table) -> Mapping[tuple[TrialId, int], list[Row]]:
    columns = ["task", "agent", "sample", "launch", "seq", *_STEP]
    found: defaultdict[tuple[TrialId, int], list[dict[str, Any]]] = defaultdict(list)
    for batch in steps.select(columns).to_batches(max_chunksize=65_536):
        for step in batch.to_pylist():
            found[TrialId(step["task"], step["agent"], step["sample"]), step["launch"]].append(step)
    for rows in found.values():
        rows.sort(key=lambda step: step["seq"])
    return found
