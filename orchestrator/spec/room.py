"""What a workspace takes on the disk of its task. Standard library only: the keeper loads it."""

from __future__ import annotations

PAGE = 4096
"""Bytes of the pieces in which a sandbox's file system gives room."""
_FEWEST_PATHS = 65536


class NoRoomError(ValueError):
    """A workspace does not fit. The message says by how much, or that counting ended there."""


def most_paths(disk: int) -> int:
    """Return how many files, folders and links a disk of that many bytes takes."""
    return max(_FEWEST_PATHS, disk // PAGE)


class Room:
    """Counts what is laid on a disk. Some of it has to be left for work."""

    def __init__(self, disk: int) -> None:
        self._disk = disk
        self._paths = 0
        self._bytes = 0

    def take(self, size: int) -> None:
        """Count one path and the bytes of its file."""
        self._paths += 1
        self._bytes += -(-size // PAGE) * PAGE

    def problem(self) -> str | None:
        """Say why what was counted does not fit; None when it does."""
        if self._bytes >= self._disk:
            return f"its files take {self._bytes:,} bytes, and the disk has {self._disk:,}"
        most = most_paths(self._disk)
        return (
            f"it has {self._paths:,} paths, and a disk of {self._disk:,} bytes takes {most:,}"
            if self._paths >= most
            else None
        )
