"""A store in memory, and the words for what its keys hold."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.records.base import BlobRef


class Memory:
    """ObjectStore in a dictionary."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects

    async def put_blob(self, key: str, data: bytes | AsyncIterator[bytes]) -> BlobRef:
        whole = data if isinstance(data, bytes) else b"".join([piece async for piece in data])
        if not await self.create(key, whole):
            raise StoreError(key, cause="store_exists")
        return BlobRef(key=key, sha256=hashlib.sha256(whole).hexdigest(), size=len(whole))

    async def create(self, key: str, data: bytes) -> bool:
        return self.objects.setdefault(key, data) is data

    async def get(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise NotFoundError(key) from None

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        yield await self.get(key)

    async def exists(self, key: str) -> bool:
        return key in self.objects

    async def list(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))


def kind(key: str) -> str:
    """Return the word for what a key holds."""
    parts = key.split("/")
    if parts[0] in {"leases", "datasets"}:
        return (
            {"_commits": "commit", "_checkpoints": "checkpoint"}.get(parts[1], "part")
            if parts[0] == "datasets"
            else parts[2]
        )
    if parts[0] == "records":
        return parts[-1].removesuffix(".json")
    return "wish" if "wishes" in parts else parts[0].removesuffix("s")
