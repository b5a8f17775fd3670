"""Hidden tests in two real sandboxes: right work passes, wrong work fails, and both are explained."""

from __future__ import annotations

import pytest
from grader_world import GraderWorld, lines

from grader_service.checks import command

BEFORE = {"src/auth.py": "def check(user, password):\n    return True\n"}
RIGHT = {"src/auth.py": "def check(user, password):\n    return bool(password)\n"}
HIDDEN = {
    "tests/test_auth.py": """
        from subject import call

        def test_empty_password_is_refused():
            assert call("auth:check", "alice", "") is False

        def test_password_is_accepted():
            assert call("auth:check", "alice", "secret") is True
        """,
    "expected.txt": "tests/test_auth.py::test_empty_password_is_refused\ntests/test_auth.py::test_password_is_accepted\n",
}
CHECK = {
    "id": "hidden_tests",
    "type": "command",
    "run": "python3 -m pytest -q hidden/tests",
    "results": "junit",
    "expect": "hidden/expected.txt",
    "pythonpath": ["src"],
}


def test_right_work_passes(world: GraderWorld) -> None:
    world.task(BEFORE, [CHECK], hidden=HIDDEN)
    world.left(RIGHT)
    verdict = world.grade()
    assert verdict.result == "passed", lines(verdict)
    assert verdict.checks[0].actual == "2 of 2 passed"


def test_an_exit_code_of_the_subject_is_no_proof(world: GraderWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sandbox runs the agent's code, which may end it in any way: any code may mean that."""
    monkeypatch.setattr(command, "_EVIDENCE_EXIT", None)  # what a subject killed by a signal has
    world.task(BEFORE, [CHECK], hidden=HIDDEN)
    world.left({"src/auth.py": "import os\nos.kill(os.getppid(), 9)\n"})
    verdict = world.grade()
    assert verdict.result == "failed", lines(verdict)


def test_untouched_work_fails_and_names_the_test(world: GraderWorld) -> None:
    world.task(BEFORE, [CHECK], hidden=HIDDEN)
    world.left(BEFORE)
    verdict = world.grade()
    assert verdict.result == "failed"
    assert (
        "tests/test_auth.py::test_empty_password_is_refused: failed: AssertionError: assert True is False"
        in verdict.checks[0].evidence[0]
    )
