"""Folders for sockets and running sandboxes that only this user may open, and what killed processes left of theirs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import InfrastructureError
from orchestrator.settings import Settings
from orchestrator.storage.bundles import tree_bytes

LONGEST_PARENT = 50
"""Bytes: a socket's path has 107 in all, and sandboxes put folders of their own below ours."""
LONGEST_RAY_PARENT = 16
"""The same for the folder of a Ray cluster: Ray puts 90 bytes of its own below."""
_PREFIX, _OWNER = "orch-", "owner"


def scratch_parent(settings: Settings, longest: int = LONGEST_PARENT) -> Path:
    """Return where scratch folders are made: the setting, or a temporary folder of the system where that path is too long for sockets."""
    parents = [*filter(None, [settings.scratch]), *_temporary_folders()]
    return next((parent for parent in parents if len(bytes(parent)) <= longest), parents[-1])


def _temporary_folders() -> list[Path]:
    return [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 - the shortest; folders of ours get random names there


def sweep_scratch(settings: Settings, *, dry: bool) -> tuple[int, int]:
    """Remove scratch folders of killed processes, wherever they may be; return their number and bytes. Raises OSError."""
    parents = {scratch_parent(settings, longest).resolve() for longest in (LONGEST_PARENT, LONGEST_RAY_PARENT)}
    swept = [_sweep(parent, dry=dry) for parent in sorted(parents)]
    return sum(count for count, _ in swept), sum(size for _, size in swept)


@contextlib.contextmanager
def scratch_folder(settings: Settings, longest_parent: int = LONGEST_PARENT) -> Iterator[Path]:
    """Make a folder for sockets and running sandboxes that only we may open, and remove it afterwards.

    Folders that killed processes left beside it are removed first.
    It lies below the setting ``scratch``, or below a temporary folder of the system where that path would leave no room for a socket's
    name: where it has more than ``longest_parent`` bytes.
    Raises InfrastructureError when it cannot be made.
    """
    parent = scratch_parent(settings, longest_parent)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))  # 0700
        owner = _own(folder)
    except OSError as error:
        msg = f"no folder for running sandboxes below {parent}: {error.strerror}; set ORCHESTRATE_SCRATCH to another place"
        raise InfrastructureError(msg, cause="scratch") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def _own(folder: Path) -> int:
    """Hold a lock in the folder for as long as this process lives. It gets its name when it is held, so nobody sees it free."""
    descriptor = os.open(folder / "owner.new", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (folder / "owner.new").rename(folder / _OWNER)
    return descriptor


def _sweep(parent: Path, *, dry: bool = False) -> tuple[int, int]:
    """Remove folders of ours whose process was killed: nobody holds their lock. Return their number and bytes."""
    count, size = 0, 0
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid():
                continue
            descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # of another user, just being made, or gone
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            count, size = count + 1, size + tree_bytes(folder)
            if not dry:
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
    return count, size
