"""Which trials of an old run are repeated, and as what."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_builder import agent, manifest, outcome, quarantined, task, verdict

from orchestrator.dataset.rows import RunData, assemble
from orchestrator.driver.limits import InForce
from orchestrator.driver.place import Place
from orchestrator.driver.rerun import Choice, check_rerun, choose, plan_rerun
from orchestrator.errors import RefusedError, SpecError
from orchestrator.interfaces import SandboxBackend
from orchestrator.plan.trials import all_trials, remaining
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.report.summary import summarise
from orchestrator.settings import load_settings
from orchestrator.spec.submission import RunLimits
from orchestrator.storage.file import FileStore

OLD = manifest([task("fix", samples=4), task("sort", samples=4)], [agent("careful"), agent("sloppy")], run="old")
"""careful passes; sloppy fails ``fix``, gives up ``sort`` once, and lost two trials of it."""


def old_run(**more: object) -> RunData:
    outcomes, verdicts = [], []
    for trial in OLD.trials():
        reason = "infra_lost" if trial.agent == "sloppy" and trial.task == "sort" and trial.sample > 2 else "completed"
        ended_as = "declined" if trial == TrialId("sort", "sloppy", 1) else None
        outcomes.append(outcome("old", trial, reason=reason, ended_as=ended_as))
        if reason == "completed":
            right = trial.agent == "careful" or trial == TrialId("sort", "sloppy", 2)
            verdicts.append(verdict("old", trial, "passed" if right else "failed"))
    return assemble(OLD.model_copy(update=more), outcomes, verdicts)


def chosen(choice: Choice, data: RunData | None = None) -> list[str]:
    return [str(row.trial) for row in choose(data or old_run(), choice)]


FAILED = [f"fix@sloppy:{number}" for number in (1, 2, 3, 4)] + ["sort@sloppy:1"]
LOST = ["sort@sloppy:3", "sort@sloppy:4"]


@pytest.mark.parametrize(
    ("choice", "trials"),
    [
        (Choice(failed=True), FAILED),
        (Choice(infra=True), LOST),
        (Choice(failed=True, infra=True), FAILED + LOST),
        (Choice(failed=True, infra=True, tasks=("s*",)), ["sort@sloppy:1", *LOST]),
        (Choice(), list(map(str, OLD.trials()))),
        (Choice(tasks=("fix",)), [str(trial) for trial in OLD.trials() if trial.task == "fix"]),
    ],
)
def test_kinds_add_up_and_tasks_narrow(choice: Choice, trials: list[str]) -> None:
    assert chosen(choice) == trials


def test_quarantine_does_not_hide_what_failed() -> None:
    assert chosen(Choice(failed=True), old_run(quarantine=(quarantined("fix"),))) == FAILED


def test_nothing_to_run_again_says_what_there_is() -> None:
    with pytest.raises(
        SpecError, match=r"of these tasks in run old is infra or grader_error.*there are 4 failed, 4 passed"
    ):
        choose(old_run(), Choice(infra=True, tasks=("fix",)))
    with pytest.raises(SpecError, match=r"no task matches 'sorted' \(did you mean 'sort'\?\)"):
        choose(old_run(), Choice(tasks=("sorted",)))


def test_chosen_trials_keep_their_seeds_and_are_the_whole_run() -> None:
    choice = Choice(failed=True, infra=True)
    made = plan_rerun(OLD, choose(old_run(), choice), choice, "new")
    before = {planned.id: planned.seed for planned in all_trials(OLD)}
    after = {planned.id: planned.seed for planned in all_trials(made)}
    assert sorted(map(str, after)) == sorted(FAILED + LOST)
    assert after == {trial: before[trial] for trial in after}
    assert (made.rerun_of, made.chosen_by, [each.name for each in made.agents]) == (
        "old",
        ("failed", "infra"),
        ["sloppy"],
    )
    assert (made.suite_digest, made.tasks) == (OLD.suite_digest, OLD.tasks)

    trial = TrialId("sort", "sloppy", 1)
    summary = summarise(assemble(made, [outcome("new", trial)], [verdict("new", trial)]))
    counts = summary.agents[0].counts
    assert (counts.planned, counts.passed, counts.missing) == (7, 1, 6)
    assert list(summary.agents[0].pass_at_k) == [1, 3]  # no task has five of its trials in this run
    assert "biased sample" in summary.notes[-1]


def test_a_cell_without_chosen_trials_is_not_planned() -> None:
    choice = Choice(failed=True)
    data = old_run()
    rows = [row for row in data.rows if str(row.trial) in {"fix@sloppy:1", "sort@careful:1"}]
    made = plan_rerun(OLD, rows, choice, "new")
    states = {(row.task, row.agent): row.state for row in summarise(assemble(made, [], [])).tasks}
    assert states["fix", "careful"] == states["sort", "sloppy"] == "not_planned"
    assert states["fix", "sloppy"] == "ungraded"


def test_a_rerun_of_a_biased_sample_stays_biased() -> None:
    first = plan_rerun(OLD, choose(old_run(), Choice(failed=True)), Choice(failed=True), "new")
    again = plan_rerun(first, choose(assemble(first, [], []), Choice()), Choice(), "newer")
    assert (again.rerun_of, again.is_biased, again.chosen) == ("new", True, first.chosen)


def test_all_of_a_run_is_a_run_without_a_list() -> None:
    made = plan_rerun(OLD, choose(old_run(), Choice()), Choice(), None)
    assert made.chosen is None
    assert made.run.endswith("-starter-" + made.run[-4:])
    assert not made.is_biased
    with pytest.raises(SpecError, match="cannot name a run"):
        plan_rerun(OLD, [], Choice(), "no good")


def place_of(folder: Path) -> Place:
    """A place that is looked at no further than its store."""
    return Place(
        load_settings(folder, environ={}, overrides={}), FileStore(folder), cast("SandboxBackend", None), folder
    )


def test_bundles_that_are_gone_and_names_that_are_taken_are_refused(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    made = plan_rerun(OLD, choose(old_run(), Choice(failed=True)), Choice(failed=True), "new")
    limits = InForce(RunLimits())

    async def story() -> None:
        task = OLD.tasks[0]
        for audience in ("sandbox", "world"):
            await place.store.create(keys.bundle(audience, task.bundles.sandbox), b"")
        with pytest.raises(
            RefusedError, match="run old cannot be repeated from the store: graders of task fix and 3 more of the 6"
        ):
            await check_rerun(OLD, made, limits, place)
        await place.store.create(keys.manifest("new"), b"")
        with pytest.raises(SpecError, match="there is a run of that name"):
            await check_rerun(OLD, made, limits, place)

    asyncio.run(story())


ENDINGS = st.lists(st.sampled_from(["infra_lost", "cancelled"]), max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ENDINGS, st.booleans(), st.booleans()), min_size=4, max_size=4))
def test_what_is_left_in_a_row_is_what_resume_would_do(stories: list[tuple[list[str], bool, bool]]) -> None:
    made = manifest([task("fix", samples=4)], [agent("careful")], run="r")
    outcomes, graded = {}, []
    for trial, (endings, ends, is_graded) in zip(made.trials(), stories, strict=True):
        reasons = [*endings, *(["completed"] if ends else [])]
        outcomes[trial] = [outcome("r", trial, launch=n, reason=reason) for n, reason in enumerate(reasons, 1)]
        graded += [trial] if ends and is_graded else []
    every = [one for launches in outcomes.values() for one in launches]
    verdicts = [verdict("r", trial, launch=len(outcomes[trial])) for trial in graded]
    left = remaining(made, outcomes, graded)
    rows = assemble(made, every, verdicts).rows
    assert {row.trial for row in rows if row.is_left(made.max_launches)} == {
        *(planned.id for planned in left.to_run),
        *(planned.id for planned, _ in left.to_grade),
    }
