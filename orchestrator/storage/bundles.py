"""Bundles in the store, and as verified folders on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.keys import Audience
from orchestrator.spec.bundle import Bundle
from orchestrator.spec.bundle_tar import tar_of, unpack
from orchestrator.spec.listing import Listed, one_owner, read_listing, tree_digest, workspace_listing

_PIECE_BYTES = 4 << 20


_NEW = ".new-"
"""Beginning of the names of what is being made or removed beside the bundles of a cache."""


async def publish(store: ObjectStore, audience: Audience, bundle: Bundle) -> str:
    """Put a bundle into the store under its tree digest, unless it is there, and return that digest.

    Raises StoreError.
    """
    key = keys.bundle(audience, bundle.digest)
    if await store.exists(key):
        return bundle.digest
    try:
        await store.put_blob(key, _pieces(bundle))
    except StoreError as error:
        # Somebody else wrote the same bytes in the meantime.
        if error.cause != "store_exists":
            raise
    return bundle.digest


async def _pieces(bundle: Bundle) -> AsyncIterator[bytes]:
    """Yield the bundle's tar; files are read by another thread, some MiB at a time."""
    tar = tar_of(bundle)

    def some() -> bytes:
        kept = bytearray()
        for piece in tar:
            kept += piece
            if len(kept) >= _PIECE_BYTES:
                break
        return bytes(kept)

    try:
        while piece := await asyncio.to_thread(some):
            yield piece
    except OSError as error:
        msg = f"a file of bundle {bundle.digest} cannot be read: {error.filename}: {error.strerror}"
        raise StoreError(msg, cause="bundle_unreadable") from error


class BundleCache:
    """BundleSource over a store: each bundle is fetched once per machine and shared by all processes that name the same
    folder.

    A folder appears under its final name only when it is whole, so a process that is killed leaves nothing half. Files
    keep the modes of the bundle; every process verifies a folder's digest when it first meets it, and fetches it anew
    when somebody changed it. Sandboxes may show the files themselves, read-only: nobody writes to them.
    """

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._verified: set[Path] = set()
        self._unlisted: dict[Path, OSError | None] = {}
        self._locks: dict[Path, asyncio.Lock] = {}

    async def fetch(self, audience: Audience, digest: str) -> Path:
        """Return the folder of a bundle, verified against its digest; it belongs to the cache. Raises StoreError."""
        target = self._folder / audience / digest.removeprefix("sha256:")
        async with self._locks.setdefault(target, asyncio.Lock()):
            if _used(target) and target in self._verified:
                return target
            listed = await asyncio.to_thread(_held, target, digest)
            if listed is None:
                listed = await self._install(keys.bundle(audience, digest), digest, target)
            if audience == "sandbox":
                self._unlisted[target] = await asyncio.to_thread(_note_workspace, target, listed)
            self._verified.add(target)
            return target

    async def listing(self, digest: str) -> Path:
        """Return the file that lists the workspace of a sandbox bundle, for ``SandboxSpec.listing``. Raises StoreError."""
        folder = await self.fetch("sandbox", digest)
        file = _listing_of(folder)
        if not await asyncio.to_thread(file.is_file):
            self._verified.discard(folder)
            await self.fetch("sandbox", digest)
        error = self._unlisted.get(folder)
        if error is not None:
            raise _cache_error(digest, file, error) from error
        return file

    async def _install(self, key: str, digest: str, target: Path) -> list[Listed]:
        """Copy the bundle's tar to the disk, unpack it beside the target and rename."""
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=_NEW) as temporary:
                tar, fresh = Path(temporary) / "tar", Path(temporary) / "fresh"
                with tar.open("wb") as file:
                    async for chunk in self._store.stream(key):
                        file.write(chunk)
                listed = await asyncio.to_thread(_unpack, tar, digest, fresh)
                await asyncio.to_thread(_place, fresh, digest, target)
        except OSError as error:
            raise _cache_error(digest, target, error) from error
        return listed


