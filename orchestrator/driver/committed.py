"""What the store already holds of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.dataset.rows import read_many
from orchestrator.interfaces import ObjectStore, TrialEnd
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.records.verdict import Verdict


@dataclass(frozen=True)
class Committed:
    """Outcomes by trial in launch order, and the trials with a verdict."""

    outcomes: Mapping[TrialId, Sequence[Outcome]]
    graded: frozenset[TrialId]


async def load_manifest(store: ObjectStore, run: str) -> RunManifest:
    """Return the manifest of a run. Raises NotFoundError."""
    key = keys.manifest(run)
    return RunManifest.from_bytes(await store.get(key), key)


async def load_committed(store: ObjectStore, run: str, trial: TrialId | None = None) -> Committed:
    """Return what is committed of a run, or of one trial. Only markers count; nothing is taken from memory of an earlier process."""

    async def read(key: str) -> Outcome:
        return Outcome.from_bytes(await store.get(key), key)

    found: dict[TrialId, list[Outcome]] = {}
    for outcome in await read_many(read, await store.list(keys.outcomes(run, trial))):
        found.setdefault(TrialId.parse(outcome.trial), []).append(outcome)
    for launches in found.values():
        launches.sort(key=lambda outcome: outcome.launch)
    graded = (keys.parse_verdict(key) for key in await store.list(keys.verdicts(run, trial)))
    return Committed(found, frozenset(name for name in graded if name is not None))


async def load_end(store: ObjectStore, run: str, trial: TrialId) -> TrialEnd | None:
    """Return how a trial ended: its result with a verdict, if there is one, else its last launch; None before any launch ended."""
    outcomes = (await load_committed(store, run, trial)).outcomes.get(trial, ())
    if not outcomes:
        return None
    outcome = next((each for each in outcomes if each.outcome_class == "result"), outcomes[-1])
    names = [key for key in await store.list(keys.verdicts(run, trial)) if keys.parse_verdict(key)]
    verdict = Verdict.from_bytes(await store.get(names[0]), names[0]) if names else None
    return TrialEnd(trial=trial, outcome=outcome, verdict=verdict)
