"""Find what there is to grade, and prove that it is what was committed, before anything is read."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from grader_service.checks.case import PermanentError
from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import BundleSource, ObjectStore
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome, Seal
from orchestrator.records.state import FrozenState
from orchestrator.records.verdict import GradingError
from orchestrator.spec.task import Task

_MANIFESTS = 8
"""Runs whose manifests are kept."""
_STATE = "state.json"
_SEAL = "seal.json"
WORLD = "world.db"
"""The world's database in the folder of a state."""


class NothingToGradeError(Exception):
    """There is no such trial, or it is not committed. ``status`` is the HTTP status that says so."""

    def __init__(self, message: str, status: int = 404) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A committed trial."""

    planned: ManifestTask
    outcome: Outcome
    problem: str | None = None
    """Why the outcome cannot be trusted, if it cannot."""


def permanent(message: str) -> PermanentError:
    """Return the error for evidence that is not what was committed."""
    return PermanentError(GradingError(type="evidence", message=message))


async def find_trial(
    store: ObjectStore, run: str, trial: TrialId, known: dict[str, RunManifest] | None = None
) -> Committed:
    """Return the trial's task and its winning outcome: the only one of class ``result``.

    Several launches that claim to be the result are a ``problem`` of what is returned. ``known`` keeps the manifests of the last runs: they
    never change, and that of a large suite takes long to read. Raises NothingToGradeError, StoreError.
    """
    try:
        manifest = await _manifest(store, run, {} if known is None else known)
    except NotFoundError as error:
        msg = f"there is no run {run!r}"
        raise NothingToGradeError(msg) from error
    try:
        planned = manifest.task(trial.task)
        manifest.agent(trial.agent)
    except KeyError as error:
        msg = f"run {run!r} has no task or agent for trial {trial}"
        raise NothingToGradeError(msg) from error
    names = await store.list(keys.outcomes(run, trial))
    outcomes = [Outcome.from_bytes(data, name) for name, data in zip(names, await _all(store, names), strict=True)]
    won = [outcome for outcome in outcomes if outcome.outcome_class == "result"]
    if not won:
        ended = (
            f"its {len(outcomes)} launches ended as {', '.join(o.outcome_class for o in outcomes)}"
            if outcomes
            else "no launch is committed"
        )
        msg = f"trial {trial} of run {run!r} has no result to grade: {ended}"
        raise NothingToGradeError(msg, 409 if outcomes else 404)
    if len(won) > 1 or won[0].trial != str(trial) or won[0].run != run:
        problem = f"{len(won)} launches of {trial} claim to be the result, or the marker names another trial"
        return Committed(planned=planned, outcome=won[0], problem=problem)
    return Committed(planned=planned, outcome=won[0])


async def _manifest(store: ObjectStore, run: str, known: dict[str, RunManifest]) -> RunManifest:
    found = known.get(run)
    if found is None:
        key = keys.manifest(run)
        found = known[run] = RunManifest.from_bytes(await store.get(key), key)
        if len(known) > _MANIFESTS:
            del known[next(iter(known))]
    return found


async def _all(store: ObjectStore, names: list[str]) -> list[bytes]:
    return list(await asyncio.gather(*(store.get(name) for name in names)))


async def prove_relayed(store: ObjectStore, outcome: Outcome) -> None:
    """Prove that the state which a driver names is the one that the relay took in: on a cluster no driver makes states.

    A pod outlives its driver, so the relay's record may be of an earlier epoch than the outcome; and a freezer whose gateway was restarted
    delivers the same bytes again, under other keys. Raises PermanentError when the relay took
    in another state or none, StoreError.
    """
    trial = TrialId.parse(outcome.trial)
    key = keys.record(outcome.run, trial, outcome.launch, outcome.epoch, _STATE)
    try:
        taken = [FrozenState.from_bytes(await store.get(key), key)]
    except NotFoundError:
        found = await store.list(keys.launch_records(outcome.run, trial, outcome.launch))
        others = [name for name in found if keys.parse_record(name)[1] == _STATE]
        taken = [
            FrozenState.from_bytes(data, name) for name, data in zip(others, await _all(store, others), strict=True)
        ]
    if outcome.state is None or _digests(outcome.state) not in [_digests(state) for state in taken]:
        seen = "another state" if taken else "no state"
        msg = f"the outcome of launch {outcome.launch} names a state that the relay did not take in: it has recorded {seen} of it"
        raise permanent(msg)


async def prove_world(store: ObjectStore, outcome: Outcome) -> None:
    """Prove that the database which a driver names is the one that the gateway closed. Raises PermanentError and StoreError."""
    if outcome.state is None:
        return
    found = await store.list(keys.launch_records(outcome.run, TrialId.parse(outcome.trial), outcome.launch))
    seals = [name for name in found if keys.parse_record(name)[1] == _SEAL]
    closed = [Seal.from_bytes(data, name).world for name, data in zip(seals, await _all(store, seals), strict=True)]
    world = outcome.state.world
    if closed and not any(_same(world, each) for each in closed):
        seen = "another database" if any(closed) else "no database"
        msg = f"the outcome of launch {outcome.launch} names a database that the gateway did not close: it has recorded {seen} of it"
        raise permanent(msg)


def _same(one: BlobRef | None, other: BlobRef | None) -> bool:
    return (one and (one.sha256, one.size)) == (other and (other.sha256, other.size))


def _digests(state: FrozenState) -> list[tuple[str, int]]:
    return [(blob.sha256, blob.size) for blob in (state.entries, state.changes)]


async def fetch_state(store: ObjectStore, state: FrozenState, folder: Path) -> Path:
    """Copy all blobs into the new folder ``folder`` and verify sizes and digests while copying.

    Raises PermanentError when the bytes are not those that were committed, StoreError.
    """
    folder.mkdir()  # noqa: ASYNC240 - one entry
    folder.chmod(0o755)  # noqa: ASYNC240 - the sandbox's own user reads it; the folder around it stays closed
    parts = [(state.entries, "entries.jsonl"), (state.changes, "changes.tar")]
    parts += [] if state.world is None else [(state.world, WORLD)]
    await asyncio.gather(*(_copy(store, blob, folder / name) for blob, name in parts))
    return folder


async def _copy(store: ObjectStore, ref: BlobRef, target: Path) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with target.open("wb") as file:
            os.fchmod(file.fileno(), 0o644)
            async for chunk in store.stream(ref.key):
                digest.update(chunk)
                size += len(chunk)
                if size > ref.size:
                    break
                file.write(chunk)
    except NotFoundError as error:
        raise permanent(f"blob {ref.key} is not in the store") from error
    except OSError as error:
        msg = f"the frozen state could not be copied to the grader's folder: {error.strerror}"
        raise StoreError(msg, cause="grader_scratch") from error
    if size != ref.size or digest.hexdigest() != ref.sha256:
        raise permanent(f"blob {ref.key} is not what was committed: its size or sha256 differs")


async def fetch_task(bundles: BundleSource, planned: ManifestTask) -> tuple[Task, Path, Path]:
    """Return the whole task with the folders of its graders and sandbox bundles. Raises StoreError, PermanentError."""
    try:
        graders, sandbox = await asyncio.gather(
            bundles.fetch("graders", planned.bundles.graders), bundles.fetch("sandbox", planned.bundles.sandbox)
        )
    except StoreError as error:
        if error.cause in {"bundle_digest", "bundle_unreadable"}:
            raise permanent(str(error)) from error
        raise
    try:
        task = Task.model_validate_json((graders / "task.json").read_bytes())
    except (OSError, ValueError) as error:
        message = f"the graders bundle of {planned.id} has no task that this version reads"
        raise PermanentError(GradingError(type="config", message=message)) from error
    return task, graders, sandbox
