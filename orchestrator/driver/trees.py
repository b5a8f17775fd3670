"""Folders of files that were made once on this machine and are kept, each with a proof of what it held when it was made."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from orchestrator.spec.bundle import Bundle, Item, Reader

TREE = "tree"
"""Folder below a place that holds the files."""
_PROOF = "proof.json"


def tree_items(tree: Path, prefix: str = "") -> list[Item]:
    """Return everything below a folder that this program made, ``prefix`` before each path. Raises OSError when no bundle can hold it."""
    reader = Reader(everything=True)
    items = reader.tree(tree, prefix)
    if reader.problems:
        raise OSError(0, f"it was changed: {reader.problems[0]}")
    return items


def kept(place: Path, prefix: str = "") -> list[Item] | None:
    """Return what was kept at a place, if it is whole and nobody changed it."""
    try:
        proof = json.loads((place / _PROOF).read_bytes())
        items = tree_items(place / TREE, prefix)
    except (OSError, ValueError):
        return None
    if proof != {"digest": Bundle.of(items).digest}:
        return None
    os.utime(place)  # gc removes what was not used for long
    return items


def keep(fresh: Path, place: Path, prefix: str = "") -> list[Item]:
    """Move a folder with a ``TREE`` to its place, all of it or nothing, and return its items there. Raises OSError and ValueError."""
    digest = Bundle.of(tree_items(fresh / TREE, prefix)).digest
    (fresh / _PROOF).write_text(json.dumps({"digest": digest}))
    with _locked(place.parent / ".lock"):
        if place.exists():
            place.rename(fresh.parent / "spoilt")
        fresh.rename(place)
    return tree_items(place / TREE, prefix)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
