"""Whether a store can be used, from here and by us: what ``doctor`` says of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from orchestrator.errors import StoreError
from orchestrator.storage.file import FileStore
from orchestrator.storage.open import open_store
from orchestrator.storage.probe import Probe, probe
from orchestrator.storage.s3 import S3Store
from orchestrator.storage.s3_connection import Timing

State = Literal["ok", "warning", "problem"]
LOW_BYTES = 2 << 30
"""Free space in bytes below which a warning is due."""
LEAST_BYTES = 64 << 20
"""Free space in bytes below which nothing can be run."""
_LEAST_INODES = 1000
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "fuse.sshfs",
    "fuse.s3fs",
}
_SKEW_WARNING_S = 30.0
_SKEW_PROBLEM_S = 300.0
_QUICK = Timing(patience=8, first=8, connect=4, read=8)
"""For a person who waits."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One thing that was seen, and what to do about it."""

    state: State
    said: str
    advice: str = ""


async def store_health(url: str) -> list[Fact]:
    """Return what there is to know of the store at a URL. Raises SpecError for a URL that names none."""
    store = open_store(url)
    if isinstance(store, S3Store):
        return await _s3(S3Store(store.place, timing=_QUICK))
    assert isinstance(store, FileStore)  # noqa: S101 - there is no third kind
    return await _folder(store)


def space(folder: Path) -> Fact:
    """Return how much room there is below an existing folder. Raises OSError."""
    seen = os.statvfs(folder)
    free, inodes = seen.f_bavail * seen.f_frsize, seen.f_favail
    said = f"{free / (1 << 30):.1f} GiB free"
    if free < LEAST_BYTES or (seen.f_files and inodes < _LEAST_INODES):
        more = f"{said}, room for {inodes} files" if free >= LEAST_BYTES else said
        return Fact(state="problem", said=more, advice="free space there (`orchestrate gc` removes old runs)")
    if free < LOW_BYTES:
        return Fact(state="warning", said=said, advice="free space there (`orchestrate gc` removes old runs)")
    return Fact(state="ok", said=said)


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _file_on_the_way(folder: Path) -> Path | None:
    return next((each for each in (folder, *folder.parents) if each.exists() and not each.is_dir()), None)


def file_system(folder: Path) -> str | None:
    """Return the type of the file system that a folder is on; None where that cannot be seen."""
    real = os.path.realpath(folder)
    best, kind = "", None
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = before.split()[4].replace("\\040", " ")
        if (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, after.split()[0]
    return kind


async def _folder(store: FileStore) -> list[Fact]:
    """Look at a folder, which need not be there yet; what is tried is tried beside the objects and removed."""
    above = await asyncio.to_thread(existing, store.root)
    if (blocked := await asyncio.to_thread(_file_on_the_way, store.root)) is not None:
        return [
            Fact(state="problem", said=f"{blocked} is a file, not a folder", advice="choose another store (--store)")
        ]
    try:
        trial = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=".doctor-", dir=above))
    except OSError as error:
        said = f"{above} cannot be written: {error.strerror}"
        return [Fact(state="problem", said=said, advice="change its owner or mode, or choose another store")]
    try:
        tried = await probe(FileStore(trial))
    finally:
        await asyncio.to_thread(shutil.rmtree, trial, ignore_errors=True)
    there = "writable" if above == store.root else "not there yet, can be made"
    facts = [_verdict(tried, f"folder, {there}"), await asyncio.to_thread(space, above)]
    kind = await asyncio.to_thread(file_system, above)
    if kind in _NETWORK:
        said = f"on a network file system ({kind}): two machines may both win a marker there, which cannot be tried from one"
        facts.append(Fact(state="warning", said=said, advice="use a local disk, or a bucket for several machines"))
    return facts


def _verdict(tried: Probe, what: str) -> Fact:
    first, *rest = tried.sentences
    if tried.usable:
        return Fact(state="ok", said=f"{what}. {' '.join(rest)}")
    # An error of the store says what to do about it itself.
    advice = "" if tried.cause else "choose another store (--store)"
    return Fact(state="problem", said=f"{first} {' '.join(rest)}", advice=advice)


async def _s3(store: S3Store) -> list[Fact]:
    try:
        hello = await store.greet()
    except StoreError as error:
        return [Fact(state="problem", said=str(error))]
    facts = [Fact(state="ok", said=f"asked by {hello.identity}, credentials from {hello.credentials_from}")]
    if hello.time is not None:
        facts.append(_skew((datetime.now(UTC) - hello.time).total_seconds()))
    return [*facts, _verdict(await probe(store), str(store.place))]


def _skew(ahead_s: float) -> Fact:
    """Judge this machine's clock by a service's, which tells whole seconds."""
    if abs(ahead_s) < _SKEW_WARNING_S:
        return Fact(state="ok", said="this machine's clock is the service's")
    said = f"this machine's clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the service's"
    state: State = "problem" if abs(ahead_s) >= _SKEW_PROBLEM_S else "warning"
    return Fact(state=state, said=said, advice="set the clock (NTP): signatures expire by it")
