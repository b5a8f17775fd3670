"""Repeat trials of an earlier run as a new run, from its manifest and the bundles in the store: no file of the suite is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_args

from orchestrator import __version__, wiring
from orchestrator.dataset.rows import RunData, TrialRow, read_many
from orchestrator.driver.limits import InForce
from orchestrator.driver.order import matching, refuse, run_id, run_id_problems
from orchestrator.driver.place import Place
from orchestrator.driver.prepare import check_resume, refuse_imported, refuse_removed, too_many
from orchestrator.errors import Problem, RefusedError, SpecError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.manifest import ChosenBy, RunManifest
from orchestrator.records.prices import price_digest
from orchestrator.records.verdict import TrialResult
from orchestrator.storage.removals import watch

FAILED: tuple[TrialResult, ...] = ("failed", "abstained")
"""Graded, and not passed."""
LOST: tuple[TrialResult, ...] = ("infra", "grader_error")
"""Lost for our reasons."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which trials to repeat: those of any kind that is asked for, or all; ``tasks`` leaves only tasks that match one of its patterns."""

    failed: bool = False
    infra: bool = False
    tasks: tuple[str, ...] = ()

    @property
    def by(self) -> tuple[ChosenBy, ...]:
        """What the manifest says of it."""
        asked: dict[ChosenBy, bool] = {"failed": self.failed, "infra": self.infra, "tasks": bool(self.tasks)}
        return tuple(name for name, there in asked.items() if there)

    @property
    def results(self) -> tuple[TrialResult, ...]:
        """The words that are asked for; empty: any."""
        return (*(FAILED if self.failed else ()), *(LOST if self.infra else ()))


def choose(data: RunData, choice: Choice) -> list[TrialRow]:
    """Return the trials to repeat. Raises SpecError for patterns that match nothing, and when there is no such trial."""
    run = data.manifest.run
    tasks = matching([task.id for task in data.manifest.tasks], choice.tasks, f"run {run}")
    rows = [row for row in data.rows if row.task.id in tasks]
    found = [row for row in rows if not choice.results or row.graded_as in choice.results]
    if not found:
        counts = Counter(row.graded_as for row in rows)
        there = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        of_tasks = " of these tasks" if choice.tasks else ""
        msg = f"no trial{of_tasks} in run {run} is {' or '.join(choice.results)}, so there is nothing to run again; there are {there}"
        raise SpecError(msg)
    return found


def plan_rerun(old: RunManifest, rows: Sequence[TrialRow], choice: Choice, run: str | None) -> RunManifest:
    """Return the manifest of the new run, with the digests, seeds and prices of the old one.

    Labels and the grader's version are those of the old run still. Raises SpecError for an unusable run id.
    """
    refuse_imported(old)
    if problems := run_id_problems(run):
        raise SpecError(problems)
    now = datetime.now(UTC)
    trials = {row.trial for row in rows}
    every = set(old.trials()) == trials and old.chosen is None
    agents = tuple(agent for agent in old.agents if any(trial.agent == agent.name for trial in trials))
    return old.model_copy(
        update={
            "run": run or run_id(old.suite, now),
            "created_at": now,
            "orchestrate_version": __version__,
            "tasks": tuple(task for task in old.tasks if any(trial.task == task.id for trial in trials)),
            "agents": agents,
            "price_table": price_digest(agent.prices for agent in agents),
            "rerun_of": old.run,
            "chosen": None if every else tuple(map(str, sorted(trials))),
            "chosen_by": tuple(name for name in get_args(ChosenBy) if name in {*old.chosen_by, *choice.by}),
        }
    )


async def check_rerun(old: RunManifest, manifest: RunManifest, limits: InForce, place: Place) -> None:
    """Raise RefusedError with everything that the new run needs and does not find any more: bundles, providers, prices, the backend.

    Raises SpecError when its id is taken.
    """
    if await place.store.exists(keys.manifest(manifest.run)):
        raise _taken(manifest.run)
    await _check_bundles(manifest, place.store)
    check_resume(old, place.settings, limits, manifest.agents)
    tasks = [(task.id, reason) for task in manifest.tasks for reason in place.backend.refusals(task.environment)]
    agents = [(each.name, reason) for each in manifest.agents for reason in wiring.agent_refusals(each.agent)]
    reasons = [f"task {name}: {reason}" for name, reason in tasks] + [
        f"agent {name}: {reason}" for name, reason in agents
    ]
    refuse(reasons + too_many(len(manifest.trials()), limits))


async def _check_bundles(manifest: RunManifest, store: ObjectStore) -> None:
    needed = _bundles(manifest)
    there = await read_many(store.exists, list(needed))
    gone = [whose for whose, found in zip(needed.values(), there, strict=True) if not found]
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        msg = (
            f"run {manifest.rerun_of} cannot be repeated from the store: {gone[0]}{more} of the {len(needed)} bundles that it "
            f"needs are no longer there; submit the suite again instead"
        )
        raise RefusedError(msg)


def _bundles(manifest: RunManifest) -> dict[str, str]:
    """Return the keys of all bundles that these trials need, and whose each one is."""
    found: dict[str, str] = {}
    for task in manifest.tasks:
        of_task: dict[keys.Audience, str] = {
            "sandbox": task.bundles.sandbox,
            "world": task.bundles.world,
            "graders": task.bundles.graders,
        }
        for audience, digest in of_task.items():
            found[keys.bundle(audience, digest)] = f"{audience} of task {task.id}"
    for trial, (task, agent) in manifest.trials().items():
        if trial.agent in task.bundles.solutions:
            found[keys.bundle("solutions", task.bundles.solutions[trial.agent])] = f"solutions of task {task.id}"
        if agent.bundle is not None:
            found[keys.bundle("sandbox", agent.bundle)] = f"files of agent {agent.name}"
        if agent.scripts is not None:
            found[keys.bundle("world", agent.scripts)] = f"scripts of agent {agent.name}"
    return found


async def publish_rerun(
    manifest: RunManifest, place: Place, labels: Mapping[str, str], grader_version: str
) -> RunManifest:
    """Create the manifest, with what is known of this machine now.

    Raises SpecError when the run id is or was taken, and RefusedError when a gc that ran meanwhile deleted a bundle that is needed.
    """
    watching = await watch(place.store)
    await refuse_removed(place.store, manifest.run)
    await _check_bundles(manifest, place.store)
    settings = place.settings
    made = manifest.model_copy(
        update={
            "labels": dict(labels),
            "grader_version": grader_version,
            "pool": settings.pool,
            "max_launches": settings.max_launches,
        }
    )
    if not await place.store.create(keys.manifest(made.run), made.to_bytes()):
        raise _taken(made.run)
    if await watching.disturbed():
        await _check_bundles(made, place.store)
    return made


def _taken(run: str) -> SpecError:
    return SpecError([Problem(run, message="there is a run of that name; choose another --run-id")])
