"""The ``files`` check: one file of the frozen workspace."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from grader_service.child.documents import load
from grader_service.child.results import Result, line
from grader_service.child.values import PathError, at, parse_path, same
from grader_service.child.workspace import TEXT_BYTES, Broken, Unusable, Workspace

Finding = tuple[str, Any, Any]
"""A sentence, what was expected, what was there."""


def check_files(spec: dict[str, Any], world: Workspace) -> Result:
    """Evaluate a ``files`` check. Every assertion that fails is named; the first gives expected and actual."""
    path = spec["path"]
    if not spec["exists"]:
        there = world.anything_at(path)
        return Result(there is None, f"nothing at {path}", "nothing" if there is None else f"a {there.type}")
    world.lay()
    try:
        world.find(path)
        wrong = [finding for part in _PARTS for finding in part(spec, world)]
    except Unusable as reason:
        return Result(False, f"file {path}", str(reason), (str(reason),))
    if not wrong:
        return Result(True, f"file {path}", "as expected")
    _, expected, actual = wrong[0]
    return Result(False, expected, actual, tuple(sentence for sentence, _, _ in wrong))


def _bytes(spec: dict[str, Any], world: Workspace) -> Iterator[Finding]:
    _, entry = world.find(spec["path"])
    if spec["mode"] is not None and entry.mode & 0o777 != int(spec["mode"], 8):
        yield f"{spec['path']} has another mode", spec["mode"], f"0{entry.mode & 0o777:03o}"
    if spec["sha256"] is not None and entry.sha256 != spec["sha256"]:
        yield f"{spec['path']} has another digest", spec["sha256"], entry.sha256
    if spec["equals"] is not None:
        wanted = spec["equals"].encode()
        if entry.size != len(wanted) or world.read(spec["path"]) != wanted:
            yield f"{spec['path']} has another text", spec["equals"], _peek(world, spec["path"])
    if spec["equals_file"] is not None:
        wanted_digest = _digest(f"{world.hidden}/{spec['equals_file'].removeprefix('hidden/')}")
        if entry.sha256 != wanted_digest:
            yield (
                f"{spec['path']} is not byte for byte the expected file",
                f"sha256 {wanted_digest}",
                f"sha256 {entry.sha256}",
            )


def _patterns(spec: dict[str, Any], world: Workspace) -> Iterator[Finding]:
    for key, wanted in (("regex", True), ("not_regex", False)):
        if spec[key] is None:
            continue
        try:
            pattern = re.compile(spec[key], re.MULTILINE)
        except re.error as error:
            msg = f"{key} is no regular expression: {error}"
            raise Broken(msg) from error
        found = pattern.search(world.text(spec["path"]))
        if wanted and found is None:
            yield f"{spec['path']} does not match", f"a match of {spec[key]}", "no match"
        if not wanted and found is not None:
            yield f"{spec['path']} matches what must not be there", f"no match of {spec[key]}", found.group(0)


def _values(spec: dict[str, Any], world: Workspace) -> Iterator[Finding]:
    if not spec["values"]:
        return
    kind = spec["format"] or spec["path"].rpartition(".")[2].lower()
    document = load(kind, world.text(spec["path"]))
    for value in spec["values"]:
        try:
            path = parse_path(value["at"])
        except PathError as error:
            raise Broken(str(error)) from error
        there, actual = at(document, path)
        if value["absent"]:
            if there:
                yield f"{value['at']} is there", f"nothing at {value['at']}", actual
        elif not there:
            yield f"{value['at']} is missing", value["equals"], f"nothing at {value['at']}"
        elif not same(actual, value["equals"], value["tolerance"]):
            yield f"{value['at']} has another value", value["equals"], actual


_PARTS: tuple[Callable[[dict[str, Any], Workspace], Iterator[Finding]], ...] = (_bytes, _patterns, _values)


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        msg = f"the file named in equals_file cannot be read: {error.strerror}"
        raise Broken(msg) from error
    return digest.hexdigest()


def _peek(world: Workspace, path: str) -> str:
    where, entry = world.find(path)
    with open(where, "rb") as file:  # noqa: PTH123
        head = file.read(min(600, TEXT_BYTES)).decode("utf-8", "replace")
    return head if entry.size <= 600 else f"{line(head)} ({entry.size} bytes)"
