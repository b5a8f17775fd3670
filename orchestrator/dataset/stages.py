"""Stages: rows of ended trials that drivers write while a run is under way, so that its end need not read all trajectories again.

A stage is a file for each table and a marker that names them. Nobody has to believe it. The rows of a run are made from its
records, which are small and create-only; a trial of a stage counts when it was made from exactly the records that the store has
now, and the stage counts when its trials, launches and grades are exactly the rows that those records make. Only then are its
steps taken, the one thing that is costly to make. What is lost, stale or damaged costs time and changes no row. Of a step, what
no record says is as true as its writer, who may write outcomes too; ``rebuild`` takes no stage and puts that right.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from orchestrator.dataset import parts as part_io
from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import Part
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.dataset.schema import refuse_bad_values
from orchestrator.dataset.tables import trial_key
from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.base import Record
from orchestrator.records.ids import TrialId

if TYPE_CHECKING:
    import pyarrow as pa

STAGED = ("trials", "launches", "steps", "grades")
"""The tables of a stage. The row of ``runs`` depends on all trials."""
_STEP_OF = ("trial_id", "run", "suite", "created_at", "task", "agent", "sample", "launch")
"""What a row of ``steps`` says about its launch."""


class StagedTrial(Record):
    """One trial of a stage."""

    trial: str
    """``TASK@AGENT:N``."""
    records: dict[str, str]
    """The outcomes and the verdict that its rows were made from: sha256 in hex by store key."""


class Stage(Record):
    """The marker of a stage. The stage is complete when it exists."""

    schema_version: Literal[1] = 1
    run: str
    writer: str
    """Unique name of the process that wrote it."""
    number: int = Field(ge=1)
    """Counts the stages of the writer."""
    trials: tuple[StagedTrial, ...]
    """Trials whose rows are in it."""
    parts: tuple[Part, ...]
    """Its files, one for each table that has rows; they are no parts of the dataset."""


@dataclass
class Taken:
    """What stages gave to the rows of a run."""

    trials: set[TrialId] = field(default_factory=set)
    """Trials whose steps need not be made."""
    steps: list[pa.Table] = field(default_factory=list)
    """Their rows of ``steps``, with words as plain text."""
    ignored: list[str] = field(default_factory=list)
    """Stages that were not believed, and why."""


def record_digests(run: str, row: TrialRow) -> dict[str, str] | None:
    """Return what names the records of a trial: digests by key.

    None for a trial without records, and for one with several verdicts: which of them counts depends on other trials.
    """
    if not row.launches or len(row.verdicts) > 1:
        return None
    records: dict[str, Record] = {
        **{keys.outcome(run, row.trial, outcome.launch): outcome for outcome in row.launches},
        **{keys.verdict(run, row.trial, verdict.grader_digest): verdict for verdict in row.verdicts},
    }
    return {key: hashlib.sha256(record.to_bytes()).hexdigest() for key, record in records.items()}


async def take_stages(store: ObjectStore, data: RunData, made: Mapping[str, pa.Table]) -> Taken:
    """Return the steps that the stages of a run have of its trials; ``made`` are the rows that its records make.

    Raises nothing for what is wrong with a stage, or when stages cannot be read: it is said in ``ignored``.
    """
    run, taken = data.manifest.run, Taken()
    try:
        markers = [key for key in await store.list(keys.stages(run)) if keys.is_stage_marker(key)]
    except StoreError as error:
        taken.ignored.append(f"{keys.stages(run)}: {error}")
        return taken
    rows = {str(row.trial): row for row in data.rows} if markers else {}
    wanted = {name: record_digests(run, row) for name, row in rows.items()}
    for key in markers:
        try:
            stage = await _read_stage(store, key, run)
            fitting = {each.trial for each in stage.trials if wanted.get(each.trial) == each.records}
            found = [rows[name] for name in sorted(fitting) if rows[name].trial not in taken.trials]
            if found:
                blobs = {part.table: await _read_part(store, part) for part in stage.parts}
                taken.steps.append(await asyncio.to_thread(_believed, blobs, data, found, made))
                taken.trials.update(row.trial for row in found)
        except StoreError as error:
            taken.ignored.append(f"{key}: {error}")
    return taken


async def _read_stage(store: ObjectStore, key: str, run: str) -> Stage:
    stage = Stage.from_bytes(await store.get(key), key)
    if key != keys.stage_marker(run, stage.writer, stage.number) or stage.run != run:
        raise _wrong("it is the marker of another stage")
    for part in stage.parts:
        if part.table not in STAGED or part.key != keys.stage_file(run, stage.writer, stage.number, part.table):
            raise _wrong(f"{part.key} is no file of it")
        if part.schema_digest != TABLES[part.table].digest():
            raise _wrong(f"another version of this program wrote its {part.table}")
    return stage


async def _read_part(store: ObjectStore, part: Part) -> bytes:
    data = await store.get(part.key)
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise _wrong(f"{part.key} has other bytes than the marker says")
    return data


def _believed(
    blobs: Mapping[str, bytes], data: RunData, found: Sequence[TrialRow], made: Mapping[str, pa.Table]
) -> pa.Table:
    """Return the steps of these trials when everything else that the stage says of them is what their records say."""
    import pyarrow as pa

    ids = [trial_key(data.manifest.run, row.trial) for row in found]
    try:
        staged = {name: _of_trials(_decoded(name, blobs.get(name)), ids) for name in STAGED}
        for name in ("trials", "launches", "grades"):
            if not _sorted(name, staged[name]).equals(_sorted(name, _of_trials(made[name], ids))):
                raise _wrong(f"its rows of {name} are not those that the records make")
        _refuse_foreign_steps(staged["steps"], data, found)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _wrong(f"it cannot be read: {error}") from error
    return staged["steps"]


def _decoded(name: str, blob: bytes | None) -> pa.Table:
    import pyarrow as pa

    if blob is None:
        return TABLES[name].plain_schema().empty_table()
    rows = part_io.plain_rows(TABLES[name], pa.BufferReader(blob))
    rows.validate(full=True)  # text that is none would be found much later
    refuse_bad_values(TABLES[name], rows)
    return rows


def _of_trials(rows: pa.Table, ids: Collection[bytes]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.filter(pc.is_in(rows["trial_id"], value_set=pa.array(ids, rows["trial_id"].type)))


def _sorted(name: str, rows: pa.Table) -> pa.Table:
    return rows.sort_by([(column, "ascending") for column in TABLES[name].sort])


def _refuse_foreign_steps(steps: pa.Table, data: RunData, found: Sequence[TrialRow]) -> None:
    """Raise StoreError for steps of launches that have no trajectory, and for two steps of one number."""
    manifest = data.manifest
    expected = {
        (
            trial_key(manifest.run, row.trial),
            manifest.run,
            manifest.suite,
            manifest.created_at,
            row.trial.task,
            row.trial.agent,
            row.trial.sample,
            outcome.launch,
        )
        for row in found
        for outcome in row.launches
        if outcome.trajectory is not None
    }
    heads = steps.group_by(_STEP_OF).aggregate([]).select(_STEP_OF).to_pylist()
    if any(tuple(head.values()) not in expected for head in heads):
        raise _wrong("it has steps of a launch without a trajectory, or of another run")
    if steps.group_by(TABLES["steps"].sort).aggregate([]).num_rows != steps.num_rows:
        raise _wrong("it has a step twice")


def _wrong(what: str) -> StoreError:
    return StoreError(what, cause="stage_wrong")
