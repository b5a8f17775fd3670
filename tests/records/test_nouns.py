"""Records, ids and keys: they come back as they were, and odd input is refused with a reason."""

from __future__ import annotations

import typing
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId, launch_id, trial_seed
from orchestrator.records.manifest import Bundles, Code, ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.state import EndedAs, FinalAnswer, FrozenState
from orchestrator.records.termination import REASONS, TERMINATION_CLASS, outcome_class
from orchestrator.records.usage import NOTHING_USED, Usage
from orchestrator.records.verdict import CheckResult, GradingError, Verdict, ending_result, trial_result
from orchestrator.spec.agent import Agent
from orchestrator.spec.suite import Quarantined
from orchestrator.spec.task import Budgets, Environment, Expect
from orchestrator.storage.file import check_key

TRIAL = TrialId("fix-login", "wrong/lazy", 3)
BLOB = BlobRef(key="blobs/r/1", sha256="0" * 64, size=1)


def outcome(reason: str = "completed", ended_as: EndedAs | None = "completed") -> Outcome:
    values = {
        "run": "r",
        "trial": str(TRIAL),
        "launch": 1,
        "outcome_class": outcome_class(typing.cast("typing.Any", reason)),
        "termination_reason": reason,
        "ended_as": ended_as,
        "usage": NOTHING_USED,
        "times": Times(started=1.5, ended=2, working_s=0.5, waiting_s=0),
        "writer_id": "w",
    }
    return Outcome.model_validate(values)


def verdict(result: str = "passed") -> Verdict:
    error = GradingError(type="check", message="m") if result == "grader_error" else None
    check = CheckResult(id="c", type="files", passed=None if error else result == "passed", expected={"a": [1, None]})
    values = {
        "run": "r",
        "trial": str(TRIAL),
        "launch": 1,
        "state_sha256": None,
        "grader_digest": "g",
        "result": result,
    }
    return Verdict.model_validate(values | {"error": error, "checks": (check,)})


def test_a_manifest_comes_back_with_times_days_and_tuples() -> None:
    task = ManifestTask(
        id="t",
        version=1,
        digest="sha256:a",
        kind="capability",
        tier=1,
        expect="complete",
        tags=("a",),
        environment=Environment(now=datetime(2026, 3, 2, 9, tzinfo=UTC)),
        budgets=Budgets(),
        samples=2,
        bundles=Bundles(sandbox="a", world="b", graders="c", solutions={"wrong/x": "d"}),
    )
    manifest = RunManifest(
        run="r",
        created_at=datetime(2026, 11, 30, tzinfo=UTC),
        orchestrate_version="0",
        code=Code(),
        suite="s",
        suite_digest="d",
        metric="pass_rate",
        k=1,
        quarantine=(Quarantined(task="t", owner="o", issue="i", expires=date(2027, 1, 1)),),
        tasks=(task,),
        agents=(ManifestAgent(name="nop", digest="d", agent=Agent(type="nop")),),
        seed=2**62,
        backend="bubblewrap",
        pool="inline",
    )
    again = RunManifest.from_bytes(manifest.to_bytes())
    assert again == manifest
    assert again.to_bytes() == manifest.to_bytes()
    assert again.task("t") is again.tasks[0]
    for look_up in (again.task, again.agent):
        with pytest.raises(KeyError):
            look_up("absent")


@pytest.mark.parametrize(
    "record", [outcome(), verdict(), verdict("grader_error"), BLOB, FrozenState(entries=BLOB, changes=BLOB)]
)
def test_records_come_back(record: Outcome | Verdict | BlobRef | FrozenState) -> None:
    assert type(record).from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "Invalid JSON"),
        (b'{"key": "k", "size": 1}', "sha256"),
        (BLOB.to_bytes().replace(b'"size":1', b'"size":"1"'), "size"),
        (BLOB.to_bytes().replace(b'"size":1', b'"size":1,"more":2'), "more"),
    ],
)
def test_unreadable_records_name_object_and_field(data: bytes, words: str) -> None:
    with pytest.raises(StoreError, match="blobs/x is not a BlobRef") as caught:
        BlobRef.from_bytes(data, "blobs/x")
    assert words in str(caught.value)
    assert caught.value.cause == "record_unreadable"


def test_another_schema_version_is_refused() -> None:
    newer = outcome().to_bytes().replace(b'"schema_version":1', b'"schema_version":2')
    with pytest.raises(StoreError, match="schema_version"):
        Outcome.from_bytes(newer)


@given(
    st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True),
    st.from_regex(r"(wrong/)?[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True),
    st.integers(1, 10**6),
)
def test_trials_and_their_keys_read_back(task: str, agent: str, sample: int) -> None:
    trial = TrialId(task, agent, sample)
    assert TrialId.parse(str(trial)) == trial
    key = keys.outcome("run 1/x", trial, 2)
    assert keys.parse_outcome(key) == ("run 1/x", trial, 2)
    assert key.startswith(keys.outcomes("run 1/x", trial))
    assert keys.outcomes("run 1/x", trial).startswith(keys.outcomes("run 1/x"))
    assert keys.parse_verdict(keys.verdict("r", trial, "sha256:ab")) == trial
    assert keys.parse_verdict(keys.grading_try("r", trial, "u")) is None
    for each in (key, keys.manifest("run 1/x"), keys.blob("r", "u"), keys.record("r", trial, 1, 1, "seal.json")):
        check_key(each)


