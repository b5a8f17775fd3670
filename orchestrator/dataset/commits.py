"""Which parts make up the dataset: a chain of create-only commits, folded into a snapshot.

A commit names the parts that it adds and removes. Its number is one more than that of the snapshot it was made from, and
its key is create-only, so of two writers who read the same snapshot one wins; the other reads again and makes its change
anew. What was written before a commit is not in the dataset until the commit exists.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from orchestrator.dataset.rows import read_many
from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.base import Record

CHECKPOINT_EVERY = 100
"""Commits between checkpoints; as many as share a prefix of their keys."""
MOST_TRIES = 1000
"""Lost races after which a writer gives up. Each one means that somebody else has committed."""


class Part(Record):
    """One Parquet file of one table."""

    key: str
    """Store key."""
    table: str
    """Name of the table."""
    suite: str
    """Suite of all its rows."""
    month: str
    """Month of all its rows, ``YYYY-MM``."""
    rows: int = Field(ge=1)
    """Number of rows."""
    size: int = Field(ge=1)
    """Bytes."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the bytes, in hex; also in the key."""
    schema_version: int = Field(ge=1)
    """Version of the table."""
    schema_digest: str
    """Digest of the table's columns, types and words."""
    runs: tuple[str, ...]
    """Runs that have rows in it, sorted."""


class RunEntry(Record):
    """What the dataset knows of a run."""

    fingerprint: str
    """Digest of all its rows, as they were when they were added."""
    records: int = Field(ge=0)
    """Outcomes and verdicts that the rows were made from. Records are only ever added, so more means later."""


class Commit(Record):
    """One change of the dataset."""

    schema_version: Literal[1] = 1
    number: int = Field(ge=1)
    """From 1, without gaps."""
    id: str
    """Unique name of this attempt: who finds the key taken sees whether it was by itself."""
    type: Literal["run", "compaction"]
    """``run``: rows of a run came or changed. ``compaction``: the same rows in fewer parts."""
    created_at: datetime
    """When, UTC."""
    added: tuple[Part, ...] = ()
    """Parts that are new."""
    removed: tuple[str, ...] = ()
    """Keys of parts that no longer count."""
    runs: dict[str, RunEntry] = Field(default_factory=dict)
    """Runs whose rows came or changed."""


class Checkpoint(Record):
    """The fold of all commits up to one."""

    schema_version: Literal[1] = 1
    number: int = Field(ge=1)
    """The last commit that is in it."""
    parts: tuple[Part, ...]
    """All parts, sorted by key."""
    runs: dict[str, RunEntry]
    """All runs."""


