"""What a validation says of a task that measures nothing yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.driver.proof import TaskProof, prove
from orchestrator.interfaces import TrialEnd
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.usage import Usage
from orchestrator.records.verdict import CheckResult, GradingError, Verdict
from orchestrator.spec.load import load_task
from orchestrator.spec.loaded import LoadedTask

TASK = """\
id: one
instruction: Do it.
checks:
  - {id: done, type: files, path: done}
  - {id: radius, type: diff, allow: [done]}
"""
GOOD = {"done": True, "radius": True}
BAD = {"done": False, "radius": True}


@pytest.fixture
def task(tmp_path: Path) -> LoadedTask:
    folder = tmp_path / "one"
    (folder / "solution/wrong-late").mkdir(parents=True)
    (folder / "task.yaml").write_text(TASK)
    (folder / "solution/solve.sh").write_text("touch done\n")
    (folder / "solution/wrong-late/solve.sh").write_text("# fails: radius\n")
    return load_task(folder)


def end(agent: str, checks: dict[str, bool], error: str = "") -> TrialEnd:
    trial = TrialId("one", agent, 1)
    outcome = Outcome(
        run="r",
        trial=str(trial),
        launch=1,
        outcome_class="result",
        termination_reason="completed",
        usage=Usage(),
        times=Times(started=0, ended=1, working_s=1, waiting_s=0),
        writer_id="w",
    )
    results = tuple(
        CheckResult(id=name, type="files", passed=good, evidence=() if good else (f"\n{name} is not so\nmore",))
        for name, good in checks.items()
    )
    verdict = Verdict(
        run="r",
        trial=str(trial),
        launch=1,
        state_sha256=None,
        grader_digest="sha256:" + "0" * 64,
        result="grader_error" if error else "passed" if all(checks.values()) else "failed",
        error=GradingError(type="check", message=error) if error else None,
        checks=results,
    )
    return TrialEnd(trial=trial, outcome=outcome, verdict=verdict)


def proof_of(task: LoadedTask, oracle: TrialEnd, nop: TrialEnd, late: TrialEnd | None) -> TaskProof:
    return prove(task, {"oracle": oracle, "nop": nop, "wrong/late": late})


def test_a_valid_task_has_no_fault(task: LoadedTask) -> None:
    late = end("wrong/late", {"done": True, "radius": False})
    assert proof_of(task, end("oracle", GOOD), end("nop", BAD), late).ok


def test_each_fault_says_what_was_seen_first(task: LoadedTask) -> None:
    proof = proof_of(task, end("oracle", BAD), end("nop", GOOD), end("wrong/late", BAD))
    assert [(fault.agent, fault.message, fault.details) for fault in proof.faults] == [
        ("oracle", "the reference solution must pass, but it failed by done", ("done: done is not so",)),
        ("nop", "doing nothing must fail, but it passed: the checks ask for no work", ()),
        (
            "wrong/late",
            "the wrong solution 'late' must fail by radius, but it failed by done",
            ("done: done is not so",),
        ),
    ]


def test_what_could_not_be_graded_is_said_so_and_why_only_once(task: LoadedTask) -> None:
    proof = proof_of(task, *(end(name, {}, "no pytest here") for name in ("oracle", "nop", "wrong/late")))
    assert [str(fault) for fault in proof.faults] == [
        "the reference solution could not be graded; no pytest here",
        "doing nothing could not be graded",
        "the wrong solution 'late' could not be graded",
    ]


def test_a_solution_that_was_not_run_is_no_failure(task: LoadedTask) -> None:
    [fault] = proof_of(task, end("oracle", GOOD), end("nop", BAD), None).faults
    assert str(fault) == "the wrong solution 'late' must fail, but it was not run"
