"""Rows of one run that the dataset has, as they are now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.dataset import parts as part_io
from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import Part, load_snapshot
from orchestrator.dataset.files import PartFiles
from orchestrator.dataset.rows import RunData
from orchestrator.interfaces import ObjectStore


async def kept_rows(
    store: ObjectStore, cache: Path, data: RunData, table: str, *, since: int = 1
) -> list[dict[str, Any]] | None:
    """Return the rows of a run in a table; None when the dataset has none that were made of the records that there are now.

    ``cache``: folder for parts that had to be fetched. ``since``: version of the table below which parts do not tell enough. Raises
    StoreError.
    """
    snapshot = await load_snapshot(store)
    run = data.manifest.run
    entry = snapshot.runs.get(run)
    parts = [part for part in snapshot.with_run(run) if part.table == TABLES[table].name]
    if not parts or entry is None or entry.records != sum(len(row.launches) + len(row.verdicts) for row in data.rows):
        return None
    if any(part.schema_version < since for part in parts):
        return None
    paths = await PartFiles(store, cache).paths(parts)
    return await asyncio.to_thread(_decoded, list(zip(parts, paths, strict=True)), run)


def _decoded(parts: Sequence[tuple[Part, Path]], run: str) -> list[dict[str, Any]]:
    return [row for part, path in parts for row in part_io.only_run(part_io.decode(part, path), run).to_pylist()]
