"""Hidden tests in real grading pods: verdicts as on one machine, hostile subjects, failures that are ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "service"))

from grader_world import RUN, TRIAL, Files, GraderWorld, lines
from grading_cluster import GradingCluster, grading, need_the_cluster, run

from grader_service.grade import grade
from grader_service.programs import lay_programs
from orchestrator.records.verdict import Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

BEFORE: Files = {"src/auth.py": "def check(user, password):\n    return True\n"}
RIGHT: Files = {"src/auth.py": "def check(user, password):\n    return bool(password)\n"}
HIDDEN: Files = {
    "tests/test_auth.py": """
        from subject import call

        def test_empty_password_is_refused():
            assert call("auth:check", "alice", "") is False

        def test_password_is_accepted():
            assert call("auth:check", "alice", "secret") is True
        """,
    "expected.txt": "tests/test_auth.py::test_empty_password_is_refused\ntests/test_auth.py::test_password_is_accepted\n",
}
CHECK: dict[str, Any] = {
    "id": "hidden_tests",
    "type": "command",
    "run": "python3 -m pytest -q hidden/tests",
    "results": "junit",
    "expect": "hidden/expected.txt",
    "pythonpath": ["src"],
}


@pytest.fixture
def world(short_folder: Path) -> GraderWorld:
    need_the_cluster()
    return GraderWorld(short_folder, lay_programs(short_folder / "programs"))


def graded(
    world: GraderWorld, after: Files, checks: list[dict[str, Any]] | None = None, hidden: Files | None = None
) -> Verdict:
    world.task(BEFORE, checks or [CHECK], hidden=HIDDEN if hidden is None else hidden)
    world.left(after)
    verdict: Verdict = run(lambda cluster: cluster.grade(world))
    return verdict


def alike(pod: Verdict, local: Verdict) -> None:
    """The same results for the same reasons; only digests and seconds differ."""

    def core(verdict: Verdict) -> list[dict[str, Any]]:
        return [check.model_dump(mode="json", exclude={"seconds"}) for check in verdict.checks]

    assert (pod.result, core(pod)) == (local.result, core(local))


@pytest.mark.parametrize(
    "after", [RIGHT, BEFORE, {"src/auth.py": "import os\nos._exit(0)\n"}], ids=["right", "untouched", "exits"]
)
def test_a_verdict_is_the_same_as_on_one_machine(world: GraderWorld, after: Files) -> None:
    verdict = graded(world, after)
    alike(verdict, world.grade())
    assert verdict.grader_digest != world.grade().grader_digest


def test_all_command_checks_of_a_verdict_share_one_pod(world: GraderWorld) -> None:
    shell = {"id": "shell", "type": "command", "run": "cat hidden/expected.txt >/dev/null"}
    world.task(BEFORE, [CHECK, shell], hidden=HIDDEN)
    world.left(RIGHT)

    async def scene(cluster: GradingCluster) -> tuple[Verdict, int]:
        async with cluster.pairs() as pairs:
            verdict = await grade(grading(world, pairs), RUN, TRIAL)
            return verdict, pairs._creator.requests["create"]

    verdict, created = run(scene)
    assert verdict.result == "passed", lines(verdict)
    assert created == 1
