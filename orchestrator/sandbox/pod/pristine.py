"""What the workspace held before the agent came: noted while it is laid, or listed once it lies there. Standard library only.

The list is a file for the freezer, in the form of ``keeper.lay.Listing``: one path a line, in the order of the raw path bytes, so that the
freezer needs no memory for it.
"""

# pathlib would double the start-up time, and names in a workspace are bytes.
# ruff: noqa: PTH118, PTH123

from __future__ import annotations

import os
import stat

from orchestrator.sandbox.keeper.linux import open_beneath
from orchestrator.sandbox.keeper.small import json_text, new_sha256

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.sandbox.keeper.lay import Laid

_HEAD = '{"owner":null}\n'
_CHUNK = 1 << 20
_FOLDER: Laid = ("dir", False, 0, None, None)


class Noted:
    """What is laid, path by path in any order."""

    def __init__(self) -> None:
        self._lines: list[tuple[bytes, str]] = []

    def folder(self, path: bytes) -> None:
        """Note a folder."""
        self._lines.append((path, _line(path, _FOLDER)))

    def leaf(self, path: bytes, what: Laid) -> None:
        """Note a file or a link."""
        self._lines.append((path, _line(path, what)))

    def clear(self) -> None:
        """Forget everything."""
        self._lines.clear()

    def lines(self) -> Iterator[str]:
        """Yield the list's lines."""
        self._lines.sort()
        for _, text in self._lines:
            yield text


def write_list(file: str, lines: Iterable[str]) -> None:
    """Write the list. Raises OSError."""
    with open(file, "x", encoding="utf-8", errors="surrogateescape") as out:
        out.write(_HEAD)
        out.writelines(lines)


def listed(folder: str) -> Iterator[str]:
    """Yield the lines of a folder as it lies there, digests included. Raises OSError."""
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        stack = [_names(root, b"")]
        while stack:
            if not stack[-1]:
                stack.pop()
                continue
            path = stack[-1].pop()
            if path.endswith(b"/"):
                stack.append(_names(root, path[:-1]))
            else:
                yield _line(path, _what(root, path))
    finally:
        os.close(root)


def _names(root: int, folder: bytes) -> list[bytes]:
    """Return the paths in a folder, last first; a sub-folder is there twice: as itself and, with a slash, for its content."""
    opened = open_beneath(root, folder or b".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = []
        with os.scandir(opened) as items:
            for item in items:
                path = os.path.join(folder, os.fsencode(item.name))
                found += [path, path + b"/"] if item.is_dir(follow_symlinks=False) else [path]
    finally:
        os.close(opened)
    found.sort(reverse=True)
    return found


def _what(root: int, path: bytes) -> Laid:
    info = os.stat(path, dir_fd=root, follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode):
        return _FOLDER
    if stat.S_ISLNK(info.st_mode):
        return "symlink", False, 0, None, os.readlink(path, dir_fd=root)
    sha = new_sha256()
    opened = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while chunk := os.read(opened, _CHUNK):
            sha.update(chunk)
    finally:
        os.close(opened)
    return "file", bool(info.st_mode & 0o100), info.st_size, sha.hexdigest(), None


def _line(path: bytes, what: Laid) -> str:
    kind, executable, size, digest, target = what
    sha = "null" if digest is None else f'"{digest}"'
    link = "null" if target is None else json_text(os.fsdecode(target))
    return f'[{json_text(os.fsdecode(path))},"{kind}",{"true" if executable else "false"},{size},{sha},{link}]\n'
