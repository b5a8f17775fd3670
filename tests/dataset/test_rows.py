"""What becomes of markers: every planned trial is one row, and nothing counts twice."""

import asyncio
from datetime import date

import pytest
from run_builder import (
    GRADER,
    OTHER_GRADER,
    agent,
    freeze,
    manifest,
    outcome,
    quarantined,
    save,
    tar_of,
    task,
    verdict,
)

from orchestrator.dataset.rows import assemble, collect
from orchestrator.errors import NotFoundError, StoreError
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.state import Finding
from orchestrator.storage.file import FileStore

RUN = "run-1"


def trial(sample=1, name="fix", who="careful"):
    return TrialId(name, who, sample)


def rows(outcomes, verdicts=(), *, samples=1, **more):
    made = manifest(
        [task("fix", samples=samples, **more.pop("task", {}))], [agent("careful", **more.pop("agent", {}))], **more
    )
    return assemble(made, outcomes, verdicts)


def only(data):
    assert len(data.rows) == 1
    return data.rows[0]


def test_every_planned_trial_is_a_row_in_the_order_of_the_manifest():
    made = manifest([task("b", samples=2), task("a", samples=1)], [agent("z"), agent("y")])
    found = [str(row.trial) for row in assemble(made, [], []).rows]
    assert found == ["a@z:1", "a@y:1", "b@z:1", "b@z:2", "b@y:1", "b@y:2"]
    assert {row.result for row in assemble(made, [], []).rows} == {"missing"}


@pytest.mark.parametrize(
    ("result", "word"), [("passed", "passed"), ("failed", "failed"), ("grader_error", "grader_error")]
)
def test_the_verdict_decides(result, word):
    assert only(rows([outcome(RUN, trial())], [verdict(RUN, trial(), result)])).result == word


def test_an_ungraded_result_is_missing_and_a_lost_one_infra():
    assert only(rows([outcome(RUN, trial())])).result == "missing"
    assert only(rows([outcome(RUN, trial(), reason="infra_lost")])).result == "infra"
    assert only(rows([outcome(RUN, trial(), reason="cancelled")])).result == "cancelled"


def test_the_winner_is_the_launch_that_was_not_lost_and_all_are_kept():
    launches = [outcome(RUN, trial(), launch=2), outcome(RUN, trial(), launch=1, reason="infra_lost")]
    row = only(rows(launches, [verdict(RUN, trial(), launch=2)]))
    assert (row.outcome.launch, row.result) == (2, "passed")
    assert [one.launch for one in row.launches] == [1, 2]


def test_of_lost_launches_the_last_one_counts():
    row = only(rows([outcome(RUN, trial(), launch=n, reason="infra_lost") for n in (1, 3, 2)]))
    assert (row.outcome.launch, row.result) == (3, "infra")


def test_two_results_of_one_trial_are_refused():
    with pytest.raises(StoreError, match="fix@careful:1 has more than one result"):
        rows([outcome(RUN, trial(), launch=1), outcome(RUN, trial(), launch=2)])


def test_a_trial_that_was_not_planned_is_refused():
    with pytest.raises(StoreError, match="fix@careful:2, which its manifest does not plan"):
        rows([outcome(RUN, trial(2))])


def test_a_wrong_solution_has_rows_only_where_it_was_written():
    data = assemble(manifest([task("fix", samples=1)], [agent("nop"), agent("wrong/lazy")]), [], [])
    assert [str(row.trial) for row in data.rows] == ["fix@nop:1"]


def test_quarantine_holds_through_its_last_day():
    def result(last):
        data = rows([outcome(RUN, trial())], [verdict(RUN, trial(), "failed")], quarantine=[quarantined("fix", last)])
        return only(data).result, only(data).graded_as

    assert result(date(2026, 3, 2)) == ("quarantined", "failed")
    assert result(date(2026, 3, 1)) == ("failed", "failed")


