"""What a suite's images are pinned to, and how a pin that no longer fits is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.image_lock import FILE, ImageLock, LockedBuild
from orchestrator.spec.load import load_suite, load_task
from orchestrator.spec.task import is_pinned

PINNED = f"docker.io/library/python@sha256:{'1' * 64}"
ID = f"sha256:{'2' * 64}"
Lines = Callable[[], object]


def problems(load: Lines) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load()
    return [str(problem) for problem in caught.value.problems]


def environment(suite: Path, text: str) -> None:
    file = suite / "one/task.yaml"
    file.write_text(file.read_text().replace("environment:\n", f"environment:\n  {text}\n"))


def lock(suite: Path, **images: object) -> None:
    (suite / FILE).write_bytes(ImageLock.model_validate_json(json.dumps(images)).to_bytes())


def dockerfile(suite: Path, text: str = "FROM scratch\n", name: str = "Dockerfile") -> str:
    (suite / "one/environment").mkdir(exist_ok=True)
    (suite / "one/environment" / name).write_text(text)
    digest = load_suite(suite, locked=False).tasks[0].bundles.build
    assert digest is not None
    return digest


def test_a_locked_reference_is_what_runs_and_what_is_digested(suite: Path) -> None:
    environment(suite, "image: python:3.12")
    assert load_suite(suite).tasks[0].task.environment.image == "python:3.12"
    before = load_suite(suite).digest
    lock(suite, images={"python:3.12": PINNED})
    task = load_suite(suite).tasks[0]
    assert task.task.environment.image == PINNED
    assert json.loads(task.bundles.graders.read("task.json"))["environment"]["image"] == PINNED
    assert load_task(suite / "one").digest == task.digest
    assert load_suite(suite).digest != before
    assert load_suite(suite, locked=False).digest == before


def test_an_image_that_its_author_pinned_needs_no_lock(suite: Path) -> None:
    environment(suite, f"image: {PINNED}")
    alone = load_suite(suite)
    lock(suite)
    assert load_suite(suite).digest == alone.digest


def test_a_reference_that_is_not_locked_is_told_with_its_place_and_the_command(suite: Path) -> None:
    environment(suite, "image: python:3.13")
    lock(suite, images={"python:3.12": PINNED})
    assert problems(lambda: load_suite(suite)) == [
        "small/one/task.yaml:4:10: environment.image: images.lock.json has no image of 'python:3.13'; run: orchestrate images lock small"
    ]


def test_a_build_folder_has_the_image_that_was_built_of_it(suite: Path) -> None:
    environment(suite, "build: environment/")
    folder = dockerfile(suite)
    lock(suite, builds={"one": LockedBuild(folder=folder, image=ID).model_dump()})
    task = load_suite(suite).tasks[0].task
    assert (task.environment.image, task.environment.build) == (ID, "environment/")
    dockerfile(suite, "FROM scratch\nCOPY a /\n")
    [found] = problems(lambda: load_suite(suite))
    changed = "environment.build: 'environment/' was changed after its image was locked in images.lock.json"
    assert found == f"small/one/task.yaml:4:10: {changed}; run: orchestrate images lock small"
    assert problems(lambda: load_task(suite / "one")) == problems(lambda: load_suite(suite))


def test_a_build_folder_that_was_never_locked_is_told(suite: Path) -> None:
    environment(suite, "build: environment/")
    dockerfile(suite, name="Containerfile")
    lock(suite)
    [found] = problems(lambda: load_suite(suite))
    assert (
        "environment.build: images.lock.json has no image of this folder; run: orchestrate images lock small" in found
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "while parsing"),
        ('{"images": {"python:3.12": "python:3.12"}}', "must be NAME@sha256:… or an image id"),
        ('{"builds": {"one": {"folder": "sha256:1", "image": "x"}}}', "must be sha256: and 64 hex digits"),
        ('{"images": {"a": "--privileged@sha256:' + "1" * 64 + '"}}', "must be NAME@sha256:…"),
        ('{"schema_version": 2}', "schema_version"),
        ('{"image": {}}', "did you mean 'images'?"),
    ],
)
def test_a_lock_that_is_none_is_told(suite: Path, text: str, words: str) -> None:
    (suite / FILE).write_text(text)
    found = problems(lambda: load_suite(suite))
    assert all(each.startswith("small/images.lock.json") for each in found)
    assert words in "\n".join(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "image: x\n  build: environment/",
            "environment.build: give one of environment.image and environment.build, not both",
        ),
        ("image: --privileged", "environment.image: must be a container image"),
        ("image: a b", "environment.image: must be a container image"),
        ("image: python@sha256:12", "environment.image: 'python@sha256:12' has a digest that is none"),
        ("workspace: {image_path: /x}", "environment.workspace.image_path: there is no image to take it from"),
        ("image: x\n  workspace: {image_path: /}", "environment.workspace.image_path: '/' must be the plain path"),
        (
            "image: x\n  workspace: {image_path: /a/../b}",
            "environment.workspace.image_path: '/a/../b' must be the plain",
        ),
        ("build: environment/", "environment.build: there is no Dockerfile or Containerfile in small/one/environment/"),
    ],
)
def test_images_that_cannot_be_are_told(suite: Path, text: str, words: str) -> None:
    environment(suite, text)
    if "build" in text:
        (suite / "one/environment").mkdir()
        (suite / "one/environment/Makefile").write_text("")
    assert words in "\n".join(problems(lambda: load_suite(suite)))


def test_equal_locks_have_equal_bytes() -> None:
    one = ImageLock(images={"b": PINNED, "a": PINNED})
    two = ImageLock(images={"a": PINNED, "b": PINNED})
    assert one.to_bytes() == two.to_bytes()
    assert ImageLock.model_validate_json(one.to_bytes()) == one


@pytest.mark.parametrize(
    ("image", "pinned"),
    [
        (PINNED, True),
        (ID, True),
        ("python", False),
        ("a@sha256:1", False),
        (f"{PINNED}0", False),
        (f"{PINNED}\n", False),
    ],
)
def test_only_a_digest_pins(image: str, pinned: bool) -> None:
    assert is_pinned(image) is pinned
