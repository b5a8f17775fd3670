"""Laying writable inputs into the sandbox's own file system. Standard library only; part of the keeper.

Permissions are normalised (0755 for folders and executable files, 0644 for the rest), so that what an agent starts from does not depend on
how a bundle was unpacked. Digests are noted on the way: the freezer compares with them instead of reading the pristine folder again.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH102, PTH115, PTH116, PTH118, PTH211

from __future__ import annotations

import os
import stat

from orchestrator.sandbox.keeper.small import new_sha256, read_json

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.sandbox.keeper.small import Sha256

    Laid = tuple[str, bool, int, str | None, bytes | None]
    """Kind, executable, size, SHA-256 if read, link target."""

_CHUNK = 1 << 20
_FOLDER: Laid = ("dir", False, 0, None, None)


class Pristine:
    """What a folder held, by raw relative path."""

    def __init__(self, entries: dict[bytes, Laid] | None = None, upper: int | None = None) -> None:
        self.entries = {} if entries is None else entries
        self.upper = upper
        """When the folder itself is seen through an overlay: the open folder that holds what is not as it was."""

    def rows(self) -> Iterator[tuple[bytes, Laid]]:
        """Yield path and content in the order of the raw path bytes."""
        for path in sorted(self.entries):
            yield path, self.entries[path]


class ListedPristine(Pristine):
    """The same from a listing that is read line by line, by a freezer that has little memory."""

    def __init__(self, listing: Listing) -> None:
        super().__init__()
        self._listing = listing

    def rows(self) -> Iterator[tuple[bytes, Laid]]:
        """Yield path and content in the order of the raw path bytes. Raises OSError."""
        return self._listing.rows()


class LayError(Exception):
    """An input cannot be laid; the message names the path."""


def lay(source: bytes, target: bytes, owner: tuple[int, int] | None, noted: Pristine | None) -> None:
    """Copy the file or folder ``source`` to ``target``, owned by ``owner``. Raises LayError and OSError.

    ``target`` may exist as a folder; its content is added to. With ``noted``, what was laid is written down relative to ``source``.
    """
    info = os.stat(source)
    if stat.S_ISREG(info.st_mode):
        _file(source, target, info, owner, None)
        return
    if not stat.S_ISDIR(info.st_mode):
        msg = f"{os.fsdecode(source)} is neither a file nor a folder; only those can be laid into a sandbox"
        raise LayError(msg)
    _make_folder(target, owner)
    pending = [b""]
    while pending:
        folder = pending.pop()
        with os.scandir(os.path.join(source, folder)) as found:
            for item in found:
                relative = os.path.join(folder, item.name)
                if item.is_dir(follow_symlinks=False):
                    _make_folder(os.path.join(target, relative), owner)
                    pending.append(relative)
                    entry = _FOLDER
                else:
                    entry = _leaf(item, os.path.join(target, relative), owner, noted is not None)
                if noted is not None:
                    noted.entries[relative] = entry


class Listing:
    """The file that says what the pristine folder holds, opened before anything runs and read when it is needed."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        owner = read_json(os.pread(self._file, 256, 0).partition(b"\n")[0].decode())["owner"]
        self.owner: tuple[int, int] | None = None if owner is None else (owner[0], owner[1])
        """User and group of all that is in the folder, with no modes but 0644 and 0755; None: not so."""

    def entries(self) -> dict[bytes, Laid]:
        """Return what the folder holds. Raises OSError."""
        return dict(self.rows())

    def rows(self) -> Iterator[tuple[bytes, Laid]]:
        """Yield what the folder holds, in the order of the raw path bytes. Raises OSError."""
        with os.fdopen(os.dup(self._file), "rb") as lines:
            lines.seek(0)
            lines.readline()
            for line in lines:
                path, kind, executable, size, digest, target = read_json(os.fsdecode(line))
                yield (
                    os.fsencode(path),
                    (kind, executable, size, digest, None if target is None else os.fsencode(target)),
                )


def read_pristine(folder: bytes) -> Pristine:
    """Read a folder that was not noted while laying; digests are computed where the freezer may need them. Raises OSError."""
    noted = Pristine()
    pending = [b""]
    while pending:
        below = pending.pop()
        with os.scandir(os.path.join(folder, below)) as found:
            for item in found:
                relative = os.path.join(below, item.name)
                if item.is_symlink():
                    noted.entries[relative] = ("symlink", False, 0, None, os.readlink(item.path))
                elif item.is_dir(follow_symlinks=False):
                    noted.entries[relative] = _FOLDER
                    pending.append(relative)
                else:
                    info = item.stat(follow_symlinks=False)
                    noted.entries[relative] = (
                        "file",
                        bool(info.st_mode & 0o100),
                        info.st_size,
                        _digest(item.path),
                        None,
                    )
    return noted


def readable_by_all(path: bytes) -> bool:
    """Return whether every user may read the file, or the folder and everything in it. Raises OSError."""
    mode = os.stat(path).st_mode
    if not stat.S_ISDIR(mode):
        return bool(mode & 0o004)
    if mode & 0o005 != 0o005:
        return False
    pending = [path]
    while pending:
        with os.scandir(pending.pop()) as found:
            for item in found:
                if item.is_symlink():
                    continue
                mode = item.stat(follow_symlinks=False).st_mode
                if mode & 0o004 == 0 or (stat.S_ISDIR(mode) and mode & 0o001 == 0):
                    return False
                if stat.S_ISDIR(mode):
                    pending.append(item.path)
    return True


def _leaf(item: os.DirEntry[bytes], target: bytes, owner: tuple[int, int] | None, note: bool) -> Laid:
    info = item.stat(follow_symlinks=False)
    if stat.S_ISLNK(info.st_mode):
        link = os.readlink(item.path)
        os.symlink(link, target)
        if owner is not None:
            os.chown(target, *owner, follow_symlinks=False)
        return "symlink", False, 0, None, link
    if not stat.S_ISREG(info.st_mode):
        msg = f"{os.fsdecode(item.path)} is a device, pipe or socket; only files, folders and links can be laid into a sandbox"
        raise LayError(msg)
    digest = _file(item.path, target, info, owner, new_sha256() if note else None)
    return "file", bool(info.st_mode & 0o100), info.st_size, digest, None


def _make_folder(path: bytes, owner: tuple[int, int] | None) -> None:
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        return
    if owner is not None:
        os.chown(path, *owner)


def _file(
    source: bytes, target: bytes, info: os.stat_result, owner: tuple[int, int] | None, sha: Sha256 | None
) -> str | None:
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            left = info.st_size
            while left > 0 and (chunk := os.read(reader, min(_CHUNK, left))):
                left -= len(chunk)
                if sha is not None:
                    sha.update(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(writer, view) :]
            if owner is not None:
                os.fchown(writer, *owner)
            os.fchmod(writer, 0o755 if info.st_mode & 0o100 else 0o644)
        finally:
            os.close(writer)
    finally:
        os.close(reader)
    return None if sha is None else sha.hexdigest()


def _digest(path: bytes) -> str:
    sha = new_sha256()
    reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while chunk := os.read(reader, _CHUNK):
            sha.update(chunk)
    finally:
        os.close(reader)
    return sha.hexdigest()
