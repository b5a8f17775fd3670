"""Limits of one sandbox by control groups, version 1 or 2, where this process may make them.

Standard library only: the keeper loads it. Group names carry the keeper's process id and start time, so that groups of keepers that were
killed can be told from live ones and removed by the next.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH102, PTH106, PTH112, PTH116, PTH123, PTH208

from __future__ import annotations

import os
import time

_PREFIX = "orchestrate."
_STALE_SECONDS = 60.0
_PERIOD_US = 100_000


class Group:
    """The control groups of one sandbox. ``controllers`` are those that hold: ``memory``, ``pids``, ``cpu``."""

    def __init__(self, folders: dict[str, str], version: int, *, ours: bool = True, also: tuple[str, ...] = ()) -> None:
        """Take the folder of each controller; groups of others may stand in more hierarchies ``also``."""
        self._folders = folders
        self._also = also
        self._version = version
        self._ours = ours
        self._seen = {"oom_kill": 0, "max": 0}
        self.controllers = frozenset(folders)

    def join(self) -> None:
        """Put the calling process into the groups. Raises OSError."""
        for folder in {*self._folders.values(), *self._also}:
            _write(f"{folder}/cgroup.procs", "0")

    def oom_kills(self) -> int:
        """How often the kernel killed a process of this group for memory."""
        name = "memory.oom_control" if self._version == 1 else "memory.events"
        return self._count("memory", name, "oom_kill")

    def refused_forks(self) -> int:
        """How often a fork was refused for the limit of processes."""
        return self._count("pids", "pids.events", "max")

    def remember(self) -> None:
        """Note the counters: a group that is not ours goes with its last process, and what it counted with it."""
        self.oom_kills()
        self.refused_forks()

    def _count(self, controller: str, file: str, key: str) -> int:
        folder = self._folders.get(controller)
        if folder is not None:
            self._seen[key] = max(self._seen[key], _counter(f"{folder}/{file}", key))
        return self._seen[key]

    def kill(self) -> None:
        """Kill what is left in the group at once, where the kernel can (version 2); the PID namespace has done it before."""
        if self._version == 2:
            for folder in set(self._folders.values()):
                _try_write(f"{folder}/cgroup.kill", "1")

    def remove(self, patience: float = 2.0) -> list[str]:
        """Remove the groups; returns the folders that would not go within ``patience`` seconds. Groups of others stay."""
        if not self._ours:
            return []
        return [folder for folder in sorted(set(self._folders.values())) if not _rmdir(folder, patience)]


def make(name: str, limits: dict[str, float], proc: str = "/proc", root: str = "/sys/fs/cgroup") -> Group:
    """Make the groups that can be made and set ``limits``: ``memory`` in bytes, ``pids``, ``cpu`` in processors.

    Never raises: what cannot be made is missing in ``controllers``.
    """
    unique = f"{_PREFIX}{os.getpid()}.{_start_time(os.getpid(), proc)}.{name}"
    places, version = parents(proc, root)
    folders: dict[str, str] = {}
    for controller, parent in places.items():
        remove_stale(parent, proc)
        folder = f"{parent}/{unique}"
        try:
            if version == 2:
                _delegate(parent, controller)
            if not os.path.isdir(folder):
                os.mkdir(folder)
            _set_limit(folder, version, controller, limits[controller])
            folders[controller] = folder
        except OSError:
            if folder not in folders.values():
                _rmdir(folder, 0)
    return Group(folders, version)


def adopt(pid: int, limits: dict[str, float], proc: str = "/proc", root: str = "/sys/fs/cgroup") -> Group:
    """Return the groups that somebody else has made for a process, as far as they hold ``limits`` (as for ``make``)."""
    places, version = _groups_of(str(pid), proc, root)
    held = {name: folder for name, folder in places.items() if _holds(folder, version, name, limits[name])}
    return Group(held, version, ours=False, also=_all_groups_of(pid, proc, root))


def parents(proc: str, root: str) -> tuple[dict[str, str], int]:
    """Return the folder of our own group for each controller, and the version. Version 1 wins where both are mounted with controllers."""
    return _groups_of("self", proc, root)


def _all_groups_of(pid: int, proc: str, root: str) -> tuple[str, ...]:
    """Return the folders of a process's groups in every hierarchy that is mounted where it usually is."""
    with open(f"{proc}/{pid}/cgroup", encoding="utf-8") as file:
        lines = [line.split(":", 2) for line in file.read().splitlines()]
    places = [f"{root}/{(names or 'unified').removeprefix('name=')}{path}" for _, names, path in lines]
    if len(lines) == 1:
        places = [f"{root}{lines[0][2]}"]
    return tuple(place for place in places if os.access(f"{place}/cgroup.procs", os.W_OK))


