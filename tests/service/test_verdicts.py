"""From checks to one word: invariants are absolute, a missing state fails, what is not built is refused, endings are typed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from grader_world import Files, GraderWorld, lines

from grader_service.checks.asked import check_asked
from grader_service.checks.final import check_final
from grader_service.combine import combine
from orchestrator.records.outcome import Outcome, Question, Times
from orchestrator.records.state import EndedAs, FinalAnswer
from orchestrator.records.usage import NOTHING_USED
from orchestrator.records.verdict import CheckResult
from orchestrator.spec.checks import AskedCheck, FinalCheck
from orchestrator.spec.wording import mentions

ANSWER = {"id": "answer", "type": "files", "path": "answer.txt", "equals": "42\n"}
OTHER = {"id": "other", "type": "files", "path": "other.txt", "equals": "42\n"}
UNCHANGED = {"type": "paths_unchanged", "paths": ["tests/**"]}
BEFORE = {"answer.txt": "0\n", "tests/t.py": "1"}


def test_a_violated_invariant_fails_whatever_else_passed(world: GraderWorld) -> None:
    world.task(BEFORE, [ANSWER], invariants=[UNCHANGED])
    world.left({"answer.txt": "42\n", "tests/t.py": "2"})
    verdict = world.grade()
    assert (verdict.result, verdict.checks[0].passed, verdict.invariants[0].passed) == ("failed", True, False)
    assert verdict.invariants[0].evidence == ("tests/t.py was changed",)


def test_one_of_several_ways_is_enough(world: GraderWorld) -> None:
    world.task(BEFORE, [{"any_of": [OTHER, ANSWER]}])
    world.left({**BEFORE, "answer.txt": "42\n"})
    verdict = world.grade()
    assert verdict.result == "passed", lines(verdict)
    assert [(c.id, c.passed, c.gate) for c in verdict.checks] == [
        ("other|answer", True, True),
        ("other", False, False),
        ("answer", True, False),
    ]


def test_no_way_is_a_failure(world: GraderWorld) -> None:
    world.task(BEFORE, [{"any_of": [OTHER, ANSWER]}])
    world.left(BEFORE)
    verdict = world.grade()
    assert (verdict.result, verdict.grader_version) == ("failed", "test")


def test_a_launch_without_a_state_fails_the_checks_that_need_one(world: GraderWorld) -> None:
    checks = [
        ANSWER,
        {"id": "tests", "type": "command", "run": "true"},
        {"id": "end", "type": "final", "status": "asked"},
    ]
    world.task(BEFORE, checks, invariants=[UNCHANGED])
    world.left(None, final=FinalAnswer(status="asked"), termination_reason="out_of_memory")
    verdict = world.grade()
    assert (verdict.result, verdict.state_sha256) == ("failed", None)
    assert [c.passed for c in (*verdict.checks, *verdict.invariants)] == [False, False, True, False]


LEFT_TOO_MUCH: dict[str, Files] = {
    # A path that was made step by step: below another folder it is too long to be opened.
    "long_path": {"/".join(["d" * 200] * 20) + "/" + "e" * 72: "x"},
    # Hard links and sparse files have more bytes than the disk that holds them.
    "many_bytes": {f"f{n}": b"x" * (5 << 20) for n in range(5)},
}


@pytest.mark.parametrize("name", LEFT_TOO_MUCH)
def test_what_cannot_be_put_together_again_is_never_our_failure(world: GraderWorld, name: str) -> None:
    reads = {"id": "reads", "type": "command", "run": "pytest -q hidden"}
    hidden: Files = {
        "test_it.py": "from subject import run\ndef test(): assert run('cat', 'answer.txt').stdout == '42\\n'\n"
    }
    resources = {"disk": "16Mi", "memory": "128Mi"}
    checks = [ANSWER, reads, {"id": "diff", "type": "diff", "allow": ["answer.txt"]}]
    environment = {"requires": ["python3"], "resources": resources}
    world.task(BEFORE, checks, hidden=hidden, environment=environment)
    world.left({**BEFORE, "answer.txt": "42\n", **LEFT_TOO_MUCH[name]})
    verdict = world.grade()
    assert (verdict.result, verdict.checks[2].passed) == ("failed", False), lines(verdict)
    if name == "long_path":
        assert all("too long" in check.evidence[0] for check in verdict.checks[:2]), lines(verdict)


@pytest.mark.slow
def test_hidden_tests_see_all_that_an_agent_could_leave(world: GraderWorld) -> None:
    """A workspace that was shown takes nothing of the agent's disk, so what is left can be nearly twice as much."""
    reads = {"id": "reads", "type": "command", "run": "pytest -q hidden"}
    hidden: Files = {
        "test_it.py": "from subject import run\ndef test(): assert run('cat', 'answer.txt').stdout == '42\\n'\n"
    }
    given: Files = {"given": bytes(70 << 20)}
    environment = {"requires": ["python3"], "resources": {"disk": "72Mi", "memory": "128Mi"}}
    world.task(given, [reads], hidden=hidden, environment=environment)
    world.left({**given, "answer.txt": "42\n", "built": bytes(70 << 20)})
    verdict = world.grade()
    assert verdict.result == "passed", lines(verdict)


