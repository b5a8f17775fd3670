"""Bundles in the store, and as verified folders on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.keys import Audience
from orchestrator.spec.bundle import Bundle, Reader


async def publish(store: ObjectStore, audience: Audience, bundle: Bundle) -> str:
    """Put a bundle into the store under its tree digest, unless it is there, and return that digest.

    Raises StoreError.
    """
    key = keys.bundle(audience, bundle.digest)
    if await store.exists(key):
        return bundle.digest
    try:
        await store.put_blob(key, await asyncio.to_thread(bundle.to_tar))
    except StoreError as error:
        # Somebody else wrote the same bytes in the meantime.
        if error.cause != "store_exists":
            raise
    return bundle.digest


class BundleCache:
    """BundleSource over a store: each bundle is fetched once per machine and shared by all processes that name the same
    folder.

    A folder appears under its final name only when it is whole, so a process that is killed leaves nothing half. Files
    keep the modes of the bundle, for callers copy them into sandboxes; every process verifies a folder's digest when it
    first meets it, and fetches it anew when somebody changed it.
    """

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._verified: set[Path] = set()
        self._locks: dict[Path, asyncio.Lock] = {}

    async def fetch(self, audience: Audience, digest: str) -> Path:
        """Return the folder of a bundle, verified against its digest; it belongs to the cache. Raises StoreError."""
        target = self._folder / audience / digest.removeprefix("sha256:")
        async with self._locks.setdefault(target, asyncio.Lock()):
            if target in self._verified and target.is_dir():
                return target
            if not await asyncio.to_thread(_holds, target, digest):
                data = await self._store.get(keys.bundle(audience, digest))
                await asyncio.to_thread(_install, data, digest, target)
            self._verified.add(target)
            return target


def _holds(folder: Path, digest: str) -> bool:
    """Return whether a folder is that bundle, byte for byte."""
    if not folder.is_dir():
        return False
    return read_back(folder).digest == digest


def read_back(folder: Path) -> Bundle:
    """Return an unpacked bundle as it stands on the disk.

    What no bundle can hold is left out, so that digests differ.
    """
    return Bundle.of(Reader(everything=True).tree(folder))


def _install(data: bytes, digest: str, target: Path) -> None:
    try:
        bundle = Bundle.from_tar(data)
    except ValueError as error:
        msg = f"bundle {digest} in the store cannot be unpacked: {error}; publish it again into a new store"
        raise StoreError(msg, cause="bundle_unreadable") from error
    if bundle.digest != digest:
        msg = f"bundle {digest} in the store has the digest {bundle.digest}: its bytes were changed; use a new store"
        raise StoreError(msg, cause="bundle_digest")
    try:
        _place(bundle, digest, target)
    except OSError as error:
        msg = f"bundle {digest} could not be unpacked to {target}: {error.strerror}; free space or name another cache folder"
        raise StoreError(msg, cause="bundle_cache") from error


def _place(bundle: Bundle, digest: str, target: Path) -> None:
    """Unpack beside the target and rename.

    A folder there that is not the bundle goes first; one process at a time may do so.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as temporary:
        fresh = Path(temporary) / "fresh"
        bundle.write(fresh)
        with _locked(target.parent / ".lock"):
            if _holds(target, digest):
                return
            if target.exists():
                target.rename(Path(temporary) / "spoilt")
            fresh.rename(target)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
