"""The frozen workspace as checks see it: the entry list always, the files only when a check needs them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from grader_service.child.assemble import Entry, TooMuchError, assemble, bring, read_entries, shown

TEXT_BYTES = 64 << 20


class Unusable(Exception):  # noqa: N818 - not an error of ours: the agent left something that the check cannot use
    """The check fails, with this sentence as its evidence."""


class Broken(Exception):  # noqa: N818 - the name says whose mistake it is not
    """The check itself is wrong, whatever the agent did."""


@dataclass
class Workspace:
    """Folders of the limited child."""

    state: str
    """Folder with ``entries.jsonl`` and ``changes.tar``."""
    pristine: str
    """The workspace as the agent got it."""
    hidden: str
    """Files under ``hidden/`` of the task."""
    root: str
    """Where the frozen workspace is put together."""
    limit_bytes: int
    _laid: bool = field(default=False, repr=False)
    _refused: str = field(default="", repr=False)

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Entries by path."""
        return read_entries(f"{self.state}/entries.jsonl")

    @cached_property
    def differing(self) -> list[Entry]:
        """What was changed, added or removed. New folders count through what is in them."""
        return [
            e for e in self.entries.values() if e.origin != "pristine" and (e.type != "dir" or e.origin == "changed")
        ]

    def lay(self, *, whole: bool = False) -> None:
        """Put the files together, once; pristine ones only if ``whole``, else each when a check asks for it.

        Raises EvidenceError, Unusable.
        """
        if not self._laid:
            os.makedirs(self.root, exist_ok=True)  # noqa: PTH103
            self._laid = True
            try:
                assemble(
                    self.entries,
                    changes=f"{self.state}/changes.tar",
                    pristine=self.pristine,
                    root=self.root,
                    limit_bytes=self.limit_bytes,
                    whole=whole,
                )
            except TooMuchError as error:
                self._refused = str(error)
        if self._refused:
            raise Unusable(self._refused)

    def bring(self, paths: Iterable[str]) -> None:
        """Lay the pristine files among these paths. Raises EvidenceError, Unusable."""
        try:
            for path in paths:
                if (entry := self.entries.get(path)) is not None:
                    bring(entry, pristine=self.pristine, root=self.root)
        except TooMuchError as error:
            raise Unusable(str(error)) from error

    def bring_at(self, path: str) -> None:
        """Lay the file or all of the folder that a path leads to, links followed. Raises EvidenceError, Unusable."""
        inside = os.path.relpath(os.path.realpath(f"{self.root}/{path}"), self.root)
        self.bring(known for known in self.entries if known == inside or known.startswith(f"{inside}/"))

    def find(self, path: str) -> tuple[str, Entry]:
        """Return the file on disk and its entry. Links are followed inside the workspace only. Raises EvidenceError, Unusable."""
        where = os.path.realpath(f"{self.root}/{path}")
        inside = os.path.relpath(where, self.root)
        entry = self.entries.get(inside)
        kept = entry or self.entries.get(path.rstrip("/"))
        if kept is not None and kept.there and kept.finding and kept.sha256 is None:
            msg = f"{shown(path)} could not be kept when the state was frozen: {kept.finding}"
            raise Unusable(msg)
        if inside == ".." or inside.startswith("../"):
            msg = f"{shown(path)} is a link that leaves the workspace"
            raise Unusable(msg)
        if entry is None or not entry.there:
            msg = f"{shown(path)} does not exist"
            raise Unusable(msg)
        self.bring((inside,))
        if entry.type != "file" or not stat.S_ISREG(os.lstat(where).st_mode):
            msg = f"{shown(path)} is a {entry.type}, not a regular file"
            raise Unusable(msg)
        return where, entry

    def anything_at(self, path: str) -> Entry | None:
        """Return what stands at the path itself, if anything does."""
        entry = self.entries.get(path.rstrip("/"))
        return entry if entry is not None and entry.there else None

    def read(self, path: str) -> bytes:
        """Return a file's bytes. Raises Unusable, also when there are more than 64 MiB."""
        where, entry = self.find(path)
        if entry.size > TEXT_BYTES:
            msg = f"{shown(path)} has {entry.size} bytes; at most {TEXT_BYTES} are read"
            raise Unusable(msg)
        with open(where, "rb") as file:  # noqa: PTH123
            return file.read(TEXT_BYTES + 1)

    def text(self, path: str) -> str:
        """Return a file's text. Raises Unusable when it is not UTF-8."""
        try:
            return self.read(path).decode()
        except UnicodeDecodeError as error:
            msg = f"{shown(path)} is not UTF-8 text (byte {error.start})"
            raise Unusable(msg) from error
