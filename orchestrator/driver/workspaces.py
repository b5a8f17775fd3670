"""Workspaces that are in images: taken out once for each image and path, and kept on this machine."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from orchestrator.driver.trees import TREE, keep, kept, tree_items
from orchestrator.errors import InfrastructureError, Problem, SandboxError, SpecError, nearest
from orchestrator.interfaces import ImageEngine
from orchestrator.spec.bundle import Bundle, Item, with_folder
from orchestrator.spec.checks import PathsUnchanged
from orchestrator.spec.files import display
from orchestrator.spec.globs import matches
from orchestrator.spec.image_tree import extract
from orchestrator.spec.loaded import LoadedTask
from orchestrator.spec.room import NoRoomError, Room
from orchestrator.spec.task import ImageWorkspace

_PREFIX = "workspace/"
_MOST_TOLD = 20


async def lay_workspaces(tasks: Sequence[LoadedTask], engine: ImageEngine, cache: Path) -> tuple[LoadedTask, ...]:
    """Return the tasks with the workspaces of their images in their sandbox bundles; the others as they are.

    The images have to be on this machine. Raises SpecError with everything in them that no bundle can hold, SandboxError, and
    InfrastructureError when there is no room.
    """
    laid: list[LoadedTask] = []
    problems: list[Problem] = []
    for task in tasks:
        source = task.task.environment.workspace
        if isinstance(source, ImageWorkspace):
            try:
                laid.append(await _with_workspace(task, source.image_path, engine, cache))
            except SpecError as error:
                problems += error.problems
        else:
            laid.append(task)
    if problems:
        raise SpecError(problems)
    return tuple(laid)


async def _with_workspace(task: LoadedTask, path: str, engine: ImageEngine, cache: Path) -> LoadedTask:
    image = task.task.environment.image
    present = None if image is None else await engine.image(image)
    if present is None:
        raise _problem(task, f"image {image} is not on this machine")
    key = hashlib.sha256(json.dumps([present.id, path]).encode()).hexdigest()
    place = cache / "bundles" / "workspaces" / key  # gc treats it as an unpacked bundle
    try:
        tree = await asyncio.to_thread(kept, place, _PREFIX)
        if tree is None:
            told = await _take_out(engine, present.id, path, place, task.task.environment.resources.disk)
            if told:
                raise _problem(task, *_shortened(told))
            tree = await asyncio.to_thread(tree_items, place / TREE, _PREFIX)
    except NoRoomError as error:
        raise _problem(task, f"{error}; raise environment.resources.disk") from error
    except ValueError as error:
        raise _problem(task, str(error)) from error
    except SandboxError as error:
        if error.cause != "image_path":
            raise
        raise _problem(task, f"there is no {path} in image {image}") from error
    except OSError as error:
        why = f"{error.strerror}; free space or name another cache folder"
        msg = f"the workspace {path} of image {image} could not be kept at {place}: {why}"
        raise InfrastructureError(msg, cause="workspace_cache") from error
    return _with_items(task, tree)


def _with_items(task: LoadedTask, tree: list[Item]) -> LoadedTask:
    bundle = task.bundles.sandbox
    others = [item for item in bundle.items if item.path != "workspace" and not item.path.startswith("workspace/")]
    room = Room(task.task.environment.resources.disk)
    for item in tree:
        room.take(item.size)
    if problem := room.problem():
        raise _problem(task, f"the workspace does not fit: {problem}; raise environment.resources.disk")
    if idle := _idle_patterns(task, tree):
        raise _problem(task, *idle)
    sandbox = Bundle.of(with_folder([*others, *tree], "workspace"))
    return replace(task, bundles=replace(task.bundles, sandbox=sandbox))


def _idle_patterns(task: LoadedTask, tree: list[Item]) -> list[str]:
    """Find patterns of guards that match nothing: they would hold whatever an agent did."""
    paths = [item.path.removeprefix("workspace/") for item in tree if item.type != "dir"]
    return [
        f"invariant {guard.id!r}: {pattern!r} matches no file of this workspace{nearest(pattern, paths)}"
        for guard in task.task.invariants
        if isinstance(guard, PathsUnchanged)
        for pattern in guard.paths
        if pattern != "**" and not any(matches(pattern, path) for path in paths)
    ]


def _problem(task: LoadedTask, *messages: str) -> SpecError:
    file, field = display(task.folder / "task.yaml"), "environment.workspace.image_path"
    return SpecError([Problem(file, field=field, message=message) for message in messages])


def _shortened(told: list[str]) -> list[str]:
    more = len(told) - _MOST_TOLD
    kept = [f"{line}; no bundle can hold it: change or remove it in the image" for line in told[:_MOST_TOLD]]
    return [*kept, f"and {more:,} more paths like these"] if more > 0 else kept


async def _take_out(engine: ImageEngine, image: str, path: str, place: Path, disk: int) -> list[str]:
    """Copy a folder of an image to its place, all of it or nothing, and return what no bundle can hold of it."""
    await asyncio.to_thread(place.parent.mkdir, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-") as temporary:
        fresh = Path(temporary) / "fresh"
        await asyncio.to_thread(fresh.mkdir)
        container = await engine.create(image)
        try:
            async with engine.archive(container, path) as pieces:
                told = await _extract(pieces, path, fresh / TREE, disk)
        finally:
            await asyncio.shield(engine.remove(container))
        if not told:
            await asyncio.to_thread(keep, fresh, place, _PREFIX)
    return told


async def _extract(pieces: AsyncIterator[bytes], path: str, folder: Path, disk: int) -> list[str]:
    """Write the pieces of a tar while they come. What the engine says of a stream that ended early comes before what is wrong with it."""
    stream = _Stream(pieces, asyncio.get_running_loop())
    try:
        told = await asyncio.to_thread(extract, stream, path, folder, disk)
    except NoRoomError:
        raise  # the rest may be endless
    except ValueError:
        await stream.rest()
        raise
    await stream.rest()
    return told


class _Stream(io.RawIOBase, IO[bytes]):
    """Pieces that an event loop gets, as a file that another thread reads."""

    def __init__(self, pieces: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._pieces = pieces
        self._loop = loop
        self._left = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, fewer at the end."""
        parts, wanted = [self._left], size - len(self._left)
        while wanted > 0 and (piece := self._next()):
            parts.append(piece)
            wanted -= len(piece)
        data = b"".join(parts)
        self._left = data[size:]
        return data[:size]

    def _next(self) -> bytes:
        return asyncio.run_coroutine_threadsafe(anext(self._pieces, b""), self._loop).result()

    async def rest(self) -> None:
        """Take what is left: the end of the stream is where an engine says that it failed. Raises SandboxError."""
        async for _ in self._pieces:
            pass
