"""A user id of its own for each sandbox that root starts. Standard library only; part of the keeper.

The kernel counts many things for each user (inotify instances, pipe pages, message queues, signals), so sandboxes with one user id could
use them up for each other, and for a person of this machine who has that id.
"""

# pathlib would double the start-up time of the keeper.
# ruff: noqa: PTH103, PTH123

from __future__ import annotations

import fcntl
import os
import stat

from orchestrator.sandbox.keeper.program import KeeperError

_SLOT_FOLDER = "/run/orchestrate-slots"
_FIRST_SLOT = 1_879_050_000  # above the range that container managers hand out, below the sign bit
_SLOTS = 4096


def take_user() -> int | None:
    """Return a user and group id that no other live sandbox of this machine has. It is this process's until it ends.

    None: this process is not root, or root of some container's user namespace, and has no users to spare. Raises KeeperError and OSError.
    """
    if not _has_spare_users():
        return None
    os.makedirs(_SLOT_FOLDER, mode=0o700, exist_ok=True)
    info = os.lstat(_SLOT_FOLDER)
    if info.st_uid != 0 or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o022:
        msg = f"{_SLOT_FOLDER} must be a folder that only root can write; remove it"
        raise KeeperError(msg)
    first = os.getpid() % _SLOTS
    for step in range(_SLOTS):
        slot = (first + step) % _SLOTS
        # The lock goes with the descriptor, and the descriptor with the process.
        descriptor = os.open(f"{_SLOT_FOLDER}/{slot}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            continue
        return _FIRST_SLOT + slot
    msg = f"all {_SLOTS} user ids for sandboxes of this machine are in use; run fewer trials at one time"
    raise KeeperError(msg, "sandbox_slots")


def _has_spare_users() -> bool:
    """Return whether this is root with the whole range of users, not root of some container's user namespace."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return any(first <= _FIRST_SLOT and first + count >= _FIRST_SLOT + _SLOTS for first, _, count in ranges)
