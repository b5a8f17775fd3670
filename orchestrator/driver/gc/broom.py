"""Deleting and counting. A broom that is dry only counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.interfaces import Stored, SweepableStore

_CHUNK = 500
"""Objects that are deleted in one go."""


@dataclass(frozen=True)
class Amount:
    """How much was deleted, or would be."""

    objects: int = 0
    size: int = 0
    """Bytes."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.objects + other.objects, self.size + other.size)

    def __bool__(self) -> bool:
        return self.objects > 0


def amount_of(found: Sequence[Stored]) -> Amount:
    """Return number and bytes of objects."""
    return Amount(len(found), sum(each.size for each in found))


class Broom:
    """Deletes objects of a store, or only counts them."""

    def __init__(self, store: SweepableStore, *, dry: bool) -> None:
        self.store = store
        self.dry = dry

    async def delete(self, found: Sequence[Stored]) -> Amount:
        """Delete these objects. Raises StoreError, after which some of them are gone."""
        if not self.dry:
            for start in range(0, len(found), _CHUNK):
                await self.store.delete([each.key for each in found[start : start + _CHUNK]])
        return amount_of(found)
