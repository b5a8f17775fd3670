"""What the workspace held before the agent came, noted while it is laid. Standard library only.

The list is a file for the freezer, in the form of ``keeper.lay.Listing``: one path a line, in the order of the raw path bytes, so that the
freezer needs no memory for it.
"""

# pathlib would double the start-up time, and names in a workspace are bytes.
# ruff: noqa: PTH123

from __future__ import annotations

import os

from orchestrator.sandbox.keeper.small import json_text

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.sandbox.keeper.lay import Laid

_HEAD = '{"owner":null}\n'
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


def _line(path: bytes, what: Laid) -> str:
    kind, executable, size, digest, target = what
    sha = "null" if digest is None else f'"{digest}"'
    link = "null" if target is None else json_text(os.fsdecode(target))
    return f'[{json_text(os.fsdecode(path))},"{kind}",{"true" if executable else "false"},{size},{sha},{link}]\n'
