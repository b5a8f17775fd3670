"""Who a container belongs to: a label from which everybody can tell whether that process still lives."""

from __future__ import annotations

import os
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def owner() -> str:
    """Return the label of this process: boot, PID namespace, process id and start time."""
    return f"{_boot()}.{_namespace()}.{os.getpid()}.{_start_time(os.getpid())}"


def is_gone(label: str) -> bool:
    """Return whether the process that a label names is certainly gone."""
    parts = label.split(".")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    boot, namespace, pid, start = parts
    if boot != _boot():
        return True
    return namespace == _namespace() and _start_time(int(pid)) != start


def _boot() -> str:
    return _BOOT.read_text("ascii").strip()


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - no file of ours


def _start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    return text.rsplit(")", 1)[1].split()[19]
