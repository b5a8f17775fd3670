"""One workspace shown in the three ways there are: through an overlay, laid with a list of its digests, laid and noted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_world import Seen, life, spec_of, workspace

from orchestrator.spec.bundle import Bundle, Item
from orchestrator.spec.listing import one_owner, read_listing, workspace_listing

WAYS = ("overlay", "list", "noted")

ITEMS = [
    Item("workspace/README", data=b"read me\n"),
    Item("workspace/a/f", data=b"f of a\n"),
    Item("workspace/a/same", data=b"same in both\n"),
    Item("workspace/a/deep/er/x", data=b"x" * 5000),
    Item("workspace/a-b", data=b"between\n"),
    Item("workspace/c/f", data=b"f of c\n"),
    Item("workspace/c/same", data=b"same in both\n"),
    Item("workspace/c/tool", "file", 0o755, b"#!/bin/sh\necho tool\n"),
    Item("workspace/c/zero"),
    Item("workspace/hollow", "dir", 0o755),
    Item("workspace/link", "symlink", 0o777, b"a/f"),
    Item("workspace/ü/ö", data="ö\n".encode()),
]


@dataclass
class Given:
    """An unpacked bundle and its lists."""

    folder: Path
    shown: Path
    """The list of a folder that can be shown itself."""
    laid: Path
    """The list of one that cannot."""

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def fields(self, way: str) -> dict[str, Any]:
        """Return the part of a specification that lays the workspace in one of the ways."""
        listing = {"overlay": self.shown, "list": self.laid, "noted": None}[way]
        return {"inputs": (workspace(self.workspace),), "pristine": self.workspace, "listing": listing}

    def run(self, way: str, *command: str, **fields: Any) -> Seen:
        fields = {"requires": ("python3",), **self.fields(way), **fields}
        return asyncio.run(life(spec_of(*command, **fields)))


def given_bundle(folder: Path, items: list[Item] | None = None) -> Given:
    """Unpack a bundle below a new folder."""
    folder.mkdir(parents=True)
    given = Given(folder / "bundle", folder / "shown", folder / "laid")
    Bundle.of(items or ITEMS).write(given.folder)
    listed = read_listing(given.folder)
    given.shown.write_bytes(workspace_listing(listed, one_owner(given.folder, listed)))
    given.laid.write_bytes(workspace_listing(listed, None))
    return given
