"""A million trials that never ran, as the rows that real ones would leave."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from orchestrator.dataset.columns import RESULTS, TABLES

FIRST_RUN = datetime(2026, 3, 1, tzinfo=UTC)


def trials_of_run(number: int, rows: int, tasks: int = 200, samples: int = 5) -> pa.Table:
    """Return the trials of one run, in the plain schema; the same number gives the same rows."""
    random = np.random.default_rng(number)
    index = np.arange(rows)
    run = f"run-{number:05d}"
    created = FIRST_RUN + timedelta(minutes=number)
    result = random.choice([RESULTS.index(word) for word in ("passed", "failed", "infra")], rows, p=[0.7, 0.28, 0.02])
    graded = result < 2
    working = random.lognormal(4, 0.8, rows).round(3)
    cost = random.integers(10**6, 10**9, rows)
    seen = {
        "trial_id": [hashlib.sha256(f"{run}{i}".encode()).digest()[:16] for i in range(rows)],
        "run": [run] * rows,
        "suite": ["synthetic"] * rows,
        "created_at": [created] * rows,
        "task": np.char.add("task-", ((index // samples) % tasks).astype(str)).tolist(),
        "agent": np.char.add("agent-", (index // (samples * tasks)).astype(str)).tolist(),
        "sample": index % samples + 1,
        "result": [RESULTS[word] for word in result],
        "graded_as": [RESULTS[word] for word in result],
        "passed": pa.array(result == 0, mask=~graded),
        "termination_reason": np.where(graded, "completed", "infra_lost").tolist(),
        "outcome_class": np.where(graded, "result", "infra").tolist(),
        "termination_class": np.where(graded, "agent", "infra").tolist(),
        "kind": ["capability"] * rows,
        "expect": ["complete"] * rows,
        "verdict": pa.array(np.where(result == 0, "passed", "failed").tolist(), mask=~graded),
        "working_s": working,
        "cost_nano_usd": cost,
        "spent_nano_usd": cost,
        "started_at": [created + timedelta(seconds=i) for i in range(rows)],
        "ended_at": [created + timedelta(seconds=i + w) for i, w in enumerate(working)],
    }
    table = TABLES["trials"]
    return pa.Table.from_arrays(
        [_column(field, seen.get(field.name), rows, random) for field in table.plain_schema()],
        schema=table.plain_schema(),
    )


def _column(field: pa.Field, values: object, rows: int, random: np.random.Generator) -> pa.Array:
    if values is not None:
        return values if isinstance(values, pa.Array) else pa.array(values, field.type)
    if pa.types.is_integer(field.type):
        return pa.array(random.integers(1, 100, rows), field.type)
    if pa.types.is_floating(field.type):
        return pa.array(random.random(rows).round(4), field.type)
    if pa.types.is_list(field.type):
        return pa.array([[]] * rows, field.type)
    if pa.types.is_fixed_size_binary(field.type):
        data = random.bytes(rows * field.type.byte_width)
        return pa.FixedSizeBinaryArray.from_buffers(field.type, rows, [None, pa.py_buffer(data)])
    return pa.nulls(rows, field.type) if field.nullable else pa.array(["same"] * rows, field.type)
