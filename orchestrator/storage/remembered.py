"""A store that is asked only once for each outcome and verdict: neither changes once it is there.

A driver writes and reads those of its run several times: what is left, rows for the dataset, the report. In a bucket each reading is a
request, and a run has thousands of them. Lists always come from the store, so what is there is never taken from memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator

from orchestrator.interfaces import ObjectStore
from orchestrator.records.base import BlobRef

MOST_BYTES = 64 << 20
_KEPT = ("outcomes/", "grades/")


class RememberingStore:
    """ObjectStore over another one. Keeps at most ``most_bytes`` of markers, those that were used last."""

    def __init__(self, store: ObjectStore, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most = most_bytes
        self._size = 0
        self._known: OrderedDict[str, bytes] = OrderedDict()

    async def put_blob(self, key: str, data: bytes | AsyncIterator[bytes]) -> BlobRef:
        """As the store does."""
        return await self._store.put_blob(key, data)

    async def create(self, key: str, data: bytes) -> bool:
        """As the store does; what is ours is known from then on."""
        made = await self._store.create(key, data)
        if made:
            self._keep(key, data)
        return made

    async def get(self, key: str) -> bytes:
        """Return what was read or written before, else what the store has."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            return found
        data = await self._store.get(key)
        self._keep(key, data)
        return data

    def stream(self, key: str) -> AsyncIterator[bytes]:
        """As the store does."""
        return self._store.stream(key)

    async def exists(self, key: str) -> bool:
        """As the store does."""
        return await self._store.exists(key)

    async def list(self, prefix: str) -> list[str]:
        """As the store does."""
        return await self._store.list(prefix)

    def _keep(self, key: str, data: bytes) -> None:
        if not key.startswith(_KEPT) or key in self._known:
            return
        self._known[key] = data
        self._size += len(data)
        while self._size > self._most:
            self._size -= len(self._known.popitem(last=False)[1])
