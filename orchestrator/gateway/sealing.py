"""Sealing a launch: the order is tokens, listener, open calls, trajectory, record. What follows never changes the record."""

from __future__ import annotations

import asyncio
import os
import stat
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.errors import StoreError
from orchestrator.gateway.launch import Launch
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.outcome import Seal

_PIECE = 1 << 20


async def seal(launch: Launch, store: ObjectStore) -> Seal:
    """Seal the launch, or return the seal that it has. Raises StoreError."""
    async with launch.seal_lock:
        if launch.seal is None:
            await _close(launch)
            launch.seal = await _record(launch, store)
            launch.sealed.set()
            launch.changed()
            launch.routes = {}
        return launch.seal


async def _close(launch: Launch) -> None:
    launch.sealing = True
    launch.stop_clock()
    if launch.listener is not None:
        launch.listener.stop_accepting()
    if launch.egress is not None:
        await launch.egress.close()
    if launch.calls:
        await asyncio.wait(set(launch.calls), timeout=launch.config.settle_seconds)
    open_calls = set(launch.calls)
    for call in open_calls:
        call.cancel()
    if open_calls:
        await asyncio.wait(open_calls)
    if launch.listener is not None:
        await launch.listener.close()


async def _record(launch: Launch, store: ObjectStore) -> Seal:
    summary = launch.summary or _summary(launch)
    file = await launch.trajectory.close(summary)
    blob = await store.put_blob(keys.blob(launch.body.run, uuid.uuid4().hex), _pieces(file.path))
    if (blob.sha256, blob.size) != (file.sha256, file.size):
        msg = f"the trajectory of launch {launch.id} changed on its way to the store"
        raise StoreError(msg, cause="trajectory_changed")
    world = None
    if launch.world is not None:
        snapshot = await launch.world.snapshot()
        world = await store.put_blob(keys.blob(launch.body.run, uuid.uuid4().hex), _pieces(snapshot))
    made = Seal(
        run=launch.body.run,
        trial=launch.body.trial,
        launch=launch.body.launch,
        trajectory=blob,
        world=world,
        fixture_misses=launch.fixture_misses,
        usage=launch.meter.usage,
        user_usage=launch.user_usage,
        steps=launch.meter.steps,
        tool_calls=launch.meter.tool_calls,
        waiting_s=summary["waiting_s"],
        stopped=summary["stopped"],
        unheard=launch.unheard,
        finish=launch.finish,
        questions=None if launch.tools.questions is None else tuple(launch.tools.questions),
        models=tuple(sorted(launch.models)),
        findings=launch.findings.all(),
    )
    body = launch.body
    key = keys.record(body.run, body.trial_id, body.launch, body.epoch, "seal.json")
    if not await store.create(key, made.to_bytes()):
        made = Seal.from_bytes(await store.get(key), key)
    file.path.unlink(missing_ok=True)
    if launch.world is not None:
        await launch.world.remove()
    return made


def _summary(launch: Launch) -> dict[str, Any]:
    failed = launch.request_failure if launch.stopped is None and launch.finish is None else None
    waiting_s = round(launch.clock.waiting(time.monotonic()), 3)
    return {**launch.counters(), "stopped": launch.stopped or failed, "waiting_s": waiting_s}


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with _opened(path) as file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece


def _opened(path: Path) -> BinaryIO:
    """Open a file in a folder in which an author's code may write: never what a link names, nor what nobody may ever write into.

    Raises StoreError.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        msg = f"{path.name} cannot be read: {error.strerror}"
        raise StoreError(msg, cause="file_unreadable") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        msg = f"{path.name} cannot be read: it is no file"
        raise StoreError(msg, cause="file_unreadable")
    return file
