"""A store with runs of different ages, and stores in whose user the process ends at a chosen step."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from run_builder import agent, freeze, manifest, outcome, put, save, tar_of, task, verdict

from orchestrator.dataset.rows import collect
from orchestrator.driver.gc.broom import Broom
from orchestrator.driver.gc.collect import remove_runs
from orchestrator.driver.gc.garbage import GarbageCollector
from orchestrator.driver.gc.runs import RunRemover, read_runs
from orchestrator.errors import SpecError, StoreError
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Seal
from orchestrator.records.usage import Usage
from orchestrator.report.select import resolve_run

DAY = 86_400


async def lay(store, run, *, tasks=("common",), ended=True, day=2):
    """Write an ended run with bundles, a lost launch and its leavings; tasks of one name share bundles."""
    made = manifest(
        [task(name, samples=1) for name in tasks], [agent("a")], run=run, created_at=datetime(2026, 3, day, tzinfo=UTC)
    )
    outcomes, verdicts = [], []
    for name in tasks:
        for audience in ("sandbox", "world", "graders"):
            key = keys.bundle(audience, task(name).digest)
            if not await store.exists(key):
                await store.put_blob(key, b"bundle")
        trial = TrialId(name, "a", 1)
        state = await freeze(store, run, name, [], tar_of([("a", b"x")]))
        await put(store, run, f"{name}-left-by-a-lost-launch", b"garbage")
        seal = Seal(
            run=run, trial=str(trial), launch=1, trajectory=await put(store, run, f"{name}-lost", b"{}\n"),
            usage=Usage(), steps=0, tool_calls=0, waiting_s=0,
        )  # fmt: skip
        await store.create(keys.record(run, trial, 1, 1, "seal.json"), seal.to_bytes())
        outcomes += [
            outcome(run, trial, reason="infra_lost", cause="sandbox", error="lost"),
            outcome(run, trial, launch=2, state=state, output=await put(store, run, f"{name}-output", b"o")),
        ]
        verdicts.append(verdict(run, trial, launch=2, state=state))
    await save(store, made, outcomes if ended else outcomes[:1], verdicts if ended else ())
    return made


def age(root: Path, seconds: float, part: str = "") -> None:
    """Make everything in a folder store, or what has that in its key, that much older."""
    for path in root.rglob("*"):
        if path.is_file() and part in str(path.relative_to(root)):
            os.utime(path, (time.time() - seconds,) * 2)


async def gc(store, criteria, *, dry=False):
    """Return what became of runs and garbage of a store; nothing of this machine is touched."""
    broom = Broom(store, dry=dry)
    known, remover = await read_runs(store), RunRemover(broom, "gc-1", criteria)
    removed, kept = await remove_runs(remover, known, criteria)
    await remover.stragglers(known)
    gone = {each.run for each in removed}
    staying = {run: one for run, one in known.items() if run not in gone}
    garbage = await GarbageCollector(broom, "gc-1", criteria.grace_s).all(staying)
    return removed, kept, {each.kind: each.amount.objects for each in garbage}


async def as_seen(store, run):
    """Return what a reader sees of a run: all of it, or the reason why there is none."""
    try:
        data = await collect(store, await resolve_run(store, run))
    except SpecError as error:
        return str(error).partition(" on ")[0]
    for row in data.rows:
        for blob in blobs_of(row.outcome):
            await store.get(blob.key)
        for audience in ("sandbox", "world", "graders"):
            assert await store.exists(keys.bundle(audience, getattr(row.task.bundles, audience)))
    return data


def blobs_of(value):
    """Return every blob that a record names."""
    if isinstance(value, BlobRef):
        return [value]
    fields = getattr(type(value), "model_fields", ())
    return [blob for name in fields for blob in blobs_of(getattr(value, name))]


class KilledError(Exception):
    """The process ends here."""


class Killed:
    """A store in whose user the process ends at its n-th change: before, after, or half way through it."""

    def __init__(self, store, at, when):
        self._store, self._at, self._when = store, at, when
        self.changes = 0
        self.get, self.exists, self.list, self.stream, self.stored = (
            store.get, store.exists, store.list, store.stream, store.stored,
        )  # fmt: skip

    async def create(self, key, data):
        return await self._change(lambda part: self._store.create(key, data), 1)

    async def delete(self, found):
        return await self._change(lambda part: self._store.delete(found[:part]), len(found))

    async def _change(self, act, size):
        mine = self.changes == self._at
        self.changes += 1
        if mine and self._when == "before":
            raise KilledError
        done = await act(size // 2 if mine and self._when == "half" and size > 1 else size)
        if mine:
            raise KilledError
        return done


class Meddling:
    """A store with which something else happens right before the first creation of a key with that beginning."""

    def __init__(self, store, beginning, act):
        self._store, self._beginning, self._act = store, beginning, act
        for name in ("get", "exists", "list", "stream", "stored", "delete"):
            setattr(self, name, getattr(store, name))

    async def create(self, key, data):
        if self._act is not None and key.startswith(self._beginning):
            act, self._act = self._act, None
            await act()
        return await self._store.create(key, data)


__all__ = ["StoreError", "task"]
