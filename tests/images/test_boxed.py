"""Suites whose tasks run in container images, from the recipe to the verdict, with a real engine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import clean_environment
from registry_world import registry

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]

Run = Callable[..., subprocess.CompletedProcess[str]]


def counts(report: str) -> dict[str, str]:
    """Return ``TASK@AGENT`` to how many of how many passed, from ``report --json``."""
    tasks = json.loads(report)["tasks"]
    return {f"{row['task']}@{row['agent']}": f"{row['counts']['passed']}/{row['counts']['planned']}" for row in tasks}


def locked(suite: Path) -> dict[str, str]:
    lock = json.loads((suite / "images.lock.json").read_bytes())
    return {**{task: entry["image"] for task, entry in lock["builds"].items()}, **lock["images"]}


def engine(*words: str) -> str:
    from container_world import engine as found

    done = subprocess.run([*found().command, *words], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_folder_builds_the_same_image_again(orchestrate: Run, suite: Path) -> None:
    first = json.loads(orchestrate("images", "build", suite, "--no-cache", "--json").stdout)["builds"]
    time.sleep(1.1)  # a clock in the image would show
    os.utime(suite / "mend-adder/environment/app/adder.py")
    second = json.loads(orchestrate("images", "build", suite, "--no-cache", "--json").stdout)["builds"]
    assert [each["how"] for each in first] == ["built"]
    assert first == second


def test_what_a_recipe_says_before_it_fails_is_shown(orchestrate: Run, suite: Path) -> None:
    with (suite / "mend-adder/environment/Dockerfile").open("a") as file:
        file.write("RUN echo this is why; false\n")
    said = orchestrate("images", "lock", suite, code=2).stderr
    assert "boxed/mend-adder/environment: the image of task mend-adder cannot be built" in said
    assert "this is why" in said
    assert not (suite / "images.lock.json").exists()


def test_nothing_runs_before_images_are_pinned(orchestrate: Run, suite: Path) -> None:
    said = orchestrate("submit", suite, "--agent", "oracle", "--dry-run", code=2).stderr
    assert "task mend-adder: " in said
    assert "task count-lines: " in said
    assert said.count("orchestrate images lock SUITE") == 2
    assert "2 refused; nothing was started" in said


def test_a_suite_is_built_pinned_proved_and_run(orchestrate: Run, suite: Path, base: str) -> None:
    orchestrate("images", "lock", suite)
    images = locked(suite)
    assert images["localhost/orchestrate-test-base:1"] == base
    said = orchestrate("validate", suite).stdout
    assert "2 of 2 tasks are valid" in said
    done = orchestrate("submit", suite, "--agent", "oracle", "--agent", "nop", "--agent", "wrong/constant", "--json")
    assert counts(done.stdout) == {
        "count-lines@oracle": "1/1",
        "count-lines@nop": "0/1",
        "count-lines@wrong/constant": "0/0",
        "mend-adder@oracle": "1/1",
        "mend-adder@nop": "0/1",
        "mend-adder@wrong/constant": "0/1",
    }
    manifest = json.loads(done.stdout)["manifest"]
    assert manifest["backend"] == "container"
    assert manifest["images"] == {
        "count-lines": {"image": base, "id": base},
        "mend-adder": {"image": images["mend-adder"], "id": images["mend-adder"]},
    }
    shown = orchestrate("show", "last", "mend-adder@wrong/constant").stdout
    assert f"image      {images['mend-adder']}" in shown
    assert "FAIL hidden_tests" in shown
    assert "changed  workspace/adder.py" in shown
    assert "-    return a - b" in shown
    assert orchestrate("report", "last").stdout.count("backend container   2 images") == 1


def test_a_driver_that_was_killed_goes_on_in_the_same_images(orchestrate: Run, suite: Path, tmp_path: Path) -> None:
    orchestrate("images", "lock", suite)
    words = ["submit", str(suite), "--agent", "oracle", "--samples", "3", "--run-id", "r1", "-n", "1"]
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *words],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=log,
            stderr=log,
        )
    outcomes = tmp_path / ".orchestrate/store/outcomes/r1"
    while driver.poll() is None and len(list(outcomes.rglob("*.json"))) < 2:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    done = len(list(outcomes.rglob("*.json")))
    assert 2 <= done < 6, (tmp_path / "log").read_text()
    (suite / "mend-adder/environment/Dockerfile").write_text("FROM another\n")  # a run goes on without its suite
    report = json.loads(orchestrate("resume", "r1", "--json").stdout)
    assert counts(json.dumps(report)) == {"count-lines@oracle": "3/3", "mend-adder@oracle": "3/3"}
    assert all(agent["counts"]["infra"] == 0 for agent in report["agents"])


def test_an_image_that_is_gone_is_named_with_the_way_to_make_it(orchestrate: Run, suite: Path) -> None:
    recipe = suite / "mend-adder/environment/Dockerfile"
    recipe.write_text(recipe.read_text() + f"ENV ONLY_HERE={time.time_ns()}\n")
    orchestrate("images", "lock", suite)
    image = locked(suite)["mend-adder"]
    engine("image", "rm", "--force", image)
    said = orchestrate("submit", suite, "--agent", "oracle", code=2).stderr
    assert f"task mend-adder: image {image} is not on this machine" in said
    assert "orchestrate images build" in said
    orchestrate("images", "build", suite)
    assert orchestrate("try", suite / "mend-adder").stdout.startswith("mend-adder@oracle:1   passed")
    engine("image", "rm", "--force", image)


def test_an_image_without_python_cannot_be_asked_by_hidden_tests(orchestrate: Run, suite: Path) -> None:
    recipe = suite / "mend-adder/environment/Dockerfile"
    recipe.write_text(recipe.read_text() + "RUN rm /usr/local/bin/python3 /usr/local/bin/python\n")
    orchestrate("images", "lock", suite)
    said = orchestrate("validate", suite, "--tasks", "mend-adder", code=2).stderr
    assert "python3: not found in image" in said
    assert "command checks" in said


def test_a_workspace_that_no_bundle_can_hold_is_told_before_anything_runs(orchestrate: Run, suite: Path) -> None:
    recipe = suite / "mend-adder/environment/Dockerfile"
    recipe.write_text(recipe.read_text() + "RUN mkfifo /testbed/pipe && ln -s /bin/sh /testbed/shell\n")
    orchestrate("images", "lock", suite)
    said = orchestrate("submit", suite, "--agent", "oracle", "--dry-run", code=2).stderr
    assert (
        "boxed/mend-adder/task.yaml: environment.workspace.image_path: pipe is no file, folder or symbolic link" in said
    )
    assert "shell is a symbolic link to '/bin/sh'" in said


def test_a_task_without_an_image_does_not_run_in_containers(orchestrate: Run, suite: Path) -> None:
    orchestrate("images", "lock", suite)
    task = suite / "count-lines/task.yaml"
    task.write_text(task.read_text().replace("  image: localhost/orchestrate-test-base:1\n", "  requires: [sed]\n"))
    said = orchestrate("submit", suite, "--agent", "oracle", "--dry-run", code=2).stderr
    assert "task count-lines: image: containers are made from an image, and there is none" in said


def test_an_agent_of_its_own_image_works_on_the_tasks_files(orchestrate: Run, suite: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "counter.sh").write_text("grep -c '' poem.txt > count.txt\n")
    (recipe / "Dockerfile").write_text("FROM localhost/orchestrate-test-base:1\nCOPY counter.sh /counter.sh\n")
    image = engine("build", "--quiet", str(recipe)).strip()
    image = image if image.startswith("sha256:") else f"sha256:{image}"
    mine = tmp_path / "boxed-counter.yaml"
    mine.write_text(f"type: command\ncommand: [sh, /counter.sh]\nplacement: own\nimage: {image}\n")
    orchestrate("images", "lock", suite)
    words = ("submit", suite, "--agent", mine, "--tasks", "count-lines", "--samples", "1")
    said = orchestrate(*words, "--backend", "bubblewrap", code=2).stderr
    assert "agent boxed-counter: placement 'own' needs a backend that runs images" in said
    try:
        orchestrate(*words)
        assert counts(orchestrate("report", "last", "--json").stdout) == {"count-lines@boxed-counter": "1/1"}
    finally:
        engine("rmi", "--force", image)
    said = orchestrate(*words, code=2).stderr
    assert f"agent boxed-counter: image {image} is not on this machine" in said


def test_images_come_from_their_registry_by_digest(
    orchestrate: Run, suite: Path, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from container_world import engine as found

    if found().kind != "podman":
        pytest.skip("only podman saves an image as a folder that a registry can serve")
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nENV SERVED={time.time_ns()}\n")
    image = f"sha256:{engine('build', '--quiet', '--file', str(tmp_path / 'Dockerfile'), str(suite)).strip()}"
    engine("save", "--quiet", "--format", "oci-dir", "--output", str(tmp_path / "saved"), image)
    engine("image", "rm", image)
    shutil.rmtree(suite / "mend-adder")
    with registry(tmp_path / "saved") as address:
        (tmp_path / "registries.conf").write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(tmp_path / "registries.conf"))
        task = suite / "count-lines/task.yaml"
        task.write_text(task.read_text().replace("localhost/orchestrate-test-base:1", f"{address}/acme/base:1"))
        orchestrate("images", "lock", suite)
        pinned = locked(suite)[f"{address}/acme/base:1"]
        assert pinned.startswith(f"{address}/acme/base@sha256:")
        engine("image", "rm", f"{address}/acme/base:1")
        report = json.loads(orchestrate("submit", suite, "--agent", "oracle", "--json").stdout)
        assert counts(json.dumps(report)) == {"count-lines@oracle": "1/1"}
        assert report["manifest"]["images"] == {"count-lines": {"image": pinned, "id": image}}
    engine("image", "rm", image)
    said = orchestrate("submit", suite, "--agent", "oracle", code=5).stderr
    assert f"task count-lines: image {pinned} cannot be pulled" in said
    assert "connection refused" in said