@dataclass(frozen=True)
class Snapshot:
    """The dataset after some commit; number 0 is the empty one."""

    number: int = 0
    parts: Mapping[str, Part] = field(default_factory=dict)
    """By key."""
    runs: Mapping[str, RunEntry] = field(default_factory=dict)
    """By run id."""

    def of_table(self, table: str) -> list[Part]:
        """Return the parts of a table, sorted by key."""
        return [part for key, part in sorted(self.parts.items()) if part.table == table]

    def with_run(self, run: str) -> list[Part]:
        """Return the parts that hold rows of a run, sorted by key."""
        return [part for _, part in sorted(self.parts.items()) if run in part.runs]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a writer wants to commit; its new parts are in the store already."""

    type: Literal["run", "compaction"]
    added: Sequence[Part] = ()
    removed: Sequence[str] = ()
    runs: Mapping[str, RunEntry] = field(default_factory=dict)
    again: Callable[[], Awaitable[None]] | None = None
    """Puts the new parts into the store once more, when gc may have deleted one that was there before the commit named it."""


def fold(snapshot: Snapshot, commit: Commit) -> Snapshot:
    """Return the snapshot after a commit. Raises StoreError when the commit does not fit."""
    where = f"commit {commit.number} of the dataset"
    if commit.number != snapshot.number + 1:
        raise _broken(f"{where} cannot follow commit {snapshot.number}")
    parts = dict(snapshot.parts)
    for key in commit.removed:
        if parts.pop(key, None) is None:
            raise _broken(f"{where} removes {key}, which is not in it")
    for part in commit.added:
        if part.key in parts:
            raise _broken(f"{where} adds {part.key}, which is in it already")
        parts[part.key] = part
    return Snapshot(commit.number, parts, {**snapshot.runs, **commit.runs})


async def load_snapshot(store: ObjectStore) -> Snapshot:
    """Read the dataset as it is now: the last checkpoint and the commits after it. Raises StoreError when one is missing."""
    checkpoints = [keys.dataset_number(key) for key in await store.list(keys.DATASET_CHECKPOINTS)]
    snapshot = await _read_checkpoint(store, max(checkpoints)) if checkpoints else Snapshot()
    for hundred in itertools.count((snapshot.number + 1) // CHECKPOINT_EVERY):
        listed = [keys.dataset_number(key) for key in await store.list(keys.dataset_commits(hundred))]
        # A listing may miss a commit that was made while it ran and still show a later one, so all up to the last are read.
        numbers = range(snapshot.number + 1, max(listed, default=0) + 1)
        for commit in await read_many(lambda number: _read_commit(store, number), numbers):
            snapshot = fold(snapshot, commit)
        if (snapshot.number + 1) // CHECKPOINT_EVERY == hundred:
            break
    return snapshot


Disturbed = Callable[[], Awaitable[bool]]
"""Says after a commit whether gc may have deleted, since before, what no commit named."""


async def append(
    store: ObjectStore, propose: Callable[[Snapshot], Awaitable[Change | None]], disturbed: Disturbed | None = None
) -> Commit | None:
    """Commit a change, made anew from the snapshot whenever another writer was faster. None: there is nothing to change.

    With ``disturbed``, parts that a gc may have deleted before the commit named them are put back.

    Raises StoreError. When the store fails during the commit, it may have been made all the same: do it all again, and a
    change that is there already is proposed as None.
    """
    for _ in range(MOST_TRIES):
        snapshot = await load_snapshot(store)
        change = await propose(snapshot)
        if change is None:
            return None
        commit = Commit(
            number=snapshot.number + 1,
            id=uuid.uuid4().hex,
            type=change.type,
            created_at=datetime.now(UTC),
            added=tuple(sorted(change.added, key=lambda part: part.key)),
            removed=tuple(sorted(change.removed)),
            runs=dict(sorted(change.runs.items())),
        )
        after = fold(snapshot, commit)
        if await store.create(keys.dataset_commit(commit.number), commit.to_bytes()) or await _is_ours(store, commit):
            await _checkpoint(store, after)
            if disturbed is not None and change.again is not None and await disturbed():
                await change.again()
            return commit
    msg = f"{MOST_TRIES} other writers were faster; the dataset is as they left it, try again when they have ended"
    raise StoreError(msg, cause="dataset_busy")


async def _is_ours(store: ObjectStore, commit: Commit) -> bool:
    """Return whether a key that was taken was taken by an earlier, unanswered try of this very commit."""
    return (await _read_commit(store, commit.number)).id == commit.id


async def _checkpoint(store: ObjectStore, snapshot: Snapshot) -> None:
    """Write a checkpoint when one is due. One that a dead writer left out costs later readers some more reading."""
    if snapshot.number % CHECKPOINT_EVERY == 0:
        parts = tuple(part for _, part in sorted(snapshot.parts.items()))
        record = Checkpoint(number=snapshot.number, parts=parts, runs=dict(sorted(snapshot.runs.items())))
        await store.create(keys.dataset_checkpoint(snapshot.number), record.to_bytes())


async def _read_checkpoint(store: ObjectStore, number: int) -> Snapshot:
    key = keys.dataset_checkpoint(number)
    found = Checkpoint.from_bytes(await store.get(key), key)
    return Snapshot(found.number, {part.key: part for part in found.parts}, found.runs)


async def _read_commit(store: ObjectStore, number: int) -> Commit:
    key = keys.dataset_commit(number)
    try:
        return Commit.from_bytes(await store.get(key), key)
    except NotFoundError as error:
        msg = f"{key} is missing although there are later commits; the store was changed by hand or is broken"
        raise _broken(msg) from error


def _broken(message: str) -> StoreError:
    return StoreError(message, cause="dataset_broken")
