"""The object store and what is in it: blobs, markers, bundles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from orchestrator.records.base import BlobRef
from orchestrator.records.keys import Audience


class ObjectStore(Protocol):
    """Blobs under unique keys and create-only markers. Nothing is ever overwritten.

    Every method may raise StoreError; reading what is not there raises its subclass NotFoundError.
    """

    async def put_blob(self, key: str, data: bytes | AsyncIterator[bytes]) -> BlobRef:
        """Write a large object under a key that nobody else uses; digest and size are computed while writing."""
        ...

    async def create(self, key: str, data: bytes) -> bool:
        """Create a marker. True: it is ours and durable. False: the key was taken; nothing was changed."""
        ...

    async def get(self, key: str) -> bytes:
        """Return a whole object."""
        ...

    def stream(self, key: str) -> AsyncIterator[bytes]:
        """Yield an object's bytes."""
        ...

    async def exists(self, key: str) -> bool:
        """Return whether there is an object under the key."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """Return all keys that begin with the prefix, sorted. A key that was created before the call is in it."""
        ...


@runtime_checkable
class LocalObjects(Protocol):
    """What a store can do beside, when its objects are files of this machine."""

    def path_of(self, key: str) -> Path:
        """Return where the object of that key is, or would be. Only to be read. Raises StoreError for what cannot be a key."""
        ...


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One object as a listing shows it."""

    key: str
    size: int
    """Bytes."""
    age_s: float
    """Seconds since it was written, by the clock that the store itself goes by."""


class Sweeper(Protocol):
    """The store as ``gc`` sees it, who alone deletes. Every method may raise StoreError."""

    async def stored(self, prefix: str) -> list[Stored]:
        """Return all objects whose keys begin with the prefix, sorted by key."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in any order; one that is not there is no error. On return they are gone for good and for everybody.

        After a StoreError some of them are gone; to try again is harmless.
        """
        ...


class SweepableStore(ObjectStore, Sweeper, Protocol):
    """A store that ``gc`` can work on."""


@runtime_checkable
class UnfinishedFiles(Protocol):
    """What a store can do beside, when killed writers leave files in it that no key reaches."""

    async def remove_unfinished(self, min_age_s: float, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove those that are at least so old, in seconds, and return their number and bytes. Raises StoreError."""
        ...


class BundleSource(Protocol):
    """Bundles as folders on this machine."""

    async def fetch(self, audience: Audience, digest: str) -> Path:
        """Return a read-only folder with the bundle's files, verified against its tree digest. Raises StoreError."""
        ...

    async def listing(self, digest: str) -> Path:
        """Return the file that lists the workspace of a sandbox bundle, for ``SandboxSpec.listing``. Raises StoreError."""
        ...
