"""Put a frozen workspace together again: pristine files, plus changed and added ones, minus removed ones.

The freezer wrote both inputs, yet they are treated as hostile: anything that an honest freezer never writes ends the work with
EvidenceError. Runs inside a sandbox only (limited child and subject).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from orchestrator.spec.globs import matches_any

_TYPES = frozenset({"file", "dir", "symlink", "fifo", "socket", "char_device", "block_device"})
_ORIGINS = frozenset({"pristine", "changed", "added", "removed"})
_LEFT_OUT = "left_out"
_NO_PARTS = frozenset({"", ".", ".."})
_LINE_BYTES = 64 << 10
_CHUNK = 1 << 20
AREA = "workspace/"
BY_PRODUCTS = ("**/__pycache__/**", "**/.pytest_cache/**")
"""What running visible tests leaves behind: never evidence of a changed path, and never there when hidden tests run.

A ``.pyc`` beside its source is no by-product: Python imports it like a source file.
"""


class EvidenceError(Exception):
    """The frozen state contradicts itself. The message names the path, never a file's content."""


class TooMuchError(Exception):
    """What was left is too long or too much to be put together again: the agent's doing."""


_TOO_MUCH = frozenset({errno.ENAMETOOLONG, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMLINK})


class Entry(NamedTuple):
    """One path of the frozen workspace, relative to it; undecodable bytes are surrogate escapes."""

    path: str
    type: str
    mode: int
    size: int
    sha256: str | None
    origin: str
    finding: str | None

    @property
    def there(self) -> bool:
        """Whether something stands at the path."""
        return self.origin not in {"removed", _LEFT_OUT}


def shown(text: str) -> str:
    """Return a path or text that can be encoded and printed: control and undecodable characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def read_entries(path: str) -> dict[str, Entry]:
    """Read ``entries.jsonl`` and return the entries of the workspace by path. Raises EvidenceError."""
    entries: dict[str, Entry] = {}
    with open(path, "rb") as lines:  # noqa: PTH123 - pathlib costs start-up time in a program that lives for a moment
        while line := lines.readline(_LINE_BYTES + 1):
            if len(line) > _LINE_BYTES:
                msg = "a line of the entry list is longer than 64 KiB"
                raise EvidenceError(msg)
            entry = _entry(line)
            if entry is None:
                continue
            if entry.path in entries:
                msg = f"the entry list names {shown(entry.path)!r} twice"
                raise EvidenceError(msg)
            entries[entry.path] = entry
    _check_parents(entries)
    return entries


def _entry(line: bytes) -> Entry | None:
    try:
        raw: dict[str, Any] = json.loads(line.decode())
        text: str | None = raw.get("path")
        data = base64.b64decode(raw["path_b64"], validate=True) if text is None else text.encode()
        path = data.decode("utf-8", "surrogateescape") if text is None else text
        inside = path.removeprefix(AREA).rstrip("/")
        mode, size = raw["mode"], raw["size"]
        entry = Entry(inside, raw["type"], mode, size, raw.get("sha256"), raw["origin"], raw.get("finding"))
        possible = entry.type in _TYPES and entry.origin in _ORIGINS
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"the entry list has a line that is no entry ({type(error).__name__})"
        raise EvidenceError(msg) from error
    if not possible or type(mode) is not int or type(size) is not int or size < 0:
        msg = f"the entry of {shown(path)!r} has an impossible type, origin, mode or size"
        raise EvidenceError(msg)
    if not path.startswith(AREA) or not inside:
        return None
    if "\0" in inside or not _NO_PARTS.isdisjoint(inside.split("/")):
        msg = f"the entry list names {shown(path)!r}, which is no path inside the workspace"
        raise EvidenceError(msg)
    return entry


def _check_parents(entries: dict[str, Entry]) -> None:
    for entry in entries.values():
        parent = entry.path.rpartition("/")[0]
        known = entries.get(parent)
        if entry.there and known is not None and (known.type != "dir" or not known.there):
            msg = f"{shown(entry.path)!r} stands below {shown(parent)!r}, which is no folder"
            raise EvidenceError(msg)


def without_by_products(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return the entries, what the agent changed below by-product folders left out: a cache can carry code that no source shows."""
    return {
        path: entry._replace(origin=_LEFT_OUT)
        if entry.origin in {"changed", "added"} and entry.type != "dir" and matches_any(BY_PRODUCTS, path)
        else entry
        for path, entry in entries.items()
    }


def assemble(
    entries: dict[str, Entry], *, changes: str, pristine: str, root: str, limit_bytes: int, whole: bool = True
) -> None:
    """Lay the frozen workspace into the existing folder ``root``, which must be empty.

    ``limit_bytes`` bounds the sum of all file sizes. Not ``whole``: pristine files, which may be nearly everything, are only proven to be
    there; ``bring`` lays those that are wanted. Raises EvidenceError when the inputs contradict each other, TooMuchError when the disk does
    not take what the agent left, OSError when it cannot be read or written for another reason.
    """
    with taken():
        _check_total(entries, limit_bytes)
        folders = [entry for entry in entries.values() if entry.there and entry.type == "dir"]
        for entry in folders:
            os.makedirs(_join(root, entry.path), exist_ok=True)  # noqa: PTH103
        if not whole:
            _prove_pristine(entries, pristine)
        for entry in entries.values():
            if entry.origin == "pristine" and (entry.type == "symlink" or (whole and entry.type == "file")):
                _copy_pristine(entry, _join(pristine, entry.path), _join(root, entry.path))
        _lay_changes(entries, changes, root)
        for entry in reversed(folders):
            os.chmod(_join(root, entry.path), (entry.mode & 0o777) | 0o700)  # noqa: PTH101 - our own wiping needs the owner's bits


