"""A folder of a container image as files that a bundle can hold, from the tar that a container engine gives of it."""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from orchestrator.spec.bundle import Item, link_fault, path_fault, write_item
from orchestrator.spec.room import NoRoomError, Room

_CHUNK = 1 << 20


def extract(tar: IO[bytes], top: str, folder: Path, disk: int | None = None) -> list[str]:
    """Write the folder ``top`` of an image into a new folder and return what is wrong with it, a sentence for each path.

    Members of the tar are named from the last part of ``top`` on. Modes become 0644 or 0755, so that nothing is setuid; owners, times and
    attributes are dropped; links to absolute places inside of ``top`` become relative ones. What a bundle cannot hold is left out and
    told: devices, pipes, links that lead out, names that are not UTF-8. Nothing is written outside of ``folder``. Raises NoRoomError as
    soon as it would be more than a disk of ``disk`` bytes takes, ValueError for what is no tar or no folder, and OSError.
    """
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    tree = _Tree(posixpath.normpath(top), folder, None if disk is None else Room(disk))
    try:
        with tarfile.open(fileobj=tar, mode="r|", encoding="utf-8", errors="surrogateescape") as members:
            while (info := members.next()) is not None:
                members.members = []  # type: ignore[attr-defined]  # it would remember each one
                tree.add(info, members)
    except (tarfile.TarError, EOFError) as error:
        msg = f"the engine's archive cannot be read: {error}"
        raise ValueError(msg) from error
    if not tree.seen:
        msg = "the engine's archive is empty"
        raise ValueError(msg)
    return tree.problems


class _Tree:
    """What was written so far."""

    def __init__(self, top: str, folder: Path, room: Room | None) -> None:
        self.problems: list[str] = []
        self.seen = False
        self._top = top
        self._folder = folder
        self._links: set[str] = set()
        self._room = room

    def add(self, info: tarfile.TarInfo, members: tarfile.TarFile) -> None:
        """Write one member."""
        path = self._relative(info.name)
        if path == ".":
            self.seen = True
            if not info.isdir():
                what = f"a symbolic link to {info.linkname!r}" if info.issym() else "no folder"
                msg = f"{self._top} is {what}; name a folder"
                raise ValueError(msg)
            return
        self._take(info.size if info.isreg() else 0)
        fault = path_fault(path)
        if any(str(parent) in self._links for parent in PurePosixPath(path).parents):
            fault = "is below a symbolic link"
        if fault is None:
            fault = self._write(path, info, members)
        if fault is not None:
            self.problems.append(f"{os.fsencode(path).decode(errors='backslashreplace')} {fault}")

    def _take(self, size: int) -> None:
        """Count what is about to be written, sparse files in full: an image must not fill this machine's disk. Raises NoRoomError."""
        if self._room is None:
            return
        self._room.take(size)
        if problem := self._room.problem():
            msg = f"{self._top} does not fit, and was not read to its end: {problem}"
            raise NoRoomError(msg)

    def _write(self, path: str, info: tarfile.TarInfo, members: tarfile.TarFile) -> str | None:
        if info.isdir():
            write_item(self._folder, Item(path, "dir", 0o755), ())
        elif info.issym():
            target = self._target(path, info.linkname)
            if (fault := link_fault(path, target)) is not None:
                return fault
            self._links.add(path)
            write_item(self._folder, Item(path, "symlink", 0o777, os.fsencode(target)), ())
        elif info.islnk():
            return self._second_name(path, self._relative(info.linkname))
        elif info.isreg() and (file := members.extractfile(info)) is not None:
            mode = 0o755 if info.mode & 0o100 else 0o644
            write_item(self._folder, Item(path, "file", mode), _chunks(file))
        else:
            return "is no file, folder or symbolic link"
        return None

    def _second_name(self, path: str, first: str) -> str | None:
        source = self._folder / first
        if path_fault(first) is not None or source.is_symlink() or not source.is_file():
            return f"is a second name of {first!r}, which is not there"
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target)
        return None

    def _relative(self, name: str) -> str:
        """Return the path of a member below the folder: members begin with the folder's own name."""
        path = posixpath.normpath(name).lstrip("/")
        own = PurePosixPath(self._top).name
        return "." if path in {own, "."} else path.removeprefix(f"{own}/")

    def _target(self, path: str, target: str) -> str:
        """Return what a link says, from where it stands if it names a place inside of the folder by another way."""
        if link_fault(path, target) is None:
            return target
        place = posixpath.join(self._top, path)
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        if meant == self._top or meant.startswith(f"{self._top}/"):
            return posixpath.relpath(meant, posixpath.dirname(place))
        return target


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
