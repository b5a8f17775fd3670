"""What an agent left: findings, the entry list of a frozen world, and the final answer."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field

from orchestrator.records.base import BlobRef, Record
from orchestrator.spec.base import canonical_json

EntryType = Literal["file", "dir", "symlink", "fifo", "socket", "char_device", "block_device"]
Origin = Literal["pristine", "changed", "added", "removed"]
EndedAs = Literal["completed", "declined", "asked"]


class Finding(Record):
    """Something odd that was seen: recorded, never an error of ours."""

    type: str = Field(pattern=r"^[a-z0-9_]+$")
    """Short stable word such as ``special_file``, ``too_large``, ``setuid``, ``refused_forks``."""
    detail: str = ""
    """What exactly, in one line; bytes that are no text are escaped."""
    source: Literal["sandbox", "gateway", "freezer", "grader"] = "sandbox"
    """Who saw it."""


class Entry(Record):
    """One line of ``entries.jsonl``: one path of the frozen world, sorted by raw path bytes.

    Paths are relative to the sandbox's root areas: they begin with ``workspace/`` or ``output/``.
    """

    path: str | None = None
    """The path as text; None when it is not UTF-8."""
    path_b64: str | None = None
    """The raw path bytes in base64, when they are not UTF-8."""
    type: EntryType
    """What stands there (for ``removed``: what stood there)."""
    mode: int = 0
    """Permission bits, setuid, setgid and sticky bits included."""
    size: int = 0
    """Bytes of a file, as its inode says."""
    nlink: int = 1
    """Hard links to the file."""
    sha256: str | None = None
    """Digest of a regular file's bytes; None when they were not read, and for everything else."""
    target: str | None = None
    """Target of a symbolic link, undecodable bytes as surrogate escapes written ``\\\\xNN``."""
    origin: Origin
    """How it compares with the pristine bundle."""
    finding: str | None = None
    """Why it was not kept as it was: ``special_file``, ``too_large``, ``unreadable``, ``name_too_long``, ``too_many_names``, …"""


class FrozenState(Record):
    """What a trial leaves: its files, and the database of its world."""

    entries: BlobRef
    """``entries.jsonl``."""
    changes: BlobRef
    """The changed and added entries as a deterministic PAX tar."""
    world: BlobRef | None = None
    """The SQLite database of the task's world, as the gateway closed it; None: the task has none."""

    @property
    def sha256(self) -> str:
        """Digest of the state: over all digests, so that equal worlds have equal states wherever they are stored."""
        parts = [self.entries.sha256, self.changes.sha256, *([] if self.world is None else [self.world.sha256])]
        return hashlib.sha256(canonical_json(parts)).hexdigest()


class FinalAnswer(Record):
    """How the agent said that it ended. Read by a limited child, never by a process with a credential."""

    status: EndedAs
    """The ending."""
    message: str = ""
    """Words for a person, at most 64 KiB."""
    confidence: Literal["low", "medium", "high"] | float | None = None
    """How sure the agent says it is: a word, or 0 to 1."""
    escalation: dict[str, str] = Field(default_factory=dict)
    """Fields for the person who takes over."""
