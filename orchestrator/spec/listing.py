"""What a bundle holds, path by path, without its bytes: read from an unpacked folder of any size in little memory."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from orchestrator.spec.base import canonical_json
from orchestrator.spec.base import digest as digest_of
from orchestrator.spec.bundle import link_fault, path_fault, text_fault

_CHUNK = 1 << 20
_WORKSPACE = "workspace/"
_FOLDER = ("dir", False, 0, None, None)


class Listed(NamedTuple):
    """One path of a bundle. Folders are listed only when nothing is in them."""

    path: str
    """Relative, with ``/``."""
    type: Literal["file", "symlink", "dir"]
    mode: int
    """0644 or 0755 for files, 0755 for folders, 0777 for links."""
    size: int
    """Bytes of a file; 0 for everything else."""
    sha256: str
    """Digest of a file's bytes or a link's target; of nothing for a folder."""
    target: str | None = None
    """Target of a link."""


def tree_digest(listed: Iterable[Listed]) -> str:
    """Return the tree digest ``sha256:…`` of a bundle, given in the order of its path bytes."""
    return digest_of([[item.type, item.mode, item.path, item.sha256] for item in listed])


def read_listing(folder: Path) -> list[Listed]:
    """Return what an unpacked bundle holds as it stands on the disk, in the order of the path bytes.

    What no bundle can hold is left out, so that digests differ. Raises OSError.
    """
    found: list[Listed] = []
    pending = [""]
    while pending:
        inner = pending.pop()
        with os.scandir(folder / inner) as entries:
            names = list(entries)
        if inner and not names:
            found.append(Listed(inner.rstrip("/"), "dir", 0o755, 0, hashlib.sha256().hexdigest()))
        for entry in names:
            path = f"{inner}{entry.name}"
            if path_fault(path) is not None:
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{path}/")
            elif (item := _leaf(entry, path)) is not None:
                found.append(item)
    return sorted(found, key=lambda item: item.path.encode())


def one_owner(folder: Path, listed: Iterable[Listed]) -> tuple[int, int] | None:
    """Return user and group when all of the folder belongs to them, with exactly the modes of the bundle and one name for each file.

    None: not so. Raises OSError.
    """
    top = folder.stat()
    owner = (top.st_uid, top.st_gid)
    folders = {""}
    for item in listed:
        above = item.path.rpartition("/")[0]
        while above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
        info = os.lstat(folder / item.path)
        alike = item.type == "symlink" or (stat.S_IMODE(info.st_mode) == item.mode)
        if (info.st_uid, info.st_gid) != owner or not alike or (item.type == "file" and info.st_nlink != 1):
            return None
    for name in folders:
        info = os.lstat(folder / name)
        if (info.st_uid, info.st_gid) != owner or stat.S_IMODE(info.st_mode) != 0o755:
            return None
    return owner


def _leaf(entry: os.DirEntry[str], path: str) -> Listed | None:
    info = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(info.st_mode):
        target = os.readlink(entry.path)  # noqa: PTH115 - of 50,000 Path objects one notices
        if text_fault(target) is not None or link_fault(path, target) is not None:
            return None
        return Listed(path, "symlink", 0o777, 0, hashlib.sha256(target.encode()).hexdigest(), target)
    if not stat.S_ISREG(info.st_mode):
        return None
    digest, size = hashlib.sha256(), 0
    with open(entry.path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Listed(path, "file", 0o755 if info.st_mode & 0o100 else 0o644, size, digest.hexdigest())


def workspace_listing(listed: Iterable[Listed], owner: tuple[int, int] | None) -> bytes:
    """Return the listing of a sandbox bundle's workspace, for who lays it and compares with it later: lines of JSON.

    First ``{"owner": [uid, gid]}`` as ``one_owner`` found it, or null. After it, sorted by the bytes of the path and with all folders:
    ``[path, "file" | "dir" | "symlink", executable, size, sha256 or null, target or null]``.
    """
    found: dict[str, tuple[str, bool, int, str | None, str | None]] = {}
    for item in listed:
        if not item.path.startswith(_WORKSPACE):
            continue
        path = item.path.removeprefix(_WORKSPACE)
        above = path.rpartition("/")[0]
        while above and above not in found:
            found[above] = _FOLDER
            above = above.rpartition("/")[0]
        if item.type == "dir":
            found[path] = _FOLDER
        else:
            digest = item.sha256 if item.type == "file" else None
            found[path] = (item.type, item.type == "file" and item.mode == 0o755, item.size, digest, item.target)
    rows = [[path, *found[path]] for path in sorted(found, key=str.encode)]
    return b"".join(canonical_json(line) + b"\n" for line in ({"owner": owner}, *rows))
