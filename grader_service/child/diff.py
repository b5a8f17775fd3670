"""Checks over the entry list alone: ``diff`` (blast radius) and the invariant ``paths_unchanged``."""

from __future__ import annotations

from typing import Any

from grader_service.child.assemble import BY_PRODUCTS, Entry, shown
from grader_service.child.results import Result
from grader_service.child.workspace import Workspace
from orchestrator.spec.globs import matches


def check_diff(spec: dict[str, Any], world: Workspace) -> Result:
    """Evaluate a ``diff`` check."""
    differing = [e for e in world.differing if not _any(spec["ignore"], e.path)]
    outside = [e for e in differing if not _any(spec["allow"], e.path)]
    missing = [p for p in spec["required"] if not any(matches(p, e.path) for e in differing)]
    size = sum(e.size for e in differing if e.there and e.type == "file")
    wrong = [f"{_words(e)}, which is not allowed" for e in outside]
    wrong += [f"nothing differs that matches {pattern}" for pattern in missing]
    if spec["max_files"] is not None and len(differing) > spec["max_files"]:
        wrong.append(f"{len(differing)} paths differ; at most {spec['max_files']} may")
    if spec["max_bytes"] is not None and size > spec["max_bytes"]:
        wrong.append(f"the differing files have {size} bytes; at most {spec['max_bytes']} may be")
    expected = "changes only in " + ", ".join(spec["allow"]) if spec["allow"] else "no changes"
    paths = [shown(e.path) for e in differing]
    actual = (
        ", ".join(paths[:10]) + (f" and {len(paths) - 10} more" if len(paths) > 10 else "") if paths else "no changes"
    )
    if ignored := len(world.differing) - len(differing):
        actual += f" (and {ignored} ignored by-product{'' if ignored == 1 else 's'})"
    return Result(not wrong, expected, actual, tuple(wrong))


def check_paths_unchanged(spec: dict[str, Any], world: Workspace) -> Result:
    """Evaluate the invariant ``paths_unchanged``."""
    touched = [e for e in world.differing if _any(spec["paths"], e.path) and not _any(BY_PRODUCTS, e.path)]
    actual = "unchanged" if not touched else f"{len(touched)} differ"
    return Result(not touched, "unchanged: " + ", ".join(spec["paths"]), actual, tuple(map(_words, touched)))


def _any(patterns: list[str] | tuple[str, ...], path: str) -> bool:
    return any(matches(pattern, path) for pattern in patterns)


def _words(entry: Entry) -> str:
    return f"{shown(entry.path)} was {entry.origin}"
