"""Imported traces in the store: each once, as a trial of a run that nobody drives, resumes or grades.

A run of imported traces has a manifest, outcomes and trajectories like any other, so that whatever reads runs reads it. Its manifest is
written first and says which trace is which trial; then come the trajectories, and last the outcome of each trial. A trace that a manifest
names and that has no outcome yet is put there by whoever imports it next: a process that is killed loses nothing and doubles nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from orchestrator import __version__, wiring
from orchestrator.errors import NotFoundError, StoreError
from orchestrator.importers.recorded import Trace, slug
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import Bundles, Code, ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.prices import KnownPrice
from orchestrator.records.termination import outcome_class
from orchestrator.records.usage import Usage
from orchestrator.spec.agent import Agent
from orchestrator.spec.task import Budgets, Environment
from orchestrator.storage.removals import removed_run

PREFIX = "import-"
"""How the names of runs begin that were imported."""
MOST_TRACES = 10_000
"""Traces of one run; more become several runs."""
PARALLEL = 8
_BLOCK = 1 << 20
_NOTHING = f"sha256:{hashlib.sha256(b'').hexdigest()}"
"""Digest of the bundles that there are not."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What traces are called that do not say it themselves."""

    suite: str = "production"
    task: str = "trace"
    agent: str = "agent"


@dataclass(kw_only=True)
class Imported:
    """What became of traces, each counted once."""

    runs: list[str] = field(default_factory=list)
    """Runs that got some, new ones and such as an earlier import had not completed."""
    added: int = 0
    known: int = 0
    """They were there already."""
    known_in: set[str] = field(default_factory=set)
    """In these runs."""


Place = tuple[str, TrialId]


async def place_traces(store: ObjectStore, traces: Sequence[Trace], names: Names) -> Imported:
    """Put traces into the store, those that it does not have. Raises StoreError; doing it again completes what was begun."""
    found = Imported()
    places = await _known_places(store)
    fresh = {trace.identity: trace for trace in traces}
    done = await _done(store, {places[identity][0] for identity in fresh if identity in places})
    for identity in [identity for identity in fresh if places.get(identity) in done]:
        del fresh[identity]
        found.known += 1
        found.known_in.add(places[identity][0])
    new = [trace for trace in fresh.values() if trace.identity not in places]
    for start in range(0, len(new), MOST_TRACES):
        places |= await _new_run(store, new[start : start + MOST_TRACES], names)
    gate = asyncio.Semaphore(PARALLEL)

    async def one(trace: Trace) -> None:
        async with gate:
            await _write(store, trace, places[trace.identity])

    await asyncio.gather(*map(one, fresh.values()))
    found.added = len(fresh)
    found.runs = sorted({places[identity][0] for identity in fresh})
    return found


def _outcome_key(place: Place) -> str:
    return keys.outcome(place[0], place[1], 1)


async def _known_places(store: ObjectStore) -> dict[str, Place]:
    """Return where each trace is, or belongs, that was imported before."""
    found: dict[str, Place] = {}
    for key in await store.list(f"{keys.RUNS}{PREFIX}"):
        if keys.run_of_manifest(key) is None:
            continue
        try:
            manifest = RunManifest.from_bytes(await store.get(key), key)
        except NotFoundError:  # removed since it was listed
            continue
        found |= _places(manifest)
    return found


async def _done(store: ObjectStore, runs: Iterable[str]) -> set[Place]:
    """Return the places of these runs whose trace is there whole."""
    found: set[Place] = set()
    for run in sorted(runs):
        found |= {keys.parse_outcome(key)[:2] for key in await store.list(keys.outcomes(run))}
    return found


def _places(manifest: RunManifest) -> dict[str, Place]:
    return {identity: (manifest.run, TrialId.parse(trial)) for trial, identity in manifest.traces.items()}


async def _new_run(store: ObjectStore, traces: Sequence[Trace], names: Names) -> dict[str, Place]:
    """Write the manifest of a run of these traces, or take the one of somebody who imports the same at this moment."""
    digest = hashlib.sha256("".join(sorted(trace.identity for trace in traces)).encode()).hexdigest()[:12]
    number, run = 1, f"{PREFIX}{digest}"
    while await removed_run(store, run) is not None:  # the name of a removed run is never used again
        number += 1
        run = f"{PREFIX}{digest}-{number}"
    manifest = make_manifest(run, traces, names)
    key = keys.manifest(run)
    if not await store.create(key, manifest.to_bytes()):
        manifest = RunManifest.from_bytes(await store.get(key), key)
    return _places(manifest)


def make_manifest(run: str, traces: Iterable[Trace], names: Names) -> RunManifest:
    """Return the manifest of a run of imported traces: samples are numbered in the order given."""
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    trials: dict[str, str] = {}
    prices: defaultdict[str, dict[str, KnownPrice]] = defaultdict(dict)
    for trace in traces:
        pair = (slug(trace.task, names.task), slug(trace.agent, names.agent))
        counts[pair] += 1
        prices[pair[1]] |= trace.prices
        trials[str(TrialId(*pair, counts[pair]))] = trace.identity
    tasks = {task: max(count for (each, _), count in counts.items() if each == task) for task, _ in counts}
    return RunManifest(
        run=run,
        created_at=datetime.now(UTC),
        orchestrate_version=__version__,
        code=Code(),
        suite=names.suite,
        suite_digest=_NOTHING,
        metric="pass_rate",
        k=1,
        tasks=tuple(_task(task, samples) for task, samples in sorted(tasks.items())),
        agents=tuple(
            ManifestAgent(name=agent, digest=_NOTHING, agent=Agent(type="nop"), prices=prices[agent])
            for agent in sorted({agent for _, agent in counts})
        ),
        seed=0,
        backend="none",
        pool="none",
        chosen=tuple(trials),
        origin="production",
        traces=trials,
    )


def _task(name: str, samples: int) -> ManifestTask:
    return ManifestTask(
        id=name,
        version=1,
        digest=_NOTHING,
        kind="capability",
        tier=1,
        expect="complete",
        environment=Environment(),
        budgets=Budgets(),
        samples=samples,
        bundles=Bundles(sandbox=_NOTHING, world=_NOTHING, graders=_NOTHING),
    )


async def _write(store: ObjectStore, trace: Trace, place: Place) -> None:
    run, trial = place
    blob = await store.put_blob(keys.blob(run, f"{uuid.uuid4().hex}-trajectory"), _blocks(trace.path))
    if blob.sha256 != trace.sha256:
        msg = f"the trace of {trace.file}, line {trace.line}, was changed while it was stored"
        raise StoreError(msg, cause="import_changed")
    started, ended = trace.started or 0.0, trace.ended or 0.0
    outcome = Outcome(
        run=run,
        trial=str(trial),
        launch=1,
        outcome_class=outcome_class(trace.reason),
        termination_reason=trace.reason,
        ended_as=trace.ended_as,
        final=trace.final,
        trajectory=blob,
        usage=trace.usage or Usage(),
        steps=trace.steps,
        tool_calls=trace.tool_calls,
        models=trace.models,
        times=Times(
            started=started,
            ended=ended,
            working_s=max(0.0, ended - started - (trace.waiting_s or 0.0)),
            waiting_s=trace.waiting_s or 0.0,
        ),
        unrecorded=trace.unrecorded,
        writer_id=wiring.writer_id(),
    )
    await store.create(_outcome_key(place), outcome.to_bytes())


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while block := await asyncio.to_thread(file.read, _BLOCK):
            yield block
