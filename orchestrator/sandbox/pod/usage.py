"""What an agent takes of its node's disk: looked at while it runs, so that it is ended before the node is full. Standard library only.

The kubelet looks every ten seconds or so, and a disk is full sooner. Free space is known for the whole disk at once and costs one call;
only where it shrinks, or after a while, are the agent's own folders walked, a little at a time and for a small part of the time. What is
not to be found in any folder, such as files that are open but removed, is seen by nobody but a file system with quotas.
"""

# pathlib would double the start-up time.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import stat
import time

from orchestrator.sandbox.keeper.linux import open_beneath

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from orchestrator.sandbox.pod.world import Places

AREAS = ("workspace", "output", "tmp", "home")
"""Folders that count for the agent's disk."""
SMALL_BYTES = 16 << 20
"""Size of the volumes ``/log`` and ``/output``."""
MOST_NAMES = 1 << 20
"""Files of an agent, if its disk does not hold more of 1 KiB each: a node runs out of them as well."""
LOOK_SECONDS = 0.5
_SLICE_SECONDS = 0.05
"""For which nothing else is done."""
_AT_LEAST_SECONDS = 10.0
"""Between two walks, also where the disk shows nothing: somebody else may give back what the agent takes."""
_REST, _LONG_REST = 20, 100
"""Times the length of a walk until the next, where the disk fills and where it does not."""
_NAMES_AT_ONCE = 128


class Walk:
    """One look at all that is in some folders. What cannot be looked at is left out."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.taken = dict.fromkeys(folders, 0)
        """Bytes on the disk, by folder."""
        self.names = 0
        self.readable = 0
        """Bytes that a reader of all files would see, holes included."""
        self.whole = False
        """Whether all was seen."""
        self.seconds = 0.0
        """How long it has taken."""
        self._steps = self._all()

    def go_on(self, seconds: float) -> bool:
        """Go on for so long. Returns whether it is at its end: all was seen, or there is no memory for the rest."""
        begun = time.monotonic()
        try:
            for _ in self._steps:
                if time.monotonic() - begun >= seconds:
                    return False
            self.whole = True
        except MemoryError:
            self._steps.close()
        finally:
            self.seconds += time.monotonic() - begun
        return True

    def _all(self) -> Generator[None, None, None]:
        for folder in self.taken:
            try:
                root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                yield from self._below(folder, root)
            finally:
                os.close(root)

    def _below(self, folder: str, root: int) -> Generator[None, None, None]:
        pending = [b""]
        while pending:
            yield
            below = pending.pop()
            try:
                opened = open_beneath(root, below or b".", os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                continue
            try:
                yield from self._inside(folder, opened, below, pending)
            except OSError:
                continue
            finally:
                os.close(opened)

    def _inside(self, folder: str, opened: int, below: bytes, pending: list[bytes]) -> Generator[None, None, None]:
        with os.scandir(opened) as items:
            for item in items:
                self.names += 1
                if self.names % _NAMES_AT_ONCE == 0:
                    yield
                try:
                    info = item.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(info.st_mode):
                    pending.append(os.path.join(below, os.fsencode(item.name)))
                    self.taken[folder] += info.st_blocks * 512
                else:
                    self.taken[folder] += info.st_blocks * 512 // info.st_nlink
                    self.readable += info.st_size


class DiskWatch:
    """Says when an agent takes more of the disk than it may."""

    def __init__(self, places: Places, disk_bytes: int) -> None:
        self._limits = [
            ([f"{places.areas}/{name}" for name in AREAS], disk_bytes),
            ([f"{places.areas}/output"], SMALL_BYTES),
            ([places.log], SMALL_BYTES),
        ]
        self._folders = list(dict.fromkeys(folder for folders, _ in self._limits for folder in folders))
        self._most_names = max(MOST_NAMES, disk_bytes >> 10)
        self._walk: Walk | None = None
        self._room = float(disk_bytes)
        """What could be written since the last walk without being too much."""
        self._used = self._used_of_disk()
        self._grown = 0
        """What the disk has taken since the last walk began, from whoever uses it."""
        self._rest_until = self._look_at = 0.0
        """From when on a growing disk is reason enough to walk; when to walk in any case."""

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return LOOK_SECONDS if self._walk is None else 0.0

    def is_over(self) -> bool:
        """Look a little, and return whether there is too much."""
        now, used = time.monotonic(), self._used_of_disk()
        self._grown += max(0, used - self._used)
        self._used = used
        if self._walk is None:
            due = now >= self._look_at or (2 * self._grown > self._room and now >= self._rest_until)
            if not due:
                return False
            self._walk, self._grown = Walk(self._folders), 0
        ended = self._walk.go_on(_SLICE_SECONDS)
        left = [most - sum(self._walk.taken[folder] for folder in folders) for folders, most in self._limits]
        if min(left) < 0 or self._walk.names > self._most_names:
            return True
        if ended:
            now = time.monotonic()
            self._room = float(min(left))
            self._rest_until = now + _REST * self._walk.seconds
            self._look_at = now + max(_AT_LEAST_SECONDS, _LONG_REST * self._walk.seconds)
            self._walk = None
        return False

    def _used_of_disk(self) -> int:
        """Return how much of the disk is used, by all pods of the node. Raises OSError."""
        disk = os.statvfs(self._folders[0])
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize
