"""Bundles as tars of any size, written and read piece by piece."""

from __future__ import annotations

import errno
import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from orchestrator.spec.bundle import Bundle, Item, link_fault, path_fault, write_item
from orchestrator.spec.listing import Listed

_CHUNK = 1 << 20
_KINDS: dict[bytes, Literal["file", "symlink", "dir"]] = {
    tarfile.REGTYPE: "file",
    tarfile.SYMTYPE: "symlink",
    tarfile.DIRTYPE: "dir",
}


def tar_of(bundle: Bundle) -> Iterator[bytes]:
    """Yield a PAX tar in pieces of at most 1 MiB or one file; equal bundles give equal bytes.

    Raises OSError, also for a file that is no longer as long as it was.
    """
    types = {name: kind for kind, name in _KINDS.items()}
    written = 0
    for item in bundle.items:
        info = tarfile.TarInfo(item.path)
        info.mode, info.type = item.mode, types[item.type]
        if item.type == "symlink":
            info.linkname = item.data.decode()
        info.size = item.size if item.type == "file" else 0
        head = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
        yield head
        if item.type == "file":
            yield from _exactly(item, info.size)
        padding = bytes(-info.size % tarfile.BLOCKSIZE)
        yield padding
        written += len(head) + info.size + len(padding)
    end = 2 * tarfile.BLOCKSIZE
    yield bytes(end + -(written + end) % tarfile.RECORDSIZE)


def _exactly(item: Item, size: int) -> Iterator[bytes]:
    for chunk in item.chunks():
        size -= len(chunk)
        yield chunk
    if size:
        raise OSError(errno.EIO, "the file changed while it was read", str(item.source))


def unpack(tar: IO[bytes], folder: Path) -> list[Listed]:
    """Write the bundle of a tar into a new folder and return what it holds; the caller has to compare the tree digest.

    Whatever the tar says, nothing is written outside of the folder. Raises ValueError for a path, link, kind or order that no bundle has,
    and OSError.
    """
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    listed: list[Listed] = []
    links: set[str] = set()
    last = b""
    try:
        with tarfile.open(fileobj=tar, mode="r:") as members:
            while (info := members.next()) is not None:
                members.members = []  # type: ignore[attr-defined]  # it would remember each one
                item = _item_of(info)
                if item.path.encode() <= last:
                    msg = f"{item.path!r} is out of order"
                    raise ValueError(msg)
                if links and any(str(parent) in links for parent in PurePosixPath(item.path).parents):
                    msg = f"{item.path!r} is below a symbolic link"
                    raise ValueError(msg)
                last = item.path.encode()
                if item.type == "symlink":
                    links.add(item.path)
                file = members.extractfile(info) if item.type == "file" else None
                listed.append(_unpack_item(folder, item, file))
    except (tarfile.TarError, EOFError) as error:
        msg = f"not a tar that this program wrote: {error}"
        raise ValueError(msg) from error
    return listed


def _unpack_item(folder: Path, item: Item, file: IO[bytes] | None) -> Listed:
    digest, size = hashlib.sha256(item.data), 0

    def chunks() -> Iterator[bytes]:
        nonlocal size
        while file is not None and (chunk := file.read(_CHUNK)):
            digest.update(chunk)
            size += len(chunk)
            yield chunk

    write_item(folder, item, chunks())
    target = item.data.decode() if item.type == "symlink" else None
    return Listed(item.path, item.type, item.mode, size, digest.hexdigest(), target)


def _item_of(info: tarfile.TarInfo) -> Item:
    kind = _KINDS.get(info.type)
    path = info.name
    fault = path_fault(path)
    if kind is None:
        fault = "is no file, folder or symbolic link"
    elif kind == "symlink" and fault is None:
        fault = link_fault(path, info.linkname)
    if kind is None or fault is not None:
        msg = f"{path!r} {fault}"
        raise ValueError(msg)
    return Item(path, kind, info.mode & 0o777, info.linkname.encode() if kind == "symlink" else b"")
