"""Whole trials under gVisor: agent and hidden tests have a kernel of their own, as root and not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_runs import Runs, report
from installed_world import Release, ask

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SUITE = """\
id: own-kernel
metric: pass_rate
defaults:
  environment:
    isolation: gvisor
    requires: [python3]
    resources: {cpu: 0.2, memory: 128Mi, disk: 16Mi, processes: 16}
  budgets: {max_steps: 2, max_tool_calls: 2, max_wall_seconds: 120, max_tokens: 1000}
"""
TASK = """\
id: NAME
instruction: Say who you are and on which kernel in seen.py, as a value of `seen`.
environment: {user: USER}
checks:
  - {id: seen, type: files, path: seen.py, regex: 'gvisor'}
  - {id: kernel, type: command, run: "grep -qi gvisor /proc/version"}
  - {id: asked, type: command, run: "python3 -m pytest -q hidden/tests", results: junit, expect: hidden/expected.txt, pythonpath: [.]}
"""
HIDDEN = """\
from subject import run, script

def test_what_was_seen():
    assert script("from seen import seen; result = seen") == "UID gvisor"

def test_the_subject_has_that_kernel_too():
    assert "gvisor" in run("cat", "/proc/version").stdout

def test_requests_do_not_see_each_other():
    for _ in range(2):
        assert script("open('seen.py', 'a').write('#'); result = open('seen.py').read().count('#')") == 1
"""
TESTS = ("test_what_was_seen", "test_the_subject_has_that_kernel_too", "test_requests_do_not_see_each_other")
SOLVE = """\
#!/bin/sh
sleep 5  # longer than a freezer needs that takes a living agent for dead
grep -qi gvisor /proc/version && kernel=gvisor || kernel=the-nodes
echo "seen = '$(id -u) $kernel'" > seen.py
"""
CLASS = "gvisor"
VALUES = {
    "trials": {"runtimeClasses": {"gvisor": CLASS}},
    "namespaces": {"trialsRoot": {"runtimeClasses": [CLASS]}},
}


@pytest.fixture
def under_gvisor(ready: Release) -> Iterator[Release]:
    """The release, told of the cluster's RuntimeClass."""
    if ask("GET", f"/apis/node.k8s.io/v1/runtimeclasses/{CLASS}").status != 200:
        pytest.skip(f"the cluster has no RuntimeClass {CLASS}")
    ready.helm("upgrade", over=VALUES)
    ready.await_ready()
    yield ready
    ready.helm("upgrade")
    ready.await_ready()


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "own-kernel"
    folder.mkdir()
    (folder / "suite.yaml").write_text(SUITE)
    for user, uid in (("agent", 64000), ("root", 0)):
        task = folder / f"own-kernel-{user}"
        for each in ("workspace", "solution", "hidden/tests"):
            (task / each).mkdir(parents=True)
        (task / "task.yaml").write_text(TASK.replace("NAME", task.name).replace("USER", user))
        (task / "workspace" / "README.md").write_text("Nothing to see.\n")
        (task / "hidden/tests/test_seen.py").write_text(HIDDEN.replace("UID", str(uid)))
        (task / "hidden/expected.txt").write_text("".join(f"tests/test_seen.py::{each}\n" for each in TESTS))
        (task / "solution" / "solve.sh").write_text(SOLVE)
        (task / "solution" / "solve.sh").chmod(0o755)
    return folder


def test_agents_and_their_judges_have_a_kernel_of_their_own(under_gvisor: Release, suite: Path) -> None:
    runs = Runs(under_gvisor)
    run = runs.submit(suite, ["oracle", "nop"], "--samples", "1", "-n", "2", "--pool", "inline")
    runs.follow(run)
    left = runs.check(run)
    solved = {trial: ending for trial, ending in left.results.items() if "oracle" in trial}
    assert len(solved) == 2
    assert set(solved.values()) == {("completed", "passed")}, report(runs, run)
    assert {ending[1:] for trial, ending in left.results.items() if "nop" in trial} == {("failed",)}
