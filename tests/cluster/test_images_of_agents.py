"""Agents that come in an image: as the system that they run in, and mounted into the task's. From the task to the verdict, and refusals."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_runs import AGAIN, Runs
from installed_world import Release, ask, image

sys.path.insert(0, str(Path(__file__).parents[1] / "agents"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from client_agents import PLAIN, asking_suite, check_trial, write_agent
from real_agents import TASK

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROGRAMS = {"own": "/opt/agent/run", "mounted": "/agent/opt/agent/run"}
"""Where the image's program is, by placement."""
MORE = ("--backend", "kubernetes", "--pool", "inline", "--samples", "1", "--yes")
NONE = "@sha256:" + "1" * 64
"""The digest of no image."""
GVISOR = {
    "trials": {"runtimeClasses": {"gvisor": "gvisor"}},
    "namespaces": {"trialsRoot": {"runtimeClasses": ["gvisor"]}},
}


def _agent(folder: Path, placement: str, reference: str) -> list[str]:
    command = [PROGRAMS[placement], PLAIN.name, PLAIN.ending]
    fields = {"command": command, "placement": placement, "image": reference}
    return ["--agent", str(write_agent(folder, placement, PLAIN, **fields))]


def _suite(folder: Path, environment: str) -> Path:
    suite = asking_suite(folder)
    with (suite / TASK / "task.yaml").open("a") as file:
        file.write(f"environment: {{requires: [python3], {environment}}}\n")
    return suite


def _finishes(release: Release, folder: Path, suite: Path, subtests: pytest.Subtests) -> None:
    """Have both kinds of agents make the task, and look at all that is told of them."""
    runs, reference = Runs(release), image("agent")
    words = [word for placement in PROGRAMS for word in _agent(folder, placement, reference)]
    done = runs.cli("submit", str(suite), *words, *MORE, "--detach", cwd=folder)
    assert done.returncode == 0, done.stderr
    run = done.stdout.split()[-1]
    runs.follow(run)
    left = runs.check(run)
    for placement in PROGRAMS:
        trial = f"{TASK}@{placement}"
        with subtests.test(placement):
            assert left.results[f"{trial}:1"] == ("completed", "passed")
            shown = json.loads(runs.cli("show", run, trial, "--json").stdout)
            logs = runs.cli("logs", run, trial, "--json").stdout
            check_trial(PLAIN, shown, [json.loads(line) for line in logs.splitlines()])


def test_agents_of_an_image_finish_a_starter_task(ready: Release, tmp_path: Path, subtests: pytest.Subtests) -> None:
    _finishes(ready, tmp_path, asking_suite(tmp_path), subtests)


@pytest.mark.slow
def test_so_they_do_as_root(ready: Release, tmp_path: Path, subtests: pytest.Subtests) -> None:
    _finishes(ready, tmp_path, _suite(tmp_path, "user: root"), subtests)


@pytest.fixture
def under_gvisor(ready: Release) -> Iterator[Release]:
    """The release, told of the cluster's RuntimeClass."""
    if ask("GET", "/apis/node.k8s.io/v1/runtimeclasses/gvisor").status != 200:
        pytest.skip("the cluster has no RuntimeClass gvisor")
    ready.helm("upgrade", over=GVISOR)
    ready.await_ready()
    yield ready
    ready.helm("upgrade")
    ready.await_ready()


@pytest.mark.slow
def test_so_they_do_under_gvisor(under_gvisor: Release, tmp_path: Path, subtests: pytest.Subtests) -> None:
    _finishes(under_gvisor, tmp_path, _suite(tmp_path, "isolation: gvisor"), subtests)


def test_images_that_the_cluster_does_not_allow_are_refused_before_anything_runs(
    ready: Release, tmp_path: Path
) -> None:
    runs, references = Runs(ready), {each: f"registry.example/{each}{NONE}" for each in PROGRAMS}
    words = [word for placement, reference in references.items() for word in _agent(tmp_path, placement, reference)]
    done = runs.cli("submit", str(asking_suite(tmp_path)), *words, *MORE, cwd=tmp_path)
    assert done.returncode == AGAIN, done.stderr
    for reference in references.values():
        assert f"orchestrate: {reference} begins with no prefix of the namespace annotation" in done.stderr
    assert "images.prefixes: localhost/ " in done.stderr
    assert "2 refused; nothing was started" in done.stderr