def _groups_of(pid: str, proc: str, root: str) -> tuple[dict[str, str], int]:
    places: dict[str, str] = {}
    try:
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}, 2
    unified = None
    for line in lines:
        number, names, path = line.split(":", 2)
        if number == "0":
            unified = path
        for controller in names.split(","):
            if controller in {"memory", "pids", "cpu"}:
                folder = f"{root}/{controller}{path}".rstrip("/")
                if os.access(folder, os.W_OK):
                    places[controller] = folder
    if places or unified is None:
        return places, 1
    folder = f"{root}{unified}".rstrip("/")
    try:
        with open(f"{folder}/cgroup.controllers", encoding="utf-8") as file:
            there = file.read().split()
    except OSError:
        return {}, 2
    if not os.access(folder, os.W_OK):
        return {}, 2
    return {controller: folder for controller in ("memory", "pids", "cpu") if controller in there}, 2


def remove_stale(parent: str, proc: str = "/proc") -> None:
    """Remove groups below ``parent`` whose keeper is gone."""
    try:
        names = [name for name in os.listdir(parent) if name.startswith(_PREFIX)]
    except OSError:
        return
    for name in names:
        parts = name.split(".")
        if len(parts) < 4 or not parts[1].isdigit() or _start_time(int(parts[1]), proc) == parts[2]:
            continue
        try:
            # A keeper of another PID namespace looks dead from here; the kernel refuses to remove a group with processes, and one that is
            # older than a minute has its processes.
            if time.time() - os.stat(f"{parent}/{name}").st_mtime > _STALE_SECONDS:
                os.rmdir(f"{parent}/{name}")
        except OSError:
            continue


def _delegate(parent: str, controller: str) -> None:
    with open(f"{parent}/cgroup.subtree_control", encoding="utf-8") as file:
        if controller in file.read().split():
            return
    _write(f"{parent}/cgroup.subtree_control", f"+{controller}")


def _set_limit(folder: str, version: int, controller: str, value: float) -> None:
    if controller == "memory":
        if version == 1:
            _write(f"{folder}/memory.limit_in_bytes", str(int(value)))
            _try_write(f"{folder}/memory.memsw.limit_in_bytes", str(int(value)))
        else:
            _write(f"{folder}/memory.max", str(int(value)))
            _try_write(f"{folder}/memory.swap.max", "0")
    elif controller == "pids":
        _write(f"{folder}/pids.max", str(int(value)))
    elif version == 1:
        _write(f"{folder}/cpu.cfs_period_us", str(_PERIOD_US))
        _write(f"{folder}/cpu.cfs_quota_us", str(max(1000, int(value * _PERIOD_US))))
    else:
        _write(f"{folder}/cpu.max", f"{max(1000, int(value * _PERIOD_US))} {_PERIOD_US}")


def _holds(folder: str, version: int, controller: str, value: float) -> bool:
    """Return whether a group has a limit that is not above ``value``; memory is counted in pages, processor time in hundredths."""
    if controller == "memory":
        limit = _number(f"{folder}/{'memory.limit_in_bytes' if version == 1 else 'memory.max'}")
        return limit is not None and limit <= value + 4096
    if controller == "pids":
        limit = _number(f"{folder}/pids.max")
        return limit is not None and limit <= value
    if version == 1:
        quota, period = _number(f"{folder}/cpu.cfs_quota_us"), _number(f"{folder}/cpu.cfs_period_us")
    else:
        quota, period = _number(f"{folder}/cpu.max"), _number(f"{folder}/cpu.max", 1)
    return quota is not None and period is not None and 0 < quota <= (value + 0.01) * period


def _number(path: str, word: int = 0) -> int | None:
    """Return one number of a file's first line; None when there is none, as where no limit is set."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read().split()[word])
    except (OSError, ValueError, IndexError):
        return None


def _start_time(pid: int, proc: str) -> str:
    try:
        with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return "0"


def _counter(path: str, key: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
    except (OSError, ValueError):
        return 0
    return 0


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _try_write(path: str, text: str) -> None:
    try:
        _write(path, text)
    except OSError:
        return


def _rmdir(folder: str, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return not os.path.isdir(folder)
            time.sleep(0.005)
        else:
            return True
