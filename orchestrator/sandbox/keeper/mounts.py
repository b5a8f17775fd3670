"""Mounts that belong to no place yet: made first, attached where a sandbox sees them. Standard library only; part of the keeper.

Neither the machine nor an engine sees such a mount: it is gone with the last process that holds it, however the keeper ends. Needs Linux
5.12 or later.
"""

from __future__ import annotations

import os
import struct

from orchestrator.sandbox.keeper import linux

READ_ONLY, NO_SETUID, NO_DEVICES = 1, 2, 4
_OWNERS_MAPPED = 0x00100000
_SHOWN = READ_ONLY | NO_SETUID | NO_DEVICES

# The numbers of system calls made since Linux 5.1 are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE, _TREE_CLONE = 0x1000, 0x8000, 1
_FROM_EMPTY_PATH, _TO_FOLLOW_LINKS = 0x04, 0x10
_SET_STRING, _CREATE = 1, 6


def make_tmpfs(name: str, options: dict[str, str]) -> int:
    """Return a descriptor of a new tmpfs that is attached nowhere. Raises OSError."""
    context = linux.call("fsopen", _FSOPEN, b"tmpfs", 1)
    try:
        for key, value in {"source": name, **options}.items():
            linux.call(f"tmpfs {key}={value}", _FSCONFIG, context, _SET_STRING, key.encode(), value.encode(), 0)
        linux.call("fsconfig", _FSCONFIG, context, _CREATE, None, None, 0)
        return linux.call("fsmount", _FSMOUNT, context, 1, NO_SETUID | NO_DEVICES)
    finally:
        os.close(context)


def show(path: str) -> int:
    """Return a descriptor of a read-only view of a file or folder of this machine that is attached nowhere. Raises OSError."""
    return _view(path, _AT_RECURSIVE, _SHOWN)


def show_as(folder: str, namespace: int) -> int:
    """Return the same of a folder alone, with owners as the user namespace behind the descriptor maps them. Raises OSError."""
    return _view(folder, 0, _SHOWN | _OWNERS_MAPPED, namespace)


def attach(tree: int, target: str, *, through_links: bool = False) -> None:
    """Attach a mount at an existing file or folder. Raises OSError."""
    flags = _FROM_EMPTY_PATH | (_TO_FOLLOW_LINKS if through_links else 0)
    linux.call(target, _MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), flags)


def restrict(path: str, flags: int, *, below: bool) -> None:
    """Add flags to a mount, and with ``below`` to all mounts under it. Raises OSError."""
    _change(_AT_FDCWD, os.fsencode(path), _AT_RECURSIVE if below else 0, flags, 0)


def allow(path: str, flags: int) -> None:
    """Take flags off a mount. Raises OSError."""
    _change(_AT_FDCWD, os.fsencode(path), 0, 0, flags)


def _view(path: str, how: int, attributes: int, namespace: int = 0) -> int:
    tree = linux.call(path, _OPEN_TREE, _AT_FDCWD, os.fsencode(path), _TREE_CLONE | os.O_CLOEXEC | how)
    try:
        _change(tree, b"", _AT_EMPTY_PATH | how, attributes, 0, namespace)
    except OSError:
        os.close(tree)
        raise
    return tree


def _change(folder: int, path: bytes, how: int, add: int, remove: int, namespace: int = 0) -> None:
    attributes = struct.pack("QQQQ", add, remove, 0, namespace)
    linux.call(os.fsdecode(path) or "mount_setattr", _MOUNT_SETATTR, folder, path, how, attributes, len(attributes))