def _cache_error(digest: str, target: Path, error: OSError) -> StoreError:
    msg = (
        f"bundle {digest} could not be unpacked to {target}: {error.strerror}; free space or name another cache folder"
    )
    return StoreError(msg, cause="bundle_cache")


def _used(folder: Path) -> bool:
    """Note on a folder of the cache that it is used now, for ``remove_unused``; False: it is not there."""
    try:
        os.utime(folder)
    except PermissionError:  # of another user, who removes it or not
        return True
    except OSError:
        return False
    return True


def remove_unused(folder: Path, unused_s: float, *, dry: bool) -> tuple[int, int]:
    """Remove bundles below a cache folder that nobody fetched for so long, in seconds; return their number and bytes.

    One that is fetched at this very moment may go too: whoever then finds it gone has a failure of ours and tries again.
    Raises OSError.
    """
    count, size = 0, 0
    for audience in sorted(path for path in folder.glob("*") if path.is_dir()):
        for entry in sorted(path for path in audience.iterdir() if path.is_dir() or path.name.startswith(_NEW)):
            if _unused(entry, unused_s):
                count, size = count + 1, size + tree_bytes(entry)
                if not dry:
                    _remove(entry, unused_s)
    return count, size


def tree_bytes(folder: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; what vanishes meanwhile has none."""
    size = 0
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):
            size += path.lstat().st_size if path.is_file() or path.is_symlink() else 0
    return size


def _unused(folder: Path, unused_s: float) -> bool:
    try:
        return time.time() - folder.stat().st_mtime >= unused_s
    except FileNotFoundError:
        return False


def _remove(entry: Path, unused_s: float) -> None:
    """Take a bundle's name away, so that nobody sees half of it, and then the rest."""
    gone = entry.parent / f"{_NEW}gone-{uuid.uuid4().hex}"
    with _locked(entry.parent / ".lock"):
        if not _unused(entry, unused_s):
            return
        _listing_of(entry).unlink(missing_ok=True)
        entry.rename(gone)
    if gone.is_dir():
        shutil.rmtree(gone)
    else:
        gone.unlink()


def _held(folder: Path, digest: str) -> list[Listed] | None:
    """Return what a folder holds when it is that bundle, byte for byte."""
    if not folder.is_dir():
        return None
    try:
        listed = read_listing(folder)
    except OSError:  # what cannot be read is fetched anew
        return None
    return listed if tree_digest(listed) == digest else None


def _listing_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.workspace.json")


def _note_workspace(folder: Path, listed: list[Listed]) -> OSError | None:
    """Write down what the workspace of a verified bundle holds. Returns why it could not be: who only reads the files does not need it."""
    target = _listing_of(folder)
    try:
        data = workspace_listing(listed, one_owner(folder, listed))
        if target.is_file() and target.read_bytes() == data:
            return None
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)  # as the bundle itself
            file.write(data)
        Path(name).replace(target)
    except OSError as error:
        return error
    return None


def _unpack(tar: Path, digest: str, fresh: Path) -> list[Listed]:
    try:
        with tar.open("rb") as file:
            listed = unpack(file, fresh)
    except ValueError as error:
        msg = f"bundle {digest} in the store cannot be unpacked: {error}; publish it again into a new store"
        raise StoreError(msg, cause="bundle_unreadable") from error
    if (found := tree_digest(listed)) != digest:
        msg = f"bundle {digest} in the store has the digest {found}: its bytes were changed; use a new store"
        raise StoreError(msg, cause="bundle_digest")
    return listed


def _place(fresh: Path, digest: str, target: Path) -> None:
    """Rename a folder to the target.

    A folder there that is not the bundle goes first; one process at a time may do so.
    """
    with _locked(target.parent / ".lock"):
        if _held(target, digest) is not None:
            return
        if target.exists():
            target.rename(fresh.parent / "spoilt")
        fresh.rename(target)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
