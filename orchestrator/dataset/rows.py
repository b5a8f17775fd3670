"""One typed row for each planned trial, read from the markers of a run. What is missing stays visible."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TypeVar

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.records.verdict import TrialResult, Verdict, trial_result

PARALLEL = 32
"""Objects that are read at one time."""

Kind = TypeVar("Kind", Outcome, Verdict)
Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One planned trial and what is known of it."""

    trial: TrialId
    task: ManifestTask
    agent: ManifestAgent
    result: TrialResult
    """The word that every table counts."""
    graded_as: TrialResult
    """The word without quarantine and applicability: a quarantined trial still shows what came of it."""
    outcome: Outcome | None
    """The winner: the only launch with a result, else the last lost or cancelled one; None before any launch ended."""
    verdict: Verdict | None
    """The grader's record of the winner."""
    launches: tuple[Outcome, ...] = ()
    """Every launch that ended, in order."""
    verdicts: tuple[Verdict, ...] = ()
    """Every verdict, by digest of the grader; ``verdict`` is the one that counts."""
    is_imported: bool = False
    """Whether it is a trace from elsewhere."""

    @property
    def spent_nano_usd(self) -> int | None:
        """Cost of all launches in 10**-9 US dollars; None when a price is unknown."""
        costs = [launch.usage.cost_nano_usd for launch in self.launches]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def is_left(self, max_launches: int) -> bool:
        """Return whether ``resume`` would run or grade it. An imported trace is neither run nor graded."""
        if self.is_imported:
            return False
        if self.outcome is not None and self.outcome.outcome_class == "result":
            return not self.verdicts
        return sum(launch.outcome_class == "infra" for launch in self.launches) < max_launches

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """Ids of the gates that did not hold, invariants after checks."""
        if self.verdict is None:
            return ()
        every = (*self.verdict.checks, *self.verdict.invariants)
        return tuple(check.id for check in every if check.gate and check.passed is False)


