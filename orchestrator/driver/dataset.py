"""A run's rows into the dataset of its store, with the parts that read trajectories and keep copies."""

from __future__ import annotations

from pathlib import Path

from orchestrator import wiring
from orchestrator.dataset.compact import compact
from orchestrator.dataset.write import Written, commit_run, rebuild
from orchestrator.interfaces import ObjectStore
from orchestrator.settings import Settings
from orchestrator.storage.removals import watch


def part_cache(settings: Settings) -> Path:
    """Return the folder for parts that had to be fetched."""
    return settings.cache / "datasets"


async def commit_rows(store: ObjectStore, settings: Settings, run: str) -> Written:
    """Add what a run came to, then merge small parts if that is due. Raises InfrastructureError."""
    removals = await watch(store)
    written = await commit_run(store, run, wiring.event_reader(store), part_cache(settings), removals.disturbed)
    await compact(store, part_cache(settings), disturbed=removals.disturbed)
    return written


async def rebuild_rows(store: ObjectStore, settings: Settings, run: str) -> Written:
    """Make the rows of a run anew from its records. Raises InfrastructureError."""
    removals = await watch(store)
    return await rebuild(store, run, wiring.event_reader(store), part_cache(settings), removals.disturbed)
