"""This machine: interpreter, files, memory, processors, clock, and the folders that runs write to."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator import __version__
from orchestrator.driver.local import at_one_time
from orchestrator.driver.scratch import LONGEST_PARENT, scratch_parent
from orchestrator.settings import Settings
from orchestrator.spec.task import Resources
from orchestrator.storage.health import Fact, existing, space

_FILES, _FILES_EACH = 256, 32
"""Open files of a driver, and of each trial at one time, with room to spare."""
_FILES_AGENT = 65536
"""Most open files of one process in a sandbox."""
_FILES_OF_ALL = Path("/proc/sys/fs/file-max")
_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


async def program() -> Sequence[Fact]:
    """Say what runs here."""
    said = f"orchestrate {__version__}, Python {platform.python_version()} ({sys.executable}), {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        return [Fact(state="warning", said=said, advice="sandboxes of this machine need Linux, or containers")]
    return [Fact(state="ok", said=said)]


async def clock() -> Sequence[Fact]:
    """See whether the clock is plainly wrong; a bucket tells more."""
    now, made = time.time(), (await asyncio.to_thread(Path(__file__).stat)).st_mtime
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < made - 86_400:
        advice = "set the clock (NTP): ages, certificates and signatures go by it"
        return [Fact(state="problem", said=f"{said}, which is before this program was installed", advice=advice)]
    return [Fact(state="ok", said=said)]


async def open_files(settings: Settings) -> Sequence[Fact]:
    """See whether this process may open as many files as its trials need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    at_once = at_one_time(settings)
    needed = _FILES + _FILES_EACH * at_once
    said = f"{_limit(soft)} at one time (limit {_limit(hard)}); {at_once} trials at one time need about {needed}"
    if soft == resource.RLIM_INFINITY or soft >= needed:
        fact = Fact(state="ok", said=said)
    elif hard == resource.RLIM_INFINITY or hard >= needed:
        fact = Fact(state="warning", said=said, advice=f"type `ulimit -n {needed}` first, or run fewer trials (-n)")
    else:
        fact = Fact(state="warning", said=said, advice="raise the hard limit of open files, or run fewer trials (-n)")
    return [fact, *await asyncio.to_thread(_files_of_all, hard)]


def _files_of_all(hard: int) -> Sequence[Fact]:
    """See whether one agent can hold all the open files that the machine has; what else they cost is the agent's own memory."""
    try:
        most = int(_FILES_OF_ALL.read_text())
    except (OSError, ValueError):
        return []
    each = _FILES_AGENT if hard == resource.RLIM_INFINITY else min(hard, _FILES_AGENT)
    held = Resources().processes * each
    if held < most:
        return []
    said = f"{most:,} at one time for all users of this machine; one agent can hold {held:,}, and other trials then get none"
    return [
        Fact(state="warning", said=said, advice="let memory be the limit: sysctl -w fs.file-max=9223372036854775807")
    ]


async def capacity(settings: Settings) -> Sequence[Fact]:
    """Say how many trials run at one time, and whether memory and processors are enough for that."""
    at_once, cores = at_one_time(settings), _cores()
    source = settings.sources.get("concurrency", "default")
    because = "by the processors" if settings.concurrency is None else f"set by {source}"
    said = f"{cores} processors; {at_once} trials at one time ({because})"
    memory, each = _memory(), Resources().memory
    if memory is None:
        return [Fact(state="ok", said=said)]
    fits = max(1, memory // each)
    said += f"; {memory / (1 << 30):.1f} GiB of memory available, enough for {fits} trials of {each / (1 << 30):g} GiB, the default"
    if at_once > fits:
        return [Fact(state="warning", said=said, advice=f"set -n {fits}, or give tasks less memory")]
    if at_once > 4 * cores:
        return [Fact(state="warning", said=said, advice="trials that compute will wait for each other: lower -n")]
    return [Fact(state="ok", said=said)]


async def scratch(settings: Settings) -> Sequence[Fact]:
    """Look at the folder for sockets and running sandboxes."""
    parent = scratch_parent(settings)
    facts = []
    if settings.scratch is not None and parent != settings.scratch:
        length = len(bytes(settings.scratch))
        said = (
            f"{settings.scratch} has {length} bytes, {LONGEST_PARENT} leave room for sockets: {parent} is used instead"
        )
        facts.append(Fact(state="warning", said=said, advice="set ORCHESTRATE_SCRATCH to a shorter path"))
    return [*facts, *await folder(parent, "ORCHESTRATE_SCRATCH", runs=True)]


async def folder(path: Path, setting: str, *, runs: bool = False) -> Sequence[Fact]:
    """See whether files can be made in a folder, which need not be there yet; with ``runs``, whether programs in it run."""
    above = await asyncio.to_thread(existing, path)
    advice = f"change its owner or mode, or set {setting} to another place"
    try:
        with tempfile.TemporaryDirectory(prefix="orch-doctor-", dir=above) as trial:
            works = not runs or await asyncio.to_thread(_runs, Path(trial) / "program")
            room = await asyncio.to_thread(space, Path(trial))
    except OSError as error:
        return [Fact(state="problem", said=f"{above} cannot be written: {error.strerror}", advice=advice)]
    facts = [Fact(state=room.state, said=f"{path}, {room.said}", advice=room.advice)]
    if not works:
        said = f"programs in {above} do not run: it is mounted noexec"
        facts.append(Fact(state="warning", said=said, advice=f"set {setting} to a place without noexec"))
    return facts


def _runs(program: Path) -> bool:
    """See whether a file can be executed; asked of the kernel, as starting one that was just written fails while another thread forks."""
    program.touch(0o700)
    return os.access(program, os.X_OK)


def _limit(value: int) -> str:
    return "no limit" if value == resource.RLIM_INFINITY else f"{value:,}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int | None:
    """Return the bytes of memory that are to be had; None where that cannot be seen."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    for file in _CGROUPS:
        try:
            found.append(int(file.read_text()))
        except (OSError, ValueError):  # not that kind of cgroup, or no limit
            continue
    return min(found) if found else None
