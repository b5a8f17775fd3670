"""The object store as a folder: one file per key, made whole or not at all.

Every object is written to a temporary file, flushed to the disk, and given its name by link(2), which fails when the
name is taken. So a reader never sees half an object, two writers of one name have exactly one winner, and what a dead
writer leaves is a temporary file that no key reaches.

Objects are deleted by ``gc`` alone, and folders with their last object; a writer that finds its folder gone makes it again.

Not covered: network file systems whose link(2) is not atomic. File systems without hard links fail at the first write.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import Stored
from orchestrator.records.base import BlobRef
from orchestrator.storage.names import check_key, check_prefix

P = ParamSpec("P")
T = TypeVar("T")
_Stored = list[Stored]

_TEMPORARY = ".tmp"
_CHUNK = 1 << 20
_LINK_TRIES = 100
"""How often a folder may be swept away between its making and the first name in it."""
_ADVICE = {
    errno.ENOSPC: ("store_full", "the disk is full: free space there or choose another store"),
    errno.EDQUOT: ("store_full", "the disk quota is used up: free space there or choose another store"),
    errno.EROFS: ("store_read_only", "the file system is read-only: mount it writable or choose another store"),
    errno.EACCES: (
        "store_permission",
        "no permission: change the owner or mode of that folder, or choose another store",
    ),
    errno.EPERM: (
        "store_permission",
        "not permitted: the file system may lack hard links, which the store needs; choose another store",
    ),
    errno.EOPNOTSUPP: ("store_links", "the file system has no hard links, which the store needs: choose another store"),
    errno.EXDEV: ("store_links", "the store folder spans two file systems: use one folder on one file system"),
    errno.ENAMETOOLONG: (
        "store_name",
        "the whole path is too long for this system: choose a store folder with a shorter path",
    ),
    errno.ENOTDIR: (
        "store_name",
        "a part of that path is a file, not a folder: choose another store or move the file away",
    ),
    errno.EEXIST: (
        "store_name",
        "a part of that path is a file, not a folder: choose another store or move the file away",
    ),
    errno.EISDIR: (
        "store_name",
        "there is a folder where an object must be: choose another store or move the folder away",
    ),
}


@contextlib.contextmanager
def _translated(path: Path, doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause, advice = _ADVICE.get(error.errno or 0, ("store_io", "see whether the disk is well, then try again"))
        msg = f"the store could not {doing} {path}: {error.strerror or error}; {advice}"
        raise StoreError(msg, cause=cause) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _linked(source: Path, path: Path) -> bool:
    """Return whether the file got that name too; False: the name was taken."""
    try:
        os.link(source, path)
    except FileExistsError:
        return False
    return True


class FileStore:
    """ObjectStore in a folder. Safe for many threads and processes at once; made folders are private to the user."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._durable: set[Path] = set()
        """Folders whose own names are known to be on the disk."""

    def __repr__(self) -> str:
        return f"FileStore({str(self.root)!r})"

    def __str__(self) -> str:
        return str(self.root)

    async def put_blob(self, key: str, data: bytes | AsyncIterator[bytes]) -> BlobRef:
        """Write a large object; digest and size are computed while writing.

        Raises StoreError; for a key that is taken its cause is ``store_exists``.
        """
        path = self._path(key)
        temporary, file = await _in_thread(self._open_temporary)
        try:
            with file:
                sha256, size = await self._fill(file, temporary, data)
                await _in_thread(self._flush, file, temporary)
            if not await _in_thread(self._name, temporary, path):
                msg = f"there is already an object {key!r} in the store; blobs are never overwritten"
                raise StoreError(msg, cause="store_exists")
        finally:
            temporary.unlink(missing_ok=True)
        return BlobRef(key=key, sha256=sha256, size=size)

    async def create(self, key: str, data: bytes) -> bool:
        """Create a marker. True: ours and durable. False: the key was taken, by a marker that is durable too."""
        return await _in_thread(self._create, self._path(key), data)

    async def get(self, key: str) -> bytes:
        """Return a whole object. Raises NotFoundError, StoreError."""
        return await _in_thread(self._read, key)

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """Yield an object's bytes in chunks of at most 1 MiB. Raises NotFoundError, StoreError."""
        path = self._path(key)
        file = await _in_thread(self._open, key, path)
        with file:
            while True:
                with _translated(path, "read"):
                    chunk = await _in_thread(file.read, _CHUNK)
                if not chunk:
                    return
                yield chunk

    async def exists(self, key: str) -> bool:
        """Return whether there is an object under the key."""
        path = self._path(key)
        with _translated(path, "look at"):
            return await _in_thread(path.is_file)

    async def list(self, prefix: str) -> list[str]:
        """Return all keys that begin with the prefix, sorted. Objects being written are not in it."""
        check_prefix(prefix)
        return await _in_thread(_keys, self.root, prefix)

    async def stored(self, prefix: str) -> _Stored:
        """Return all objects whose keys begin with the prefix, with size and age, sorted by key."""
        check_prefix(prefix)
        return await _in_thread(self._stored, prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects and the folders that are empty then; what is not there is no error."""
        await _in_thread(self._delete, [self._path(key) for key in keys])

    async def remove_unfinished(self, min_age_s: float, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove temporary files of dead writers that are at least so old; return their number and bytes."""
        return await _in_thread(self._remove_unfinished, min_age_s, dry_run)

    def path_of(self, key: str) -> Path:
        """Return the file of a key, whether it is there or not. Raises StoreError for what cannot be a key."""
        return self._path(key)

    def _path(self, key: str) -> Path:
        check_key(key)
        return self.root / key

    def _open_temporary(self) -> tuple[Path, BinaryIO]:
        folder = self.root / _TEMPORARY
        path = folder / uuid.uuid4().hex
        with _translated(folder, "write in"):
            self._make(folder)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        return path, os.fdopen(descriptor, "wb", buffering=0)

    async def _fill(self, file: BinaryIO, path: Path, data: bytes | AsyncIterator[bytes]) -> tuple[str, int]:
        sha256, size = hashlib.sha256(), 0
        async for block in _blocks(data):
            sha256.update(block)
            size += len(block)
            await _in_thread(self._write, file, path, block)
        return sha256.hexdigest(), size

    @staticmethod
    def _write(file: BinaryIO, path: Path, block: bytes) -> None:
        view = memoryview(block)
        with _translated(path, "write"):
            while view:
                view = view[file.write(view) :]

    @staticmethod
    def _flush(file: BinaryIO, path: Path) -> None:
        with _translated(path, "flush"):
            os.fsync(file.fileno())

    def _create(self, path: Path, data: bytes) -> bool:
        with _translated(path, "look at"):
            taken = path.is_file()
        if taken:
            self._settle(path)
            return False
        temporary, file = self._open_temporary()
        try:
            with file:
                self._write(file, temporary, data)
                self._flush(file, temporary)
            return self._name(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _name(self, temporary: Path, path: Path) -> bool:
        with _translated(path, "write"):
            won = self._link(temporary, path)
            if not won and not path.is_file():
                raise IsADirectoryError(errno.EISDIR, "a folder has that name")
        self._settle(path)
        return won

    def _link(self, temporary: Path, path: Path) -> bool:
        """Give the file its name, unless that is taken. Its folder may be swept away as empty at any moment."""
        for _ in range(_LINK_TRIES):
            with contextlib.suppress(FileNotFoundError):
                self._make(path.parent)
                return _linked(temporary, path)
            self._durable -= {path.parent, *path.parent.parents}
        self._make(path.parent)
        return _linked(temporary, path)

    def _settle(self, path: Path) -> None:
        """Make a name durable, also one that another writer has just linked: who reads it may act on it."""
        with _translated(path.parent, "flush"):
            self._make(path.parent)
            _sync_folder(path.parent)

    def _make(self, folder: Path) -> None:
        """Make a folder and its parents, and flush each once: another process may have made it a moment ago."""
        if folder in self._durable:
            return
        missing = [parent for parent in (folder, *folder.parents) if not parent.is_dir()]
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
        inside = [each for each in (folder, *folder.parents) if each.is_relative_to(self.root)]
        for each in {*missing, *inside}:
            _sync_folder(each.parent)
        self._durable.add(folder)

    def _stored(self, prefix: str) -> _Stored:
        found: _Stored = []
        now = time.time()
        for key in _keys(self.root, prefix):
            with _translated(self.root / key, "look at"), contextlib.suppress(FileNotFoundError):
                seen = (self.root / key).stat()
                found.append(Stored(key=key, size=seen.st_size, age_s=now - seen.st_mtime))
        return found

    def _delete(self, paths: Sequence[Path]) -> None:
        folders = set()
        for path in paths:
            with _translated(path, "delete"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with _translated(folder, "flush"), contextlib.suppress(FileNotFoundError):
                self._prune(folder)

    def _prune(self, folder: Path) -> None:
        """Remove a folder while it is empty, and those around it; the store's own top folders stay."""
        while len(folder.relative_to(self.root).parts) > 1:
            try:
                folder.rmdir()
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                break
            self._durable.discard(folder)
            folder = folder.parent
        _sync_folder(folder)

    def _remove_unfinished(self, min_age_s: float, dry_run: bool) -> tuple[int, int]:
        now, count, size = time.time(), 0, 0
        folder = self.root / _TEMPORARY
        with _translated(folder, "clear"), contextlib.suppress(FileNotFoundError):
            for path in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):  # its writer has just ended
                    seen = path.stat()
                    if now - seen.st_mtime >= min_age_s:
                        count, size = count + 1, size + seen.st_size
                        if not dry_run:
                            path.unlink()
        return count, size

    def _open(self, key: str, path: Path) -> BinaryIO:
        try:
            with _translated(path, "read"):
                return path.open("rb", buffering=0)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError | IsADirectoryError | NotADirectoryError):
                raise NotFoundError(key) from error
            raise

    def _read(self, key: str) -> bytes:
        path = self._path(key)
        with self._open(key, path) as file, _translated(path, "read"):
            return file.read()


def _keys(root: Path, prefix: str) -> list[str]:
    """Return the keys below ``root`` that begin with ``prefix``, sorted."""
    keys: list[str] = []
    pending = [prefix.rpartition("/")[0]]
    while pending:
        here = pending.pop()
        for name, is_folder in _names(root / here):
            key = f"{here}/{name}" if here else name
            if not is_folder and key.startswith(prefix):
                keys.append(key)
            elif is_folder and f"{key}/".startswith(prefix[: len(key) + 1]):
                pending.append(key)
    return sorted(keys)


def _names(folder: Path) -> list[tuple[str, bool]]:
    """Return names and whether they are folders; a folder that is not there, or is a file, holds nothing."""
    try:
        with _translated(folder, "list"), os.scandir(folder) as entries:
            return [
                (each.name, each.is_dir(follow_symlinks=False)) for each in entries if not each.name.startswith(".")
            ]
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return []
        raise


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread. A cancelled caller waits for it: nothing may close a file that a thread still uses."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


async def _blocks(data: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data in blocks of about 1 MiB, so that a stream of small pieces costs few hops to a thread."""
    if isinstance(data, bytes):
        for start in range(0, len(data), _CHUNK):
            yield data[start : start + _CHUNK]
        return
    block = bytearray()
    async for piece in data:
        block += piece
        if len(block) >= _CHUNK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)