@pytest.mark.parametrize(
    ("expect", "word"), [("decline", "not_applicable"), ("ask", "not_applicable"), ("complete", "passed")]
)
def test_an_agent_without_endings_is_not_judged_by_them(expect, word):
    data = rows(
        [outcome(RUN, trial())],
        [verdict(RUN, trial())],
        task={"expect": expect},
        agent={"terminal_output": "none"},
    )
    assert only(data).result == word


def test_declining_a_task_that_can_be_done_is_abstaining():
    data = rows([outcome(RUN, trial(), reason="declined", ended_as="declined")], [verdict(RUN, trial())])
    assert only(data).result == "abstained"


def test_of_several_graders_the_one_that_graded_most_is_used_and_said():
    trials = [trial(n) for n in (1, 2)]
    verdicts = [verdict(RUN, one, "passed", grader=GRADER) for one in trials]
    verdicts.append(verdict(RUN, trials[0], "failed", grader=OTHER_GRADER))
    data = rows([outcome(RUN, one) for one in trials], verdicts, samples=2)
    assert [row.result for row in data.rows] == ["passed", "passed"]
    assert "trials graded by several graders: 1; the verdicts used are of abababababab" in data.notes[0]


def test_a_tie_of_graders_does_not_depend_on_the_order_of_reading():
    verdicts = [verdict(RUN, trial(), "passed", grader=GRADER), verdict(RUN, trial(), "failed", grader=OTHER_GRADER)]
    for order in (verdicts, verdicts[::-1]):
        assert only(rows([outcome(RUN, trial())], order)).verdict.grader_digest == OTHER_GRADER


def test_trials_of_one_task_by_different_graders_are_said():
    verdicts = [verdict(RUN, trial(1), grader=GRADER), verdict(RUN, trial(2), grader=OTHER_GRADER)]
    data = rows([outcome(RUN, trial(n)) for n in (1, 2)], verdicts, samples=2)
    assert "graded by different graders" in data.notes[0]
    assert "measure it again" in data.notes[0]


def test_a_verdict_about_another_launch_does_not_count():
    data = rows([outcome(RUN, trial(), launch=2)], [verdict(RUN, trial(), launch=1)])
    assert only(data).result == "missing"
    assert "not about the launch and state" in data.notes[0]


def test_a_run_is_read_back_from_a_folder(tmp_path):
    async def story():
        store = FileStore(tmp_path)
        made = manifest([task("fix", samples=3)], [agent("careful")])
        state = await freeze(store, RUN, "s", [], tar_of([]))
        findings = (Finding(type="setuid", detail="workspace/x"),)
        await save(
            store,
            made,
            [outcome(RUN, trial(1), state=state, findings=findings), outcome(RUN, trial(2), reason="infra_lost")],
            [verdict(RUN, trial(1), state=state)],
        )
        # A note about a passing failure of the grader is no verdict.
        assert await store.create(keys.grading_try(RUN, trial(3), "a"), b"{}")
        return await collect(store, RUN)

    data = asyncio.run(story())
    assert [row.result for row in data.rows] == ["passed", "infra", "missing"]
    assert data.rows[0].outcome.findings[0].type == "setuid"
    assert data.notes == ()


def test_an_unknown_run_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match=r"runs/nope/manifest\.json"):
        asyncio.run(collect(FileStore(tmp_path), "nope"))


def test_a_record_under_a_key_of_another_trial_is_refused(tmp_path):
    async def story():
        store = FileStore(tmp_path)
        await save(store, manifest([task("fix", samples=2)], [agent("careful")]))
        assert await store.create(keys.outcome(RUN, trial(2), 1), outcome(RUN, trial(1)).to_bytes())
        await collect(store, RUN)

    with pytest.raises(StoreError, match="holds the record of something else"):
        asyncio.run(story())


def test_a_broken_record_is_named(tmp_path):
    async def story():
        store = FileStore(tmp_path)
        await save(store, manifest([task("fix")], [agent("careful")]))
        assert await store.create(keys.outcome(RUN, trial(), 1), b'{"run": 1}')
        await collect(store, RUN)

    with pytest.raises(StoreError, match=r"outcomes/run-1/fix@careful:1/1\.json is not a Outcome"):
        asyncio.run(story())
