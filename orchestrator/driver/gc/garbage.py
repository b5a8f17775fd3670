"""What no run needs any more: found by what records name, never by guessing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.dataset.commits import Commit, load_snapshot
from orchestrator.dataset.rows import read_many
from orchestrator.driver.execute import what_is_left
from orchestrator.driver.gc.broom import Amount, Broom
from orchestrator.driver.gc.runs import Known, read_runs
from orchestrator.driver.lease import Timing
from orchestrator.errors import NotFoundError
from orchestrator.interfaces import ObjectStore, Stored, UnfinishedFiles
from orchestrator.plan.trials import remaining
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.storage.removals import announce

_DIGEST = re.compile(rb"[0-9a-f]{64}")
_BLOB = re.compile(rb'"(blobs/[^"\\]+)"')
_CHUNK = 500
_WRITING_S = 3600.0
"""For so long a file that has no name yet may be a living writer's, whatever grace was asked for, in seconds."""


Kind = Literal[
    "stragglers", "blobs", "beats", "bundles", "dataset_parts", "stages", "probes", "unfinished_files", "cached_bundles", "cached_parts",
    "scratch", "logs",
]  # fmt: skip
WORDS: dict[Kind, str] = {
    "stragglers": "what was written about removed runs",
    "blobs": "blobs that no record names",
    "beats": "signs of life of drivers",
    "bundles": "bundles that no run needs",
    "dataset_parts": "dataset parts that were replaced",
    "stages": "rows of ended runs that drivers wrote ahead",
    "probes": "what probes left",
    "unfinished_files": "files of killed writers",
    "cached_bundles": "unpacked bundles, unused",
    "cached_parts": "fetched dataset parts, unused",
    "scratch": "scratch of killed processes",
    "logs": "old ends of logs",
}
"""What each kind is, for people."""


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """One kind of it, and how much was removed."""

    kind: Kind
    amount: Amount

    @property
    def what(self) -> str:
        """The kind in words."""
        return WORDS[self.kind]


