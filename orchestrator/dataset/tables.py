"""From a run to the rows of every table."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.dataset.columns import RESULTS, TABLES
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.dataset.schema import Table
from orchestrator.dataset.steps import Row
from orchestrator.errors import StoreError
from orchestrator.records.ids import TrialId, launch_id
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.state import Finding
from orchestrator.records.termination import TERMINATION_CLASS
from orchestrator.records.usage import Usage
from orchestrator.records.verdict import CheckResult, Verdict, has_left_recording

if TYPE_CHECKING:
    import pyarrow as pa

VALUE_CHARS = 2000
"""Longest expected or actual value that is kept, in characters of JSON."""
EVIDENCE_LINES, EVIDENCE_CHARS = 20, 400
GRADED = {"passed": True, "failed": False, "abstained": False}
"""The denominator, and what each word of it makes of the trial."""

Trajectories = Mapping[tuple[TrialId, int], Sequence[Row]]
"""Rows of ``steps``, without the columns of the trial, by trial and launch."""


def trial_key(run: str, trial: TrialId) -> bytes:
    """Return the 16 bytes that join the tables."""
    return hashlib.sha256(f"{run}\0{trial}".encode()).digest()[:16]


def arrow_tables(data: RunData, steps: Trajectories) -> dict[str, pa.Table]:
    """Return the rows of a run by table, with words as plain text. Raises StoreError for values that no column can hold.

    Those of ``metrics`` are made of the others: see ``metrics``.
    """
    return {**record_tables(data), "steps": step_table(data, steps)}


def step_table(data: RunData, steps: Trajectories) -> pa.Table:
    """Return the rows of ``steps``: of the given trajectories. Raises StoreError."""
    return to_arrow(TABLES["steps"], list(_steps(data, steps)))


def record_tables(data: RunData) -> dict[str, pa.Table]:
    """Return the rows of all tables that records alone make: all but ``steps`` and ``metrics``. Raises StoreError."""
    rows: dict[str, list[Row]] = {
        "runs": [_run(data)],
        "trials": [_trial(data.manifest, row) for row in data.rows],
        "launches": [_launch(data.manifest, row, launch) for row in data.rows for launch in row.launches],
        "grades": [
            each for row in data.rows for verdict in row.verdicts for each in _grades(data.manifest, row, verdict)
        ],
    }
    return {name: to_arrow(TABLES[name], found) for name, found in rows.items()}


def to_arrow(table: Table, rows: Sequence[Row]) -> pa.Table:
    """Return rows as Arrow, absent columns as null. Raises StoreError for values of a wrong type or size."""
    import pyarrow as pa

    schema = table.plain_schema()
    try:
        # Column by column, so that a mistake names its column.
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        msg = f"the rows of table {table.name} cannot be written: {error}"
        raise StoreError(msg, cause="dataset_value") from error
    return pa.Table.from_arrays(columns, schema=schema)


def _run(data: RunData) -> Row:
    manifest = data.manifest
    counts = Counter(row.result for row in data.rows)
    costs = [row.spent_nano_usd for row in data.rows]
    return {
        **_of_run(manifest),
        "origin": manifest.origin,
        "orchestrate_version": manifest.orchestrate_version,
        "commit": manifest.code.commit,
        "dirty": manifest.code.dirty,
        "suite_digest": manifest.suite_digest,
        "metric": manifest.metric,
        "k": manifest.k,
        "seed": manifest.seed,
        "backend": manifest.backend,
        "pool": manifest.pool,
        "grader_version": data.grader_version,
        "price_table": manifest.price_table,
        "labels": _labels(manifest.labels),
        "agents": [agent.name for agent in manifest.agents],
        "tasks": len(manifest.tasks),
        "planned": len(data.rows),
        **{word: counts.get(word, 0) for word in RESULTS},  # type: ignore[call-overload]
        "left": sum(row.is_left(manifest.max_launches) for row in data.rows),
        "spent_nano_usd": None if None in costs else _fitting(sum(cost for cost in costs if cost is not None)),
        "rerun_of": manifest.rerun_of,
        "chosen_by": list(manifest.chosen_by) if manifest.rerun_of else None,
    }


def _of_run(manifest: RunManifest) -> Row:
    return {"run": manifest.run, "suite": manifest.suite, "created_at": manifest.created_at.astimezone(UTC)}


def trial_columns(manifest: RunManifest, trial: TrialId) -> Row:
    """Return what every row of a trial says of it."""
    return {
        "trial_id": trial_key(manifest.run, trial),
        **_of_run(manifest),
        "task": trial.task,
        "agent": trial.agent,
        "sample": trial.sample,
    }


def _trial(manifest: RunManifest, row: TrialRow) -> Row:
    outcome, verdict, task = row.outcome, row.verdict, row.task
    found = (*(outcome.findings if outcome else ()), *(verdict.findings if verdict else ()))
    return {
        **trial_columns(manifest, row.trial),
        "commit": manifest.code.commit,
        "backend": manifest.backend,
        "task_version": task.version,
        "task_digest": task.digest,
        "kind": task.kind,
        "tier": task.tier,
        "expect": task.expect,
        "tags": list(task.tags),
        "agent_digest": row.agent.digest,
        "result": row.result,
        "graded_as": row.graded_as,
        "passed": GRADED.get(row.result),
        "grader_digest": verdict.grader_digest if verdict else None,
        "verdict": verdict.result if verdict else None,
        "failed_checks": list(row.failed_checks),
        "launches": len(row.launches),
        "models": [],
        **(_of_outcome(manifest, outcome) if outcome else {}),
        **(_confidence(outcome) if outcome else {}),
        "judge_cost_nano_usd": _fitting(verdict.judge_usage.cost_nano_usd) if verdict and verdict.judge_usage else None,
        "spent_nano_usd": _fitting(row.spent_nano_usd) if row.launches else None,
        "findings": _kinds(found),
        "rerun_of": manifest.rerun_of,
        "origin": manifest.origin,
        "fixture_misses": outcome.fixture_misses if outcome else None,
        "left_recording": has_left_recording(row.graded_as, outcome),
        "questions": len(outcome.questions) if outcome and outcome.questions is not None else None,
    }


def _confidence(outcome: Outcome) -> Row:
    given = outcome.final.confidence if outcome.final else None
    if isinstance(given, str):
        return {"confidence_word": given}
    # What an agent claims may be no number between 0 and 1; then it claimed nothing.
    return {"confidence": given if given is not None and math.isfinite(given) and 0 <= given <= 1 else None}


def _of_outcome(manifest: RunManifest, outcome: Outcome) -> Row:
    usage, times, ended = outcome.usage, outcome.times, outcome.exit
    return {
        "launch": outcome.launch,
        "outcome_class": outcome.outcome_class,
        "termination_reason": outcome.termination_reason,
        "termination_class": TERMINATION_CLASS[outcome.termination_reason],
        "ended_as": outcome.ended_as,
        "exit_code": ended.code if ended else None,
        "exit_signal": ended.signal if ended else None,
        "steps": outcome.steps,
        "tool_calls": outcome.tool_calls,
        **(_tokens(usage) if outcome.tells("tokens") else {}),
        "cost_nano_usd": _fitting(usage.cost_nano_usd),
        "user_cost_nano_usd": _fitting(outcome.user_usage.cost_nano_usd) if outcome.user_usage else None,
        "price_table": manifest.price_table,
        **(_when(times) if outcome.tells("times") else {}),
        "waiting_s": outcome.waiting_s,
        "setup_s": None if manifest.is_imported else times.setup_s,
        "freeze_s": None if manifest.is_imported else times.freeze_s,
        "models": list(outcome.models),
        "state_sha256": bytes.fromhex(outcome.state.sha256) if outcome.state else None,
    }


def _tokens(usage: Usage) -> Row:
    return {
        "uncached_input": usage.uncached_input,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "cache_write_1h": usage.cache_write_1h,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }


def _when(times: Times) -> Row:
    return {
        "started_at": datetime.fromtimestamp(times.started, UTC),
        "ended_at": datetime.fromtimestamp(times.ended, UTC),
        "working_s": times.working_s,
    }


def _launch(manifest: RunManifest, row: TrialRow, outcome: Outcome) -> Row:
    state, trajectory = outcome.state, outcome.trajectory
    return {
        **trial_columns(manifest, row.trial),
        **_of_outcome(manifest, outcome),
        "launch_id": bytes.fromhex(launch_id(manifest.run, row.trial, outcome.launch)),
        "counts": outcome is row.outcome,
        "cause": outcome.cause,
        "error": outcome.error,
        "entries_key": state.entries.key if state else None,
        "changes_key": state.changes.key if state else None,
        "output_key": outcome.output.key if outcome.output else None,
        "trajectory_key": trajectory.key if trajectory else None,
        "trajectory_sha256": bytes.fromhex(trajectory.sha256) if trajectory else None,
        "trajectory_bytes": trajectory.size if trajectory else None,
        "findings": _kinds(outcome.findings),
        "labels": _labels(outcome.labels),
        "writer_id": outcome.writer_id,
        "epoch": outcome.epoch,
    }


def _steps(data: RunData, steps: Trajectories) -> Iterable[Row]:
    for row in data.rows:
        head = trial_columns(data.manifest, row.trial)
        for outcome in row.launches:
            for step in steps.get((row.trial, outcome.launch), ()):
                yield {**head, "launch": outcome.launch, **step}


def _grades(manifest: RunManifest, row: TrialRow, verdict: Verdict) -> Iterable[Row]:
    head = {
        **trial_columns(manifest, row.trial),
        "launch": verdict.launch,
        "grader_digest": verdict.grader_digest,
        "counts": verdict is row.verdict,
        "verdict": verdict.result,
        "error_type": verdict.error.type if verdict.error else None,
        "error": verdict.error.message if verdict.error else None,
    }
    parts = [("check", check) for check in verdict.checks] + [("invariant", check) for check in verdict.invariants]
    if not parts:
        yield {**head, "position": 0, "evidence": []}
    for position, (part, check) in enumerate(parts):
        yield {**head, "position": position, "part": part, **_check(check)}


def _check(check: CheckResult) -> Row:
    return {
        "check": check.id,
        "type": check.type,
        "gate": check.gate,
        "passed": check.passed,
        "seconds": check.seconds,
        "expected": _json(check.expected),
        "actual": _json(check.actual),
        "evidence": [_storable(line[:EVIDENCE_CHARS]) for line in check.evidence[:EVIDENCE_LINES]],
    }


def _fitting(total: int | None) -> int | None:
    """Return a sum if its column can hold it; a clipped one would be a wrong number."""
    return total if total is not None and total < 1 << 63 else None


def _json(value: Any) -> str | None:
    return None if value is None else _storable(json.dumps(value, ensure_ascii=False)[:VALUE_CHARS])


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _kinds(findings: Iterable[Finding]) -> list[str]:
    return sorted({finding.type for finding in findings})


def _labels(labels: Mapping[str, str]) -> list[str]:
    return [f"{name}: {value}" for name, value in sorted(labels.items())]
