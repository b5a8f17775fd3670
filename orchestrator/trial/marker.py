"""Commit an outcome: create its marker once, or take the one that is there."""

from __future__ import annotations

from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome


async def commit_outcome(store: ObjectStore, outcome: Outcome) -> Outcome:
    """Return the outcome that stands for this launch: ours, or the one that another driver wrote first.

    Raises StoreError when neither can be had.
    """
    key = keys.outcome(outcome.run, TrialId.parse(outcome.trial), outcome.launch)
    if await store.create(key, outcome.to_bytes()):
        return outcome
    return Outcome.from_bytes(await store.get(key), key)
