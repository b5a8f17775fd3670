"""What lies on this machine alone: caches, logs, scratch. All of it may be removed; the store is not touched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.driver.dataset import part_cache
from orchestrator.driver.gc.broom import Amount
from orchestrator.driver.gc.garbage import WORDS, Garbage, Kind
from orchestrator.driver.scratch import sweep_scratch
from orchestrator.errors import InfrastructureError
from orchestrator.settings import Settings
from orchestrator.storage.bundles import remove_unused

LOG_BYTES = 64 << 20
"""Size from which on a log is cut."""
LOG_KEPT = 8 << 20
"""How much of its end stays."""


async def clean_machine(settings: Settings, unused_s: float, *, dry: bool) -> list[Garbage]:
    """Remove what was not used for so long, in seconds, and cut logs. Raises InfrastructureError."""
    kinds: dict[Kind, Callable[[], tuple[int, int]]] = {
        "cached_bundles": lambda: remove_unused(settings.cache / "bundles", unused_s, dry=dry),
        "cached_parts": lambda: _unused_files(part_cache(settings), unused_s, dry=dry),
        "scratch": lambda: sweep_scratch(settings, dry=dry),
        "logs": lambda: _cut_logs(settings.logs, dry=dry),
    }
    found = []
    for kind, remove in kinds.items():
        try:
            found.append(Garbage(kind=kind, amount=Amount(*await asyncio.to_thread(remove))))
        except OSError as error:
            msg = f"{WORDS[kind]} could not be removed: {error.strerror} ({error.filename}); see the folder's owner and mode"
            raise InfrastructureError(msg, cause="gc_local") from error
    return found


def _unused_files(folder: Path, unused_s: float, *, dry: bool) -> tuple[int, int]:
    now, count, size = time.time(), 0, 0
    for path in _entries(folder):
        with contextlib.suppress(FileNotFoundError):
            seen = path.stat()
            if now - seen.st_mtime >= unused_s:
                count, size = count + 1, size + seen.st_size
                if not dry:
                    path.unlink()
    return count, size


def _cut_logs(folder: Path, *, dry: bool) -> tuple[int, int]:
    """Cut logs in place: a service that runs goes on writing at the new end."""
    count, size = 0, 0
    for path in _entries(folder):
        if path.suffix != ".log" or not path.is_file() or (before := path.stat().st_size) <= LOG_BYTES:
            continue
        count, size = count + 1, size + before - LOG_KEPT
        if not dry:
            with path.open("rb") as file:
                file.seek(-LOG_KEPT, os.SEEK_END)
                end = file.read(LOG_KEPT)
            with path.open("r+b") as file:
                file.truncate(0)
            with path.open("ab") as file:
                file.write(end[end.find(b"\n") + 1 :])
    return count, size


def _entries(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from sorted(folder.iterdir())
