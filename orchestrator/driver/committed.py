"""What the store already holds of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.dataset.rows import read_many
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome


@dataclass(frozen=True)
class Committed:
    """Outcomes by trial in launch order, and the trials with a verdict."""

    outcomes: Mapping[TrialId, Sequence[Outcome]]
    graded: frozenset[TrialId]


async def load_manifest(store: ObjectStore, run: str) -> RunManifest:
    """Return the manifest of a run. Raises NotFoundError."""
    key = keys.manifest(run)
    return RunManifest.from_bytes(await store.get(key), key)


async def load_committed(store: ObjectStore, run: str) -> Committed:
    """Return what is committed. Only markers count; nothing is taken from memory of an earlier process."""

    async def read(key: str) -> Outcome:
        return Outcome.from_bytes(await store.get(key), key)

    found: dict[TrialId, list[Outcome]] = {}
    for outcome in await read_many(read, await store.list(keys.outcomes(run))):
        found.setdefault(TrialId.parse(outcome.trial), []).append(outcome)
    for launches in found.values():
        launches.sort(key=lambda outcome: outcome.launch)
    graded = (keys.parse_verdict(key) for key in await store.list(keys.verdicts(run)))
    return Committed(found, frozenset(trial for trial in graded if trial is not None))
