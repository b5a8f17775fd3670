"""A workspace that shows the pristine folder itself: an overlay file system that keeps only what is changed. Part of the keeper.

Nothing is copied when a sandbox opens, and a path that the upper folder does not have is pristine: a file of the lower folder cannot be
opened or mapped for writing, truncated, linked, or given another mode, owner or time without being copied up first. Times and inode numbers
promise less: on a tmpfs, a shared mapping that was read before it was written changes neither the change time nor the modification time.

Only root can have one that behaves as a plain folder: without privileges folders cannot be renamed, and files cannot be shown as another
user's. Standard library only.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH102, PTH208

from __future__ import annotations

import os

from orchestrator.sandbox.keeper import linux, mounts

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.sandbox.keeper.lay import Laid

_OPTIONS = "redirect_dir=on,metacopy=off,index=off,xino=auto"
_NOTES = "trusted.overlay."
_ORDINARY = frozenset({"trusted.overlay.origin", "trusted.overlay.impure", "trusted.overlay.uuid"})
"""What the kernel notes at an upper folder whose content is still merged with the lower folder of the same path."""
_SEEN_THROUGH = frozenset[bytes]()


def show(lower: str, owner: tuple[int, int], user: int, disk: str, place: str) -> str:
    """Mount the folder ``lower``, all of which belongs to ``owner``, at ``place`` as the user's own. Returns the upper folder.

    What is changed lies below ``disk``, a folder of a sized file system. Raises OSError where the kernel or a file system cannot do it;
    then nothing is mounted.
    """
    upper, work, below = f"{disk}/upper", f"{disk}/work", f"{disk}/lower"
    for folder in (upper, work, below):
        os.mkdir(folder, 0o755)
    os.chown(upper, user, user)
    namespace = linux.mapping_namespace(owner, user)
    try:
        tree = mounts.show_as(lower, namespace)
    finally:
        os.close(namespace)
    try:
        mounts.attach(tree, below)
    finally:
        os.close(tree)
    try:
        options = f"lowerdir={below},upperdir={upper},workdir={work},{_OPTIONS}"
        linux.mount("workspace", place, "overlay", linux.MS_NOSUID | linux.MS_NODEV, options)
    except OSError:
        linux.unmount(below)
        raise
    return upper


class Layers:
    """Tells what of an overlay still is as it was, by its upper folder alone."""

    def __init__(self, upper: int, pristine: dict[bytes, Laid]) -> None:
        """Take the open upper folder and what the lower folder holds, by raw path."""
        self._upper = upper
        self._pristine = pristine
        self._names: dict[bytes, frozenset[bytes] | None] = {}
        self._children: dict[bytes, list[bytes]] = {}
        for path in pristine:
            self._children.setdefault(path.rpartition(b"/")[0], []).append(path)

    def untouched(self, path: bytes) -> bool:
        """Return whether the path is what the lower folder has there; for a folder also everything in it."""
        if path not in self._pristine:
            return False
        above, _, name = path.rpartition(b"/")
        names = self._changed_in(above)
        return names is not None and name not in names

    def children(self, folder: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield what is in an untouched folder: path, and whether it is a folder."""
        for path in self._children.get(folder, ()):
            yield path, self._pristine[path][0] == "dir"

    def _changed_in(self, folder: bytes) -> frozenset[bytes] | None:
        """Return the names in a folder that come from the upper one. None: all of them may, or may come from elsewhere."""
        above = folder
        pending = []  # no recursion: a workspace may be deeper than Python's stack
        while above not in self._names:
            pending.append(above)
            if not above:
                break
            above = above.rpartition(b"/")[0]
        for each in reversed(pending):
            self._names[each] = self._look(each)
        return self._names[folder]

    def _look(self, folder: bytes) -> frozenset[bytes] | None:
        """Return the same for a folder whose parent is known."""
        if not folder:
            return self._upper_names(folder)
        above, _, name = folder.rpartition(b"/")
        names = self._names[above]
        if names is None or folder not in self._pristine:
            return None
        return self._upper_names(folder) if name in names else _SEEN_THROUGH

    def _upper_names(self, folder: bytes) -> frozenset[bytes] | None:
        try:
            opened = linux.open_beneath(self._upper, folder or b".", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            # A folder that was renamed shows the content of another one, and a new folder of an old name shows nothing of it.
            if any(name.startswith(_NOTES) and name not in _ORDINARY for name in os.listxattr(opened)):
                return None
            return frozenset(os.fsencode(name) for name in os.listdir(opened))
        finally:
            os.close(opened)
