"""What a run consists of, and what is left of it after any interruption."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan.trials import all_trials, remaining
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.usage import NOTHING_USED


def outcome(trial: TrialId, launch: int, outcome_class: str) -> Outcome:
    reason = {"result": "completed", "infra": "infra_lost", "cancelled": "cancelled"}[outcome_class]
    return Outcome(
        run="r1",
        trial=str(trial),
        launch=launch,
        outcome_class=outcome_class,  # type: ignore[arg-type]
        termination_reason=reason,  # type: ignore[arg-type]
        usage=NOTHING_USED,
        times=Times(started=0, ended=1, working_s=1, waiting_s=0),
        writer_id="w",
    )


def test_each_task_is_seen_before_any_is_seen_twice(manifest: RunManifest) -> None:
    names = [str(planned.id) for planned in all_trials(manifest)]
    assert names == ["a@nop:1", "a@wrong/lazy:1", "b@nop:1", "a@nop:2", "a@wrong/lazy:2", "b@nop:2"]


def test_a_wrong_solution_runs_only_where_it_was_written(manifest: RunManifest) -> None:
    assert {planned.id.task for planned in all_trials(manifest) if planned.agent.name == "wrong/lazy"} == {"a"}


def test_seeds_differ_between_trials_and_not_between_plans(manifest: RunManifest) -> None:
    first, second = ([planned.seed for planned in all_trials(manifest)] for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first)


def test_a_result_without_a_verdict_is_graded_and_not_run(manifest: RunManifest) -> None:
    trial = TrialId("a", "nop", 1)
    left = remaining(manifest, {trial: [outcome(trial, 1, "infra"), outcome(trial, 2, "result")]}, [])
    assert [planned.id for planned, _ in left.to_grade] == [trial]
    assert trial not in {planned.id for planned in left.to_run}


def test_launches_that_failed_on_our_side_are_limited(manifest: RunManifest) -> None:
    trial = TrialId("a", "nop", 1)
    left = remaining(manifest, {trial: [outcome(trial, n, "infra") for n in (1, 2, 3)]}, [])
    assert [planned.id for planned in left.given_up] == [trial]


def test_a_cancelled_launch_is_launched_again_and_costs_no_attempt(manifest: RunManifest) -> None:
    trial = TrialId("a", "nop", 1)
    left = remaining(manifest, {trial: [outcome(trial, 1, "infra"), outcome(trial, 2, "cancelled")]}, [])
    again = next(planned for planned in left.to_run if planned.id == trial)
    assert (again.first_launch, again.launches_left) == (3, 2)


CLASSES = st.lists(st.sampled_from(["infra", "cancelled"]), max_size=4)


@given(histories=st.lists(st.tuples(CLASSES, st.booleans(), st.booleans()), min_size=6, max_size=6))
def test_every_trial_is_in_exactly_one_place(
    manifest_of_six: RunManifest, histories: list[tuple[list[str], bool, bool]]
) -> None:
    outcomes, graded = {}, []
    for planned, (classes, has_result, has_verdict) in zip(all_trials(manifest_of_six), histories, strict=True):
        words = [*classes, "result"] if has_result else classes
        outcomes[planned.id] = [outcome(planned.id, number, word) for number, word in enumerate(words, 1)]
        if has_result and has_verdict:
            graded.append(planned.id)
    left = remaining(manifest_of_six, outcomes, graded)
    places = [p.id for p in left.to_run] + [p.id for p, _ in left.to_grade] + [p.id for p in left.given_up] + graded
    assert sorted(places) == sorted(planned.id for planned in all_trials(manifest_of_six))
    assert all(planned.launches_left > 0 for planned in left.to_run)