class GarbageCollector:
    """Removes what nothing needs from a store. ``grace_s``: what is younger, in seconds, is left alone."""

    def __init__(self, broom: Broom, writer_id: str, grace_s: float) -> None:
        self._broom = broom
        self._store = broom.store
        self._writer_id = writer_id
        self._grace_s = grace_s

    async def all(self, kept: Mapping[str, Known]) -> list[Garbage]:
        """Remove all kinds; ``kept`` are the runs that stay. Raises StoreError; what was removed stays so."""
        beats = sum(await read_many(self._beats, list(kept)), Amount())
        blobs = sum(await read_many(self._blobs, list(kept.values())), Amount())
        stages = sum(await read_many(self._stages, list(kept.values())), Amount())
        bundles, parts = await self._shared(kept)
        probes = await self._broom.delete(self._old(await self._store.stored(keys.PROBES)))
        found: dict[Kind, Amount] = {
            "blobs": blobs,
            "beats": beats,
            "bundles": bundles,
            "dataset_parts": parts,
            "stages": stages,
            "probes": probes,
            "unfinished_files": await self._unfinished(),
        }
        return [Garbage(kind=kind, amount=amount) for kind, amount in found.items()]

    def _old(self, found: Iterable[Stored]) -> list[Stored]:
        return [each for each in found if each.age_s >= self._grace_s]

    async def _unfinished(self) -> Amount:
        if not isinstance(self._store, UnfinishedFiles):
            return Amount()
        return Amount(*await self._store.remove_unfinished(max(self._grace_s, _WRITING_S), dry_run=self._broom.dry))

    async def _beats(self, run: str) -> Amount:
        """Remove the signs of life of drivers that gave none for the grace, but for the last of each."""
        prefix = keys.leases(run)
        found = await self._store.stored(prefix)
        if len(self._old(found)) < len(found):
            return Amount()
        by_claim: dict[str, list[Stored]] = {}
        for each in found:
            if each.key.startswith(f"{prefix}beats/"):
                by_claim.setdefault(each.key.rpartition("/")[0], []).append(each)
        return await self._broom.delete([each for beats in by_claim.values() for each in beats[:-1]])

    async def _blobs(self, known: Known) -> Amount:
        """Remove the blobs of an ended run that no outcome, seal or verdict names: lost launches left them."""
        old = self._old(await self._store.stored(keys.blobs(known.run)))
        if not old or known.manifest is None:
            return Amount()
        named = await _named_blobs(self._store, known.manifest)
        return Amount() if named is None else await self._broom.delete([each for each in old if each.key not in named])

    async def _stages(self, known: Known) -> Amount:
        """Remove what drivers of an ended run wrote ahead for the dataset: its rows are there, or are made from its records."""
        old = self._old(await self._store.stored(keys.stages(known.run)))
        if not old or known.manifest is None:
            return Amount()
        try:
            left = await what_is_left(known.manifest, self._store)
        except NotFoundError:  # the run is being removed
            return Amount()
        return Amount() if left.to_run or left.to_grade else await self._broom.delete(old)

    async def _shared(self, kept: Mapping[str, Known]) -> tuple[Amount, Amount]:
        """Remove bundles and parts of the dataset, which are named by content: others may be about to name them."""
        bundles, parts = self._needless_bundles(kept, await self._old_bundles()), await self._needless_parts()
        if self._broom.dry or not (bundles or parts):
            return await self._broom.delete(bundles), await self._broom.delete(parts)
        notice = await announce(self._store, self._writer_id, "bundles and dataset parts", Timing().clock)
        bundles = self._needless_bundles(await read_runs(self._store, kept), bundles)
        still = {each.key for each in await self._needless_parts()}
        parts = [each for each in parts if each.key in still]
        done = [Amount(), Amount()]
        for number, found in enumerate((bundles, parts)):
            for start in range(0, len(found), _CHUNK):
                if notice.counts():
                    done[number] += await self._broom.delete(found[start : start + _CHUNK])
        total = done[0] + done[1]
        await notice.done(total.objects, total.size)
        return done[0], done[1]

    async def _old_bundles(self) -> list[Stored]:
        return [each for prefix in keys.BUNDLES for each in self._old(await self._store.stored(prefix))]

    @staticmethod
    def _needless_bundles(runs: Mapping[str, Known], found: Sequence[Stored]) -> list[Stored]:
        """Return the bundles whose digest stands in no manifest, whatever version wrote it."""
        needed = {digest.decode() for known in runs.values() for digest in _DIGEST.findall(known.data)}
        return [each for each in found if keys.parse_bundle(each.key)[1] not in needed]

    async def _needless_parts(self) -> list[Stored]:
        """Return the parts that are not in the dataset and were not lately: a reader may still be at those."""
        known = await load_snapshot(self._store)
        recent = [each.key for each in await self._store.stored(keys.DATASET_COMMITS) if each.age_s < self._grace_s]
        lately = await read_many(self._parts_of_commit, recent)
        needed = {*known.parts, *(key for found in lately for key in found)}
        found = self._old(await self._store.stored(keys.DATASETS))
        return [each for each in found if keys.is_dataset_part(each.key) and each.key not in needed]

    async def _parts_of_commit(self, key: str) -> Collection[str]:
        commit = Commit.from_bytes(await self._store.get(key), key)
        return {*commit.removed, *(part.key for part in commit.added)}


async def _named_blobs(store: ObjectStore, manifest: RunManifest) -> set[str] | None:
    """Return the keys of all blobs that records of an ended run name; None for a run that has not ended."""
    run = manifest.run
    outcomes, verdicts = await store.list(keys.outcomes(run)), await store.list(keys.verdicts(run))
    seals = [key for key in await store.list(keys.records(run)) if key.endswith("/seal.json")]
    try:
        data = await read_many(store.get, [*outcomes, *verdicts, *seals])
    except NotFoundError:  # the run is being removed
        return None
    launches: dict[TrialId, list[Outcome]] = {}
    for key, each in zip(outcomes, data, strict=False):
        outcome = Outcome.from_bytes(each, key)
        launches.setdefault(TrialId.parse(outcome.trial), []).append(outcome)
    graded = [trial for key in verdicts if (trial := keys.parse_verdict(key)) is not None]
    left = remaining(manifest, launches, graded)
    if left.to_run or left.to_grade:
        return None
    return {found.decode() for each in data for found in _BLOB.findall(each)}
