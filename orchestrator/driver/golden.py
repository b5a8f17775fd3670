"""Golden runs: trajectories that a person accepted, kept beside the task, and where a trial leaves them."""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from orchestrator import wiring
from orchestrator.dataset.moves import moves_of
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.errors import Problem, SpecError
from orchestrator.interfaces import ObjectStore
from orchestrator.records.golden import Golden, Move
from orchestrator.records.manifest import ManifestTask
from orchestrator.records.outcome import Outcome
from orchestrator.spec.files import display
from orchestrator.stats.departure import Compared, Step, compare
from orchestrator.trace.plain import plain_digest

FOLDER = "golden"
"""In the folder of a task. No sandbox ever holds it, and it is no part of the task's version."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Accepted:
    """A golden run as it was written."""

    file: Path
    golden: Golden


@dataclass(frozen=True)
class Diff:
    """A trial held against the golden run that is nearest to it."""

    name: str
    golden: Golden
    moves: tuple[Move, ...]
    compared: Compared
    is_same: bool
    """The plain trajectories are equal: the same was said, too."""
    ending: str
    differs: tuple[str, ...]
    """What of the fingerprint is another one, so that the two are not of the same task."""


@dataclass(frozen=True)
class Wish:
    """What is to be accepted, and in whose name."""

    name: str
    by: str | None
    reason: str
    at: datetime


async def accept(store: ObjectStore, data: RunData, row: TrialRow, task: Path, wish: Wish) -> Accepted:
    """Keep the trajectory of a trial as a golden run of a task. Raises SpecError when there is one of that name, or nothing to keep."""
    if not _NAME.fullmatch(wish.name):
        msg = f"--name {wish.name!r}: give small letters, digits, dots, dashes"
        raise SpecError(msg)
    moves, ending, plain = await _seen(store, data, row)
    golden = Golden(
        task=row.trial.task,
        fingerprint=_fingerprint(data, row),
        plain_sha256=plain,
        ending=ending,
        moves=moves,
        run=data.manifest.run,
        trial=str(row.trial),
        agent=row.trial.agent,
        by=wish.by or getpass.getuser(),
        at=wish.at,
        reason=wish.reason,
    )
    file = task / FOLDER / f"{wish.name}.json"
    _create(file, golden.model_dump_json(indent=1).encode() + b"\n")
    return Accepted(file, golden)


def load_goldens(task: Path) -> dict[str, Golden]:
    """Return the golden runs of a task's folder by name. Raises SpecError for files that are none."""
    found: dict[str, Golden] = {}
    problems: list[Problem] = []
    for file in sorted((task / FOLDER).glob("*.json")):
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise ValueError("it is larger than any golden run")
            found[file.stem] = Golden.model_validate_json(file.read_bytes())
        except (OSError, ValueError) as error:
            said = str(error).splitlines()[0]
            message = f"is no golden run of this version ({said}); make it again with `orchestrate golden accept`"
            problems.append(Problem(display(file), message=message))
    if problems:
        raise SpecError(problems)
    return found


async def diff(store: ObjectStore, data: RunData, row: TrialRow, goldens: dict[str, Golden]) -> Diff:
    """Hold a trial against its nearest golden run. Raises SpecError for a trial without a trajectory."""
    moves, ending, plain = await _seen(store, data, row)
    here = _fingerprint(data, row)
    name, golden, compared = min(
        ((name, golden, compare(_steps(golden.moves), _steps(moves))) for name, golden in sorted(goldens.items())),
        key=lambda each: (each[1].plain_sha256 != plain, _distance(each[2])),
    )
    differs = tuple(sorted(key for key in here if golden.fingerprint.get(key) != here[key]))
    return Diff(name, golden, moves, compared, golden.plain_sha256 == plain, ending, differs)


def _distance(compared: Compared) -> int:
    departure = compared.departure
    begins = 0 if departure is None else min(n for n in (departure.golden, departure.trial) if n is not None)
    return -begins if departure is not None else -len(compared.pairs) - 1 + compared.slips


def _steps(moves: Iterable[Move]) -> Sequence[Step]:
    return [Step(move.tool, move.arguments, move.outcome) for move in moves]


def _fingerprint(data: RunData, row: TrialRow) -> dict[str, str]:
    task: ManifestTask = next(task for task in data.manifest.tasks if task.id == row.trial.task)
    return {"version": str(task.version), "sandbox": task.bundles.sandbox, "world": task.bundles.world}


async def _seen(store: ObjectStore, data: RunData, row: TrialRow) -> tuple[tuple[Move, ...], str, str]:
    outcome: Outcome | None = row.outcome
    if outcome is None or outcome.trajectory is None:
        msg = f"{row.trial} of run {data.manifest.run} has no whole trajectory, so there is nothing to compare"
        raise SpecError(msg)
    events = list(await wiring.event_reader(store)(outcome.trajectory))
    ending = f"{outcome.termination_reason}, {outcome.ended_as or 'no ending given'}"
    return moves_of(events), ending, plain_digest(events)


def _create(file: Path, data: bytes) -> None:
    """Write a file that was not there, whole or not at all. Raises SpecError."""
    try:
        file.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".new-") as new:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
            Path(new.name).chmod(0o644)
            os.link(new.name, file)
    except FileExistsError:
        msg = f"{display(file)} is there already; give another --name, or remove it first"
        raise SpecError(msg) from None
    except OSError as error:
        msg = f"{display(file)} cannot be written: {error.strerror}"
        raise SpecError(msg) from error
