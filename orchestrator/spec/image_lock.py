"""``images.lock.json``, beside ``suite.yaml``: which image each reference and each Dockerfile of the suite stands for.

``orchestrate images lock`` writes it, people commit it, and every load of the suite reads it. A tag may mean another image tomorrow, and a
Dockerfile may build another one; a number belongs to one image.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from orchestrator.errors import Problem
from orchestrator.spec.base import Name, Spec
from orchestrator.spec.explain import validate
from orchestrator.spec.files import display, read_document
from orchestrator.spec.task import PINNED_IMAGE, Task, is_pinned
from orchestrator.spec.yaml import Document

FILE = "images.lock.json"
FILE_TIME = 315619200
"""Modification time of the files that a build sees and of those that it makes, so that equal folders give equal images: 1980-01-02, which
zip files can hold, and which is nobody's now."""
PinnedImage = Annotated[str, StringConstraints(pattern=PINNED_IMAGE)]


class LockedBuild(Spec):
    """An image that was built from a task's folder."""

    folder: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    """Tree digest of the folder that it was built from."""
    image: PinnedImage
    """Id of the image."""


class ImageLock(Spec):
    """The file."""

    schema_version: Literal[1] = 1
    images: dict[str, PinnedImage] = Field(default_factory=dict)
    """Reference as tasks write it to the image that it stood for."""
    builds: dict[Name, LockedBuild] = Field(default_factory=dict)
    """Task to the image that was built for it."""

    def to_bytes(self) -> bytes:
        """Return the file's bytes; equal locks give equal bytes."""
        return (json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_lock(suite: Path, problems: list[Problem]) -> ImageLock | None:
    """Return the lock of a suite's folder; None when there is none, or, with a problem, when it cannot be used."""
    path = suite / FILE
    if not path.exists():
        return None
    document = read_document(path, problems)
    if document is None:
        return None
    lock, found = validate(ImageLock, document)
    problems += found
    return lock


def pin(task: Task, build: str | None, lock: ImageLock, document: Document, suite: Path) -> tuple[Task, list[Problem]]:
    """Return the task with the image that its reference or its build folder stands for, or what makes the lock stale.

    ``build`` is the digest of the folder that the task's image is built from, as it is now.
    """
    environment = task.environment
    again = f"run: orchestrate images lock {display(suite)}"
    if environment.build is not None:
        entry = lock.builds.get(task.id)
        if entry is None:
            message = f"{FILE} has no image of this folder; {again}"
            return task, [document.problem(("environment", "build"), message)]
        if entry.folder != build:
            message = f"{environment.build!r} was changed after its image was locked in {FILE}; {again}"
            return task, [document.problem(("environment", "build"), message)]
        return with_image(task, entry.image), []
    if environment.image is None or is_pinned(environment.image):
        return task, []
    image = lock.images.get(environment.image)
    if image is None:
        message = f"{FILE} has no image of {environment.image!r}; {again}"
        return task, [document.problem(("environment", "image"), message)]
    return with_image(task, image), []


def with_image(task: Task, image: str) -> Task:
    """Return the task with a pinned image in place of what its author wrote."""
    environment = task.environment.model_copy(update={"image": image})
    return task.model_copy(update={"environment": environment})
