"""What a program takes of its node's disk: looked at while it runs, so that it is ended before the node is full. Standard library only.

The kubelet looks every ten seconds or so, and a disk is full sooner. Free space is known for the whole disk at once and costs one call;
only where it shrinks, or after a while, are the program's own folders walked, a little at a time and for a small part of the time. Where
there is too much to be looked at, there is too much. What is in no folder, such as files that are open but removed, is seen by nobody but
a file system with quotas. Folders that are closed to us are seen by the kubelet alone; who owns them, as in a grading pod, opens them.
"""

from __future__ import annotations

import os
import stat
import time

from orchestrator.sandbox.keeper.linux import open_beneath

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from orchestrator.sandbox.pod.world import Places

    Place = tuple["Place", bytes] | None
    """A folder: the one that it is in and its name, so that deep ones take no more memory than others. None: where the walk begins."""
    Limit = tuple[Sequence[str], int]
    """Folders, and the most bytes that all of them may take."""

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
_PATH_BYTES = 4000
"""Of a path that is opened in one call: Linux takes no longer ones, and an agent can make them step by step."""
_DEEPEST_BYTES = 64 << 10
"""Longest path that is followed."""


class Walk:
    """One look at all that is in some folders. Folders that are closed to us are left out, or opened if we own them and ``opens``."""

    def __init__(self, folders: Iterable[str], *, opens: bool = False) -> None:
        self.taken = dict.fromkeys(folders, 0)
        """Bytes on the disk, by folder."""
        self.names = 0
        self.readable = 0
        """Bytes that a reader of all files would see, holes included."""
        self.whole = False
        """Whether all was seen."""
        self.seconds = 0.0
        """How long it has taken."""
        self._opens = opens
        self._steps = self._all()

    def go_on(self, seconds: float) -> bool:
        """Go on for so long. Returns whether it is at its end: all was seen, or the rest lies too deep, or there is no memory for it."""
        begun = time.monotonic()
        try:
            for _ in self._steps:
                if time.monotonic() - begun >= seconds:
                    return False
            self.whole = True
        except (MemoryError, _TooDeepError):
            self._steps.close()
        finally:
            self.seconds += time.monotonic() - begun
        return True

    def _all(self) -> Generator[None, None, None]:
        for folder in self.taken:
            try:
                root = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                yield from self._below(folder, root)
            finally:
                os.close(root)

    def _below(self, folder: str, root: int) -> Generator[None, None, None]:
        pending: list[Place] = [None]
        while pending:
            yield
            below = pending.pop()
            try:
                opened = _open_at(root, below, opens=self._opens)
            except OSError:
                continue
            try:
                yield from self._inside(folder, opened, below, pending)
            except OSError:
                continue
            finally:
                os.close(opened)

    def _inside(self, folder: str, opened: int, below: Place, pending: list[Place]) -> Generator[None, None, None]:
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
                    pending.append((below, os.fsencode(item.name)))
                    self.taken[folder] += info.st_blocks * 512
                else:
                    self.taken[folder] += info.st_blocks * 512 // info.st_nlink
                    self.readable += info.st_size


class _TooDeepError(Exception):
    """A path is longer than anybody follows."""


def _open_at(root: int, below: Place, *, opens: bool) -> int:
    """Open a folder below ``root``, however deep it lies, also one that its owner has closed. Raises OSError and _TooDeepError."""
    names: list[bytes] = []
    length = 0
    while below is not None:
        below, name = below
        names.append(name)
        length += len(name) + 1
        if length > _DEEPEST_BYTES:
            raise _TooDeepError
    path = b"/".join(reversed(names)) or b"."
    folder = root
    try:
        while len(path) > _PATH_BYTES:
            cut = path.rindex(b"/", 0, _PATH_BYTES)
            deeper = open_beneath(folder, path[:cut], os.O_PATH | os.O_DIRECTORY)
            if folder != root:
                os.close(folder)
            folder, path = deeper, path[cut + 1 :]
        try:
            return open_beneath(folder, path, os.O_RDONLY | os.O_DIRECTORY)
        except PermissionError:
            if not opens:
                raise
        _open_up(folder, path)
        return open_beneath(folder, path, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        if folder != root:
            os.close(folder)


def _open_up(root: int, path: bytes) -> None:
    """Give a folder of ours back to us. Raises OSError."""
    closed = open_beneath(root, path, os.O_PATH | os.O_DIRECTORY)
    try:
        os.chmod(f"/proc/self/fd/{closed}", 0o700)  # noqa: PTH101 - no path leads to it so surely
    finally:
        os.close(closed)


def agent_limits(places: Places, disk_bytes: int) -> list[Limit]:
    """Return what an agent may take in its pod."""
    return [
        ([f"{places.areas}/{name}" for name in AREAS], disk_bytes),
        ([f"{places.areas}/output"], SMALL_BYTES),
        ([places.log], SMALL_BYTES),
    ]


class DiskWatch:
    """Says when a program takes more of the disk than it may."""

    def __init__(self, limits: Sequence[Limit], *, ours: bool = False) -> None:
        """``limits``: the first is for all that it may write. ``ours``: its user is this process's, and its folders were empty just now.

        Then nothing is walked before there is a reason, and a folder that it has closed is opened.
        """
        self._limits, self._ours = limits, ours
        self._folders = list(dict.fromkeys(folder for folders, _ in self._limits for folder in folders))
        self._most_names = max(MOST_NAMES, limits[0][1] >> 10)
        self._walk: Walk | None = None
        self._room = (float(limits[0][1]), float(self._most_names))
        """Bytes that could be written, and files made, since the last walk without being too much."""
        self._used = self._used_of_disk()
        self._grown = (0, 0)
        """What the disk has taken since the last walk began, from whoever uses it."""
        self._rest_until = 0.0
        self._look_at = time.monotonic() + _AT_LEAST_SECONDS if ours else 0.0
        """From when on a growing disk is reason enough to walk; when to walk in any case."""

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return LOOK_SECONDS if self._walk is None else 0.0

    def is_over(self) -> bool:
        """Look a little, and return whether there is too much."""
        now, used = time.monotonic(), self._used_of_disk()
        self._grown = (
            self._grown[0] + max(0, used[0] - self._used[0]),
            self._grown[1] + max(0, used[1] - self._used[1]),
        )
        self._used = used
        if self._walk is None:
            shrinks = any(2 * grown > room for grown, room in zip(self._grown, self._room, strict=True))
            if not (now >= self._look_at or (shrinks and now >= self._rest_until)):
                return False
            self._walk, self._grown = Walk(self._folders, opens=self._ours), (0, 0)
        ended = self._walk.go_on(_SLICE_SECONDS)
        left = [most - sum(self._walk.taken[folder] for folder in folders) for folders, most in self._limits]
        if min(left) < 0 or self._walk.names > self._most_names or (ended and not self._walk.whole):
            return True
        if ended:
            now = time.monotonic()
            self._room = (float(min(left)), float(self._most_names - self._walk.names))
            self._rest_until = now + _REST * self._walk.seconds
            self._look_at = now + max(_AT_LEAST_SECONDS, _LONG_REST * self._walk.seconds)
            self._walk = None
        return False

    def _used_of_disk(self) -> tuple[int, int]:
        """Return how many bytes of the disk are used and how many files are on it, of all pods of the node. Raises OSError."""
        disk = os.statvfs(self._folders[0])
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_files - disk.f_ffree
