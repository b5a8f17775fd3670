"""Parts as files of this machine: where they are, if the store is a folder, else fetched once into a cache."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Sequence
from pathlib import Path

from orchestrator.dataset.commits import Part
from orchestrator.dataset.rows import read_many
from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import LocalObjects, ObjectStore


class PartFiles:
    """Gives files for parts. Fetched ones are named by their digest, so a cache never goes stale and may be removed at any time."""

    def __init__(self, store: ObjectStore, cache: Path) -> None:
        self._store = store
        self._cache = cache

    async def paths(self, parts: Sequence[Part]) -> list[Path]:
        """Return one file for each part, in order. Raises StoreError for a part that is gone or damaged."""
        if isinstance(self._store, LocalObjects):
            return [self._in_place(self._store, part) for part in parts]
        return await read_many(self._fetched, parts)

    async def path(self, part: Part) -> Path:
        """Return the file of one part. Raises StoreError."""
        return (await self.paths([part]))[0]

    @staticmethod
    def _in_place(store: LocalObjects, part: Part) -> Path:
        path = store.path_of(part.key)
        try:
            size = path.stat().st_size
        except OSError as error:
            raise lost(part, f"cannot be read: {error.strerror}") from error
        if size != part.size:
            raise lost(part, f"has {size} bytes instead of {part.size}")
        return path

    async def _fetched(self, part: Part) -> Path:
        path = self._cache / f"{part.sha256}.parquet"
        if path.is_file() and path.stat().st_size == part.size:
            return path
        temporary = self._cache / f"{uuid.uuid4().hex}.tmp"
        try:
            await asyncio.to_thread(self._cache.mkdir, parents=True, exist_ok=True, mode=0o700)
            await self._fetch(part, temporary)
            await asyncio.to_thread(temporary.replace, path)
        except NotFoundError as error:
            raise lost(part, "is not in the store") from error
        except OSError as error:
            msg = f"a part of the dataset cannot be kept in {self._cache}: {error.strerror}; set 'cache' to another folder"
            raise StoreError(msg, cause="cache_unwritable") from error
        finally:
            temporary.unlink(missing_ok=True)
        return path

    async def _fetch(self, part: Part, target: Path) -> None:
        digest = hashlib.sha256()
        with target.open("xb") as file:
            async for block in self._store.stream(part.key):
                digest.update(block)
                await asyncio.to_thread(file.write, block)
        if digest.hexdigest() != part.sha256:
            raise lost(part, "has other bytes than were committed")


def lost(part: Part, what: str) -> StoreError:
    """Return the error for a part that cannot be used, with the way out."""
    runs = ", ".join(part.runs[:3]) + (f" and {len(part.runs) - 3} more" if len(part.runs) > 3 else "")
    msg = (
        f"{part.key} {what}. It holds rows of {runs}. Remove what is left of it and type orchestrate rebuild "
        f"{part.runs[0]}: records of runs are elsewhere and not touched"
    )
    return StoreError(msg, cause="dataset_part")
