"""The program that is a local Ray cluster: ``python -m orchestrator.driver.ray.head``, a session of its own that ends with its parent.

Standard input: one JSON line ``{"folder": …, "processors": …}``, then nothing until the parent ends, which ends the cluster. Standard
output: ``{"address": …}`` once it is up, and ``{"died": NAME}`` when one of Ray's own processes died; then it ends as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

_NEEDED = {"gcs_server", "raylet"}
_OBJECT_STORE_BYTES = 80 << 20  # the least that Ray takes; what is sent here is a few kB
_WATCH_SECONDS = 0.5
_END_SECONDS = 5.0


def main() -> int:
    """Serve one cluster."""
    channel = os.fdopen(os.dup(1), "w")  # closed in Ray's processes: it ends with this one
    os.dup2(2, 1)  # Ray prints what happens to it on standard output
    import ray

    config = json.loads(sys.stdin.buffer.readline())
    ray.init(
        num_cpus=config["processors"],
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=False,
        configure_logging=False,
        _temp_dir=config["folder"],
    )
    needed = {pid: name for pid in _children(os.getpid()) if (name := _name(pid)) in _NEEDED}
    _say(channel, {"address": ray.get_runtime_context().gcs_address})
    died = _watch(needed)
    if died is not None:
        _say(channel, {"died": died})
    else:
        ray.shutdown()
    _end_session()
    return 0


def _say(channel: TextIO, word: dict[str, str]) -> None:
    with contextlib.suppress(OSError):
        channel.write(json.dumps(word) + "\n")
        channel.flush()


def _watch(needed: dict[int, str]) -> str | None:
    """Return the name of a process of Ray's that died; None when the parent ended."""
    while True:
        if select.select([sys.stdin.buffer], [], [], _WATCH_SECONDS)[0]:
            return None
        for pid, name in needed.items():
            if _name(pid) != name or _state(pid) in {"Z", "X"}:
                return name


def _end_session() -> None:
    """Kill what is left of this session, workers and helpers of Ray included, which have groups of their own."""
    own, until = os.getsid(0), time.monotonic() + _END_SECONDS
    while time.monotonic() < until and (left := [pid for pid in _all() if pid != os.getpid() and _session(pid) == own]):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _children(pid: int) -> list[int]:
    return [child for child in _all() if _field(child, 1) == str(pid)]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _state(pid: int) -> str:
    return _field(pid, 0)


def _session(pid: int) -> int:
    return int(_field(pid, 3) or -1) if _state(pid) not in {"Z", "X", ""} else -1


def _field(pid: int, number: int) -> str:
    """Return a field of ``/proc/PID/stat`` after the name, from 0: state, parent, group, session."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[number]
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
