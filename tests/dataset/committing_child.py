"""Commits runs and merges parts until it is killed or done: STORE CACHE RUN…"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from orchestrator.dataset.compact import compact
from orchestrator.dataset.write import commit_run
from orchestrator.storage.file import FileStore
from orchestrator.wiring import event_reader


async def main(root: Path, cache: Path, runs: list[str]) -> None:
    """Do it."""
    store = FileStore(root)
    for run in runs:
        await commit_run(store, run, event_reader(store), cache)
        await compact(store, cache, due=3)
    print("done", flush=True)


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