@pytest.mark.parametrize(
    "text", ["", "a", "a@b", "a@b:0", "a@b:01", "A@b:1", "a@b:1 ", "a@@b:1", "a:1", "/a@b:1", "a@/b:1"]
)
def test_other_texts_are_no_trials(text: str) -> None:
    with pytest.raises(ValueError, match="write TASK@AGENT:N"):
        TrialId.parse(text)


def test_keys_of_other_things_are_told_apart() -> None:
    assert keys.run_of_manifest(keys.manifest("a b")) == "a b"
    assert keys.run_of_manifest("runs/a/other.json") is None
    assert keys.bundle("graders", "sha256:ab") == "bundles/graders/ab"
    with pytest.raises(ValueError, match="not the key of an outcome"):
        keys.parse_outcome("grades/r/t@a:1/1.json")


def test_names_and_seeds_come_from_content() -> None:
    seeds = {trial_seed(seed, TrialId("t", "a", sample)) for seed in range(20) for sample in range(1, 20)}
    assert len(seeds) == 20 * 19
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert trial_seed(1, TRIAL) == trial_seed(1, TRIAL)
    names = {launch_id(run, TRIAL, launch) for run in ("r", "r1") for launch in (1, 11)}
    assert len(names) == 4
    assert launch_id("r", TRIAL, 1) == launch_id("r", str(TRIAL), 1)


def test_every_reason_has_a_class_and_only_ours_leave_the_denominator() -> None:
    assert set(TERMINATION_CLASS) == set(REASONS)
    assert {reason for reason in REASONS if outcome_class(reason) == "infra"} == {
        "model_api_error",
        "user_simulator_error",
        "infra_lost",
    }
    assert {reason for reason in REASONS if outcome_class(reason) == "cancelled"} == {"cancelled"}


def test_usage_adds_up_and_an_unknown_cost_stays_unknown() -> None:
    one = Usage(uncached_input=1, cache_read=2, cache_write=3, output=4, reasoning=2, cost_nano_usd=5)
    assert one.total == 10
    assert one.plus(one).cost_nano_usd == 10
    assert one.plus(NOTHING_USED) == one
    assert one.plus(Usage(output=1)).cost_nano_usd is None


TABLE: list[tuple[Expect, EndedAs | None, EndedAs | None, str]] = [
    ("complete", "completed", None, "by checks"),
    ("complete", None, None, "by checks"),
    ("complete", "declined", None, "abstained"),
    ("complete", "asked", None, "abstained"),
    ("decline", "completed", "declined", "failed"),
    ("decline", None, "declined", "failed"),
    ("decline", "declined", "declined", "by checks"),
    ("decline", "asked", "declined", "failed"),
    ("decline", "asked", "asked", "by checks"),
    ("ask", "asked", "asked", "by checks"),
    ("ask", "completed", "asked", "failed"),
    ("ask", None, "asked", "failed"),
    ("ask", "declined", "asked", "failed"),
    ("ask", "declined", "declined", "by checks"),
    ("ask_then_complete", "completed", None, "by checks"),
    ("ask_then_complete", "asked", None, "by checks"),
    ("ask_then_complete", "declined", None, "failed"),
    ("ask_then_complete", "declined", "declined", "by checks"),
    ("decline", "completed", "completed", "failed"),
    ("ask", None, "completed", "failed"),
]


@pytest.mark.parametrize(("expect", "ended", "listed", "result"), TABLE)
def test_the_table_of_endings(expect: Expect, ended: EndedAs | None, listed: EndedAs | None, result: str) -> None:
    by_checks = {True: "passed", False: "failed"}
    for passed in (True, False):
        wanted = by_checks[passed] if result == "by checks" else result
        assert ending_result(expect, ended, checks_passed=passed, final_checked=listed) == wanted


def test_our_failures_are_never_a_zero() -> None:
    good = outcome()
    assert trial_result("complete", None, None) == "missing"
    assert trial_result("complete", good, None) == "missing"
    assert trial_result("complete", outcome("infra_lost"), None) == "infra"
    assert trial_result("complete", outcome("cancelled"), None) == "cancelled"
    assert trial_result("complete", good, verdict("grader_error")) == "grader_error"
    assert trial_result("complete", good, verdict("failed")) == "failed"
    assert trial_result("complete", outcome("step_cap", None), verdict()) == "passed"


@pytest.mark.parametrize("confidence", ["high", 0.5, None])
def test_final_answers_come_back(confidence: typing.Any) -> None:
    answer = FinalAnswer(status="asked", message="?", confidence=confidence, escalation={"who": "x"})
    assert FinalAnswer.from_bytes(answer.to_bytes()) == answer