@dataclass(frozen=True, kw_only=True)
class RunData:
    """A run as rows: by task id, then by agent in the order of the manifest, then by sample."""

    manifest: RunManifest
    rows: tuple[TrialRow, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know about how the rows were made, one sentence each."""

    @property
    def grader_version(self) -> str:
        """What graded the trials, as their verdicts say; before any was graded, what the manifest says, which need not know.

        Several versions, one after another, when the service was upgraded meanwhile.
        """
        said = {row.verdict.grader_version for row in self.rows if row.verdict is not None}
        return " | ".join(sorted(said - {""})) or self.manifest.grader_version

    @property
    def month(self) -> str:
        """Month of the submission, UTC: ``YYYY-MM``."""
        return self.manifest.created_at.astimezone(UTC).strftime("%Y-%m")


async def collect(store: ObjectStore, run: str) -> RunData:
    """Read a run.

    Raises NotFoundError when there is no such run and StoreError when its records contradict each other, or when it was removed
    while it was read: who removes a run begins with its manifest.
    """
    return await RunReader(store, run).read()


async def record_keys(store: ObjectStore, run: str) -> tuple[list[str], list[str]]:
    """Return the keys of a run's outcomes and of its verdicts."""
    outcomes, grades = await asyncio.gather(store.list(keys.outcomes(run)), store.list(keys.verdicts(run)))
    return outcomes, [name for name in grades if keys.parse_verdict(name)]


class RunReader:
    """Reads a run as often as wanted; what was read once, and so never changes, is not read again."""

    def __init__(self, store: ObjectStore, run: str) -> None:
        self._store = store
        self._run = run
        self._manifest: RunManifest | None = None
        self._outcomes: dict[str, Outcome] = {}
        self._verdicts: dict[str, Verdict] = {}

    async def read(self) -> RunData:
        """Return the run as it is now. Raises as ``collect`` does."""
        if self._manifest is None:
            key = keys.manifest(self._run)
            self._manifest = RunManifest.from_bytes(await self._store.get(key), key)
        try:
            return await self._records(self._manifest)
        except NotFoundError as error:
            raise await _vanished(self._store, self._run, error) from error

    async def _records(self, manifest: RunManifest) -> RunData:
        outcomes, verdicts = await record_keys(self._store, self._run)
        for name, outcome in await self._fresh(outcomes, self._outcomes, Outcome):
            _same(name, keys.parse_outcome(name), (outcome.run, TrialId.parse(outcome.trial), outcome.launch))
            self._outcomes[name] = outcome
        for name, verdict in await self._fresh(verdicts, self._verdicts, Verdict):
            _same(name, name, keys.verdict(verdict.run, TrialId.parse(verdict.trial), verdict.grader_digest))
            self._verdicts[name] = verdict
        if not await self._store.exists(key := keys.manifest(self._run)):
            raise NotFoundError(key)
        return assemble(
            manifest, [self._outcomes[name] for name in outcomes], [self._verdicts[name] for name in verdicts]
        )

    async def _fresh(self, names: Iterable[str], known: Mapping[str, Kind], kind: type[Kind]) -> list[tuple[str, Kind]]:
        async def read(name: str) -> tuple[str, Kind]:
            return name, kind.from_bytes(await self._store.get(name), name)

        return await read_many(read, [name for name in names if name not in known])


async def _vanished(store: ObjectStore, run: str, error: NotFoundError) -> StoreError:
    """Return what to say of an object that was listed and is gone."""
    if await store.exists(keys.manifest(run)):
        return error
    return StoreError(f"run {run} was removed while it was read", cause="run_removed")


async def read_many(read: Callable[[Item], Awaitable[Value]], items: Sequence[Item]) -> list[Value]:
    """Read many objects, some at a time, and return them in the order of ``items``."""
    gate = asyncio.Semaphore(PARALLEL)

    async def one(item: Item) -> Value:
        async with gate:
            return await read(item)

    return await asyncio.gather(*map(one, items))


def _same(key: str, where: object, what: object) -> None:
    if where != what:
        msg = f"{key} holds the record of something else ({what}); the store was changed by hand or is broken"
        raise StoreError(msg, cause="record_misplaced")


def assemble(
    manifest: RunManifest,
    outcomes: Iterable[Outcome],
    verdicts: Iterable[Verdict],
    only: Mapping[TrialId, tuple[ManifestTask, ManifestAgent]] | None = None,
) -> RunData:
    """Put records together, of all planned trials or of those of ``only``.

    Raises StoreError for two results of one trial and for trials that were never planned.
    """
    planned = manifest.trials() if only is None else only
    launches: defaultdict[TrialId, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        launches[_planned(planned, outcome.trial, manifest.run)].append(outcome)
    grades: defaultdict[TrialId, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        grades[_planned(planned, verdict.trial, manifest.run)].append(verdict)
    chosen, notes = _choose_graders(grades)
    rows: list[TrialRow] = []
    for trial, (task, agent) in planned.items():
        ended = tuple(sorted(launches[trial], key=lambda outcome: outcome.launch))
        winner = _winner(trial, ended)
        found = chosen.get(trial)
        if found is not None and not _about(found, winner):
            notes.append(f"{trial}: its verdict is not about the launch and state that count, so it is not used")
            found = None
        graded_as = _graded_as(manifest, task, winner, found)
        rows.append(
            TrialRow(
                trial=trial,
                task=task,
                agent=agent,
                result=_counted(manifest, task, agent, graded_as),
                graded_as=graded_as,
                outcome=winner,
                verdict=found,
                launches=ended,
                verdicts=tuple(sorted(grades.get(trial, ()), key=lambda verdict: verdict.grader_digest)),
                is_imported=manifest.is_imported,
            )
        )
    return RunData(manifest=manifest, rows=tuple(rows), notes=tuple(notes))


def _graded_as(
    manifest: RunManifest, task: ManifestTask, winner: Outcome | None, verdict: Verdict | None
) -> TrialResult:
    """Return the word for a trial. Nothing was asked of an imported trace, so there is nothing to grade."""
    if manifest.is_imported and winner is not None:
        return "not_applicable"
    return trial_result(task.expect, winner, verdict, task.final_checked)


def _planned(planned: Mapping[TrialId, object], name: str, run: str) -> TrialId:
    trial = TrialId.parse(name)
    if trial not in planned:
        msg = f"run {run} has a record of {trial}, which its manifest does not plan"
        raise StoreError(msg, cause="record_unplanned")
    return trial


def _winner(trial: TrialId, launches: Sequence[Outcome]) -> Outcome | None:
    numbers = [outcome.launch for outcome in launches]
    results = [outcome for outcome in launches if outcome.outcome_class == "result"]
    if len(results) > 1 or len(set(numbers)) < len(numbers):
        shown = ", ".join(f"launch {outcome.launch} {outcome.outcome_class}" for outcome in launches)
        msg = f"{trial} has more than one result ({shown}); counting it twice would be wrong, so nothing is reported"
        raise StoreError(msg, cause="result_twice")
    return results[0] if results else (launches[-1] if launches else None)


def _about(verdict: Verdict, winner: Outcome | None) -> bool:
    state = winner.state.sha256 if winner and winner.state else None
    return winner is not None and verdict.launch == winner.launch and verdict.state_sha256 == state


def _counted(manifest: RunManifest, task: ManifestTask, agent: ManifestAgent, graded_as: TrialResult) -> TrialResult:
    """Return the word that counts: quarantine, unless its entry had expired at submission, then applicability."""
    day = manifest.created_at.astimezone(UTC).date()
    if any(entry.task == task.id and day <= entry.expires for entry in manifest.quarantine):
        return "quarantined"
    if agent.agent.terminal_output == "none" and task.expect in {"decline", "ask"}:
        return "not_applicable"
    return graded_as


def _choose_graders(grades: Mapping[TrialId, Sequence[Verdict]]) -> tuple[dict[TrialId, Verdict], list[str]]:
    """Take one verdict per trial: of several graders the one that graded most trials, then the first by digest."""
    covered = Counter(verdict.grader_digest for found in grades.values() for verdict in found)
    chosen: dict[TrialId, Verdict] = {}
    several: defaultdict[str, list[TrialId]] = defaultdict(list)
    used: defaultdict[str, set[str]] = defaultdict(set)
    for trial, found in grades.items():
        best = min(found, key=lambda verdict: (-covered[verdict.grader_digest], verdict.grader_digest))
        chosen[trial] = best
        used[trial.task].add(best.grader_digest)
        if len(found) > 1:
            several[best.grader_digest].append(trial)
    notes = [
        f"trials graded by several graders: {len(trials)}; the verdicts used are of {short(digest)}, which graded most"
        for digest, trials in sorted(several.items())
    ]
    notes += [
        f"{task}: its trials were graded by different graders ({', '.join(map(short, sorted(digests)))}); "
        "where that may matter, measure it again, once no upgrade is going on"
        for task, digests in sorted(used.items())
        if len(digests) > 1
    ]
    return chosen, notes


def short(digest: str) -> str:
    """Return the first 12 hex digits of a digest, for people."""
    return digest.removeprefix("sha256:")[:12]
