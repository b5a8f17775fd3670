"""Merge small parts, so that a table stays a few large files however many runs there are. The rows stay the same.

Whoever finds that it is due does it, by the same kind of commit as any other writer: of several at one time one wins, and
the others find nothing left to do.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.dataset import parts as part_io
from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import Change, Commit, Disturbed, Part, Snapshot, append
from orchestrator.dataset.files import PartFiles
from orchestrator.dataset.parts import Encoded
from orchestrator.interfaces import ObjectStore

PARTS_DUE = 32
"""Small parts of one table, suite and month from which on they are merged."""
PART_ROWS = 4_000_000
"""Rows above which a part is no longer small, and after which a merged one is closed: what is merged must fit in memory."""
PART_BYTES = 128 << 20
"""Size in bytes above which a part is no longer small."""


async def compact(
    store: ObjectStore, cache: Path, due: int = PARTS_DUE, disturbed: Disturbed | None = None
) -> Commit | None:
    """Merge the small parts of every table, suite and month that has at least ``due`` of them. None: there was none.

    Raises StoreError, after which the dataset is as it was before or merged.
    """
    return await append(store, _Compaction(store, PartFiles(store, cache), due).propose, disturbed)


def groups(snapshot: Snapshot, due: int) -> list[list[Part]]:
    """Return the parts to merge: each group becomes one part. Parts of newer versions are left to newer programs."""
    small: defaultdict[tuple[str, str, str], list[Part]] = defaultdict(list)
    for _, part in sorted(snapshot.parts.items()):
        known = part.table in TABLES and part.schema_version <= TABLES[part.table].version
        if known and part.rows < PART_ROWS and part.size < PART_BYTES:
            small[part.table, part.suite, part.month].append(part)
    return [
        group
        for parts in small.values()
        if len(parts) >= due
        for group in _filled(sorted(parts, key=lambda part: (part.runs, part.key)))
        if len(group) > 1
    ]


def _filled(parts: Sequence[Part]) -> list[list[Part]]:
    found: list[list[Part]] = [[]]
    for part in parts:
        if found[-1] and sum(each.rows for each in found[-1]) + part.rows > PART_ROWS:
            found.append([])
        found[-1].append(part)
    return found


@dataclass
class _Compaction:
    store: ObjectStore
    files: PartFiles
    due: int
    merged: dict[tuple[str, ...], Encoded] = field(default_factory=dict)
    """What was merged for a commit that lost its race: most groups are the same the next time."""

    async def propose(self, snapshot: Snapshot) -> Change | None:
        found = groups(snapshot, self.due)
        if not found:
            return None
        merged = [await self._merge(group) for group in found]
        again = functools.partial(part_io.put_all, self.store, merged)
        await again()
        return Change(
            type="compaction",
            added=[encoded.part for encoded in merged],
            removed=[part.key for group in found for part in group],
            again=again,
        )

    async def _merge(self, group: list[Part]) -> Encoded:
        name = tuple(part.key for part in group)
        if name not in self.merged:
            paths = await self.files.paths(group)
            self.merged[name] = await asyncio.to_thread(_merge, group, paths)
        return self.merged[name]


def _merge(group: Sequence[Part], paths: Sequence[Path]) -> Encoded:
    first = group[0]
    rows = part_io.concat([part_io.decode(part, path) for part, path in zip(group, paths, strict=True)])
    return part_io.encode(TABLES[first.table], rows, first.suite, first.month)