def bring(entry: Entry, *, pristine: str, root: str) -> None:
    """Lay one pristine file that ``assemble`` left out; harmless when repeated. Raises EvidenceError, TooMuchError, OSError."""
    target = _join(root, entry.path)
    if entry.origin != "pristine" or entry.type != "file" or os.path.lexists(target):
        return
    half = f"{root}.half"  # a check that is killed meanwhile must not leave a part of a file to the next one
    with contextlib.suppress(FileNotFoundError):
        os.unlink(half)  # noqa: PTH108
    with taken():
        _copy_pristine(entry, _join(pristine, entry.path), half)
        os.rename(half, target)  # noqa: PTH104


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """Tell what the disk does not take from what fails for another reason."""
    try:
        yield
    except OSError as error:
        if error.errno not in _TOO_MUCH:
            raise
        msg = f"the workspace cannot be put together again: {error.strerror}"
        raise TooMuchError(msg) from error


def _check_total(entries: dict[str, Entry], limit_bytes: int) -> None:
    total = sum(entry.size for entry in entries.values() if entry.there and entry.type == "file" and entry.sha256)
    if total > limit_bytes:
        msg = f"the frozen files have {total} bytes together, more than the {limit_bytes} that the task allows"
        raise EvidenceError(msg)


def _prove_pristine(entries: dict[str, Entry], pristine: str) -> None:
    """Raise EvidenceError when a file is called pristine that the bundle does not have."""
    wanted = {entry.path for entry in entries.values() if entry.origin == "pristine" and entry.type == "file"}
    pending = [""] if wanted else []
    while pending:
        below = pending.pop()
        with os.scandir(f"{pristine}/{below}") as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    pending.append(f"{below}{item.name}/")
                elif item.is_file(follow_symlinks=False):
                    wanted.discard(f"{below}{item.name}")
    if wanted:
        msg = f"{shown(min(wanted))!r} is called pristine but the pristine bundle does not have it"
        raise EvidenceError(msg)


def _copy_pristine(entry: Entry, source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
    try:
        if entry.type == "symlink":
            os.symlink(os.readlink(source), target)  # noqa: PTH115, PTH211
            return
        shutil.copyfile(source, target, follow_symlinks=False)
    except FileNotFoundError as error:
        msg = f"{shown(entry.path)!r} is called pristine but the pristine bundle does not have it"
        raise EvidenceError(msg) from error
    os.chmod(target, entry.mode & 0o777)  # noqa: PTH101


def _lay_changes(entries: dict[str, Entry], changes: str, root: str) -> None:
    wanted = {e.path for e in entries.values() if e.origin in {"changed", "added"} and _in_tar(e)}
    if os.path.getsize(changes):  # noqa: PTH202
        for member, data in _members(changes):
            path = member.name.removeprefix(AREA).rstrip("/")
            entry = entries.get(path) if member.name.startswith(AREA) else None
            if entry is None:
                if member.name.startswith(AREA):
                    msg = f"the tar has {shown(member.name)!r}, which the entry list does not"
                    raise EvidenceError(msg)
                continue  # what the agent put into /output is no part of the workspace
            if (member.isdir() and entry.type == "dir") or entry.origin == _LEFT_OUT:
                continue
            if path not in wanted:
                msg = f"the tar has {shown(path)!r} twice, or as something that the entry list does not say"
                raise EvidenceError(msg)
            wanted.remove(path)
            _lay_member(member, data, entry, _join(root, path))
    if wanted:
        msg = f"the tar lacks {shown(min(wanted))!r} and {len(wanted) - 1} more entries"
        raise EvidenceError(msg)


def _in_tar(entry: Entry) -> bool:
    return (entry.type == "file" and entry.sha256 is not None) or (entry.type == "symlink" and entry.finding is None)


def _members(changes: str) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    try:
        with tarfile.open(changes, "r:", encoding="utf-8", errors="surrogateescape") as tar:
            for member in tar:
                if member.type not in {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE} or member.sparse is not None:
                    msg = f"the tar has {shown(member.name)!r} of a kind that the freezer never writes"
                    raise EvidenceError(msg)
                yield member, tar.extractfile(member) if member.isreg() else None
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        msg = f"the tar of changes cannot be read ({type(error).__name__})"
        raise EvidenceError(msg) from error


def _lay_member(member: tarfile.TarInfo, data: IO[bytes] | None, entry: Entry, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
    if member.issym() and entry.type == "symlink":
        os.symlink(member.linkname, target)  # noqa: PTH211
        return
    if data is None or entry.type != "file" or member.size != entry.size:
        msg = f"{shown(entry.path)!r} is not the same thing in the tar and in the entry list"
        raise EvidenceError(msg)
    digest = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb") as out:
        while chunk := data.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != entry.sha256:
        msg = f"the bytes of {shown(entry.path)!r} do not match the digest in the entry list"
        raise EvidenceError(msg)
    os.chmod(target, entry.mode & 0o777)  # noqa: PTH101


def _join(root: str, path: str) -> str:
    return f"{root}/{path}"