COMMAND = {"id": "t", "type": "command", "run": "pytest"}


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ({**COMMAND, "isolation": "in_process"}, "isolation 'in_process' is not built yet"),
        ({**COMMAND, "results": "tap"}, "results 'tap' are not built yet"),
        ({**COMMAND, "confirm": 2}, "confirm above 1"),
        ({"id": "o", "type": "build", "run": "make"}, "type 'build' is not built yet"),
        ({"any_of": [ANSWER, {"id": "b", "type": "build", "run": "make"}]}, "check b: type 'build'"),
    ],
)
def test_what_is_not_built_is_refused_by_name(world: GraderWorld, check: dict[str, Any], words: str) -> None:
    world.task(BEFORE, [check])
    world.left(BEFORE)
    verdict = world.grade()
    assert (verdict.result, verdict.error.type) == ("grader_error", "config")
    assert words in verdict.error.message


def result(name: str, passed: bool | None, gate: bool = True) -> CheckResult:
    return CheckResult(id=name, type="files", passed=passed, gate=gate)


@pytest.mark.parametrize(
    ("checks", "invariants", "word"),
    [
        ([True], [], "passed"),
        ([True, False], [True], "failed"),
        ([True], [False], "failed"),
        ([True, None], [False], "grader_error"),
        ([], [], "failed"),
    ],
)
def test_combine(checks: list[bool | None], invariants: list[bool | None], word: str) -> None:
    assert combine([result("c", c) for c in checks], [result("i", i) for i in invariants])[0] == word


def outcome(final: FinalAnswer | None) -> Outcome:
    return Outcome(
        run="r", trial="t@a:1", launch=1, outcome_class="result", termination_reason="completed", usage=NOTHING_USED, writer_id="w",
        times=Times(started=0, ended=1, working_s=1, waiting_s=0), final=final, ended_as=final.status if final else None,
    )  # fmt: skip


def final(status: EndedAs = "asked", message: str = "Which currency, and which region?", **more: Any) -> FinalAnswer:
    return FinalAnswer(status=status, message=message, **more)


SPEC = FinalCheck(
    id="end",
    type="final",
    status="asked",
    mentions=(("currency", "money"), ("region",)),
    max_chars=60,
    escalation={"permission": "refund"},
)
GOOD = {"escalation": {"permission": "refund", "more": "x"}}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (final(**GOOD), None),
        (final(message="WHICH  CURRENCY\nand region", **GOOD), None),
        (None, "no valid ending"),
        (final("declined", **GOOD), "ended as declined, not asked"),
        (final(message="Which currencyless regional thing?", **GOOD), "mentions none of: currency, money"),
        (final(message="currency region " + "x" * 60, **GOOD), "76 characters, at most 60"),
        (final(), "escalation.permission is absent, not 'refund'"),
        (final(escalation={"permission": "refund.all"}), "escalation.permission is 'refund.all', not 'refund'"),
    ],
)
def test_final(answer: FinalAnswer | None, words: str | None) -> None:
    found = check_final(SPEC, outcome(answer))
    assert found.passed is (words is None), found
    assert words is None or any(words in line for line in found.evidence)
    assert found.actual == ("; ".join(found.evidence) or "asked") or answer is None


def test_phrases_are_whole_words() -> None:
    assert mentions("the unit (EUR/USD)?", ("eur",))
    assert mentions("C++ or Rust", ("c++",))
    assert not mentions("neural", ("eur",))
    assert not mentions("anything", ("",))


ASKED = (Question(question="Which currency?", reply="currency"), Question(question="Eh?\nWhat?", reply=None))


@pytest.mark.parametrize(
    ("spec", "asked", "actual"),
    [
        ({"replies": ["currency"]}, ASKED, None),
        ({"replies": ["currency"], "max_questions": 2}, ASKED, None),
        ({"max_questions": 0}, (), None),
        ({"max_questions": 1}, ASKED, "2 questions, at most 1"),
        ({"replies": ["currency", "region"]}, ASKED, "no question drew the reply 'region'"),
        ({"replies": ["currency"]}, (), "no question drew the reply 'currency'"),
        ({"replies": ["currency"]}, None, "no question drew the reply 'currency'"),
    ],
)
def test_what_was_asked(spec: dict[str, Any], asked: tuple[Question, ...] | None, actual: str | None) -> None:
    check = AskedCheck.model_validate_json(json.dumps({"id": "a", "type": "asked", **spec}))
    found = check_asked(check, outcome(None).model_copy(update={"questions": asked}))
    assert found.passed == (actual is None)
    assert actual is None or found.actual == actual
    found.to_bytes()
