"""The trials of a run, and what is left of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.interfaces import PlannedTrial
from orchestrator.records.ids import TrialId, trial_seed
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome


def all_trials(manifest: RunManifest) -> list[PlannedTrial]:
    """Return every trial of a run: breadth first, so that an interrupted run has seen each task before any task twice."""
    planned = [
        PlannedTrial(
            id=trial,
            task=task,
            agent=agent,
            seed=trial_seed(manifest.seed, trial),
            launches_left=manifest.max_launches,
        )
        for trial, (task, agent) in manifest.trials().items()
    ]
    return sorted(planned, key=lambda trial: trial.id.sample)


@dataclass(frozen=True)
class Remaining:
    """What a run still has to do."""

    to_run: list[PlannedTrial]
    """Trials that need a launch, with the number of the next one."""
    to_grade: list[tuple[PlannedTrial, Outcome]]
    """Trials with a committed result whose verdict is still to be asked for."""
    given_up: list[PlannedTrial]
    """Trials whose launches all failed on our side."""
    spent_nano_usd: int = 0
    """Known costs of all launches so far."""


def remaining(
    manifest: RunManifest, outcomes: Mapping[TrialId, Sequence[Outcome]], graded: Iterable[TrialId]
) -> Remaining:
    """Return what is left, from what the store holds.

    A result is final. A launch that an operator cancelled is launched again: it says nothing about the agent, and does not count against
    ``max_launches``, which limits launches that failed on our side.
    """
    costs = [outcome.spent_nano_usd or 0 for launches in outcomes.values() for outcome in launches]
    done, left = set(graded), Remaining([], [], [], sum(costs))
    for planned in all_trials(manifest):
        launches = outcomes.get(planned.id, ())
        result = next((outcome for outcome in launches if outcome.outcome_class == "result"), None)
        if result is not None:
            if planned.id not in done:
                left.to_grade.append((planned, result))
            continue
        launches_left = manifest.max_launches - sum(outcome.outcome_class == "infra" for outcome in launches)
        if launches_left <= 0:
            left.given_up.append(planned)
            continue
        last = max((outcome.launch for outcome in launches), default=0)
        left.to_run.append(replace(planned, first_launch=last + 1, launches_left=launches_left))
    return left
