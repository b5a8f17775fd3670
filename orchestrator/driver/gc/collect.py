"""One ``gc``: runs first, then what they alone needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from orchestrator import wiring
from orchestrator.driver.gc.broom import Amount, Broom
from orchestrator.driver.gc.garbage import Garbage, GarbageCollector
from orchestrator.driver.gc.local import clean_machine
from orchestrator.driver.gc.runs import DAY_S, Criteria, KeptRun, Known, RemovedRun, RunRemover, choose, read_runs
from orchestrator.settings import Settings

UNUSED_S = 7 * DAY_S
"""For how long a file of a cache is kept unused when no age was asked for, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What a gc did, or would do."""

    dry_run: bool
    runs: Sequence[RemovedRun] = ()
    """Oldest first."""
    kept: Sequence[KeptRun] = ()
    """Runs that were chosen and stay."""
    garbage: Sequence[Garbage] = ()
    """What no run needs, by kind."""
    unreadable: Sequence[str] = ()
    """Runs whose manifest this version cannot read: they stay unless they are named."""

    @property
    def total(self) -> Amount:
        """Everything together."""
        return sum([*(run.amount for run in self.runs), *(each.amount for each in self.garbage)], Amount())


async def collect_garbage(settings: Settings, criteria: Criteria, *, dry_run: bool) -> Collected:
    """Remove runs that meet the criteria, and what is not needed; with ``dry_run`` only say what that would be.

    Raises SpecError for criteria that name nothing or a run that is not there, and StoreError, after which the next gc goes on.
    """
    store = wiring.sweepable_store(settings.store)
    broom, writer = Broom(store, dry=dry_run), wiring.writer_id()
    known = await read_runs(store)
    remover = RunRemover(broom, writer, criteria)
    removed, kept = await remove_runs(remover, known, criteria)
    staying = {run: one for run, one in known.items() if run not in {each.run for each in removed}}
    loose = await remover.stragglers(staying)
    garbage = await GarbageCollector(broom, writer, criteria.grace_s).all(staying)
    unused_s = max(criteria.grace_s, UNUSED_S if criteria.older_than_s is None else criteria.older_than_s)
    return Collected(
        dry_run=dry_run,
        runs=removed,
        kept=kept,
        garbage=[
            Garbage(kind="stragglers", amount=loose),
            *garbage,
            *await clean_machine(settings, unused_s, dry=dry_run),
        ],
        unreadable=sorted(run for run, one in known.items() if one.manifest is None),
    )


async def remove_runs(
    remover: RunRemover, known: Mapping[str, Known], criteria: Criteria
) -> tuple[list[RemovedRun], list[KeptRun]]:
    """Remove the runs that meet the criteria, and finish with those that an earlier gc left. Raises SpecError and StoreError."""
    unfinished = await remover.unfinished()
    if criteria.runs is not None:
        criteria = replace(criteria, runs=tuple(run for run in criteria.runs if run not in unfinished))
    chosen = choose(known, criteria, datetime.now(UTC))
    runs = list(dict.fromkeys([*unfinished, *chosen]))
    kept = await remover.heard(runs)
    done = [kept.get(run) or await remover.remove(run, known.get(run)) for run in runs]
    return [each for each in done if isinstance(each, RemovedRun)], [each for each in done if isinstance(each, KeptRun)]
