"""Worlds are tried before anything runs: a seed or a statement that the database does not take is a mistake in a file."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from orchestrator import wiring
from orchestrator.errors import Problem, SpecError
from orchestrator.spec.files import display, read_document
from orchestrator.spec.loaded import LoadedTask

_AT_ONCE = 4


async def prove_worlds(tasks: Iterable[LoadedTask]) -> None:
    """Make the database of each task's world once and have every statement compiled.

    Raises SpecError with every mistake at its place, and StoreError when the program that holds worlds cannot be started.
    """
    having = [task for task in tasks if task.task.world is not None]
    if not having:
        return
    places = asyncio.Semaphore(_AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="orchestrate-worlds-") as scratch:
        async with wiring.world_prover(Path(scratch)) as prove:

            async def one(task: LoadedTask) -> list[Problem]:
                async with places:
                    folder = Path(scratch) / task.task.id
                    await asyncio.to_thread(task.bundles.world.write, folder)
                    return [_located(task, found) for found in await prove(folder)]

            problems = [each for found in await asyncio.gather(*(one(task) for task in having)) for each in found]
    if problems:
        raise SpecError(problems)


def _located(task: LoadedTask, found: Mapping[str, Any]) -> Problem:
    file = task.folder / (task.task.world or "") / found["file"]
    path = tuple(found.get("path") or ())
    document = read_document(file, []) if path else None
    if document is not None:
        return document.problem(path, found["message"])
    return Problem(display(file), found.get("line", 0), message=found["message"])
