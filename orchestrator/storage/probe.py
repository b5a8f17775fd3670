"""Does this store keep the promise that everything rests on: of many writers of one marker, exactly one wins?

Some services that speak S3 ignore the condition, or check it and write in two steps. Nothing but trying tells.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys

WRITERS = 32
ROUNDS = 6
_MULTIPART_WRITERS = 16
_MULTIPART_ROUNDS = 2


@runtime_checkable
class MultipartStore(Protocol):
    """A store that can also create objects by multipart uploads."""

    async def create_by_multipart(self, key: str, data: bytes) -> bool:
        """Create an object by a multipart upload with a condition. True: the service says that it is ours."""
        ...


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a store was seen to do."""

    usable: bool
    """Whether runs can be kept in it."""
    conditional_put: bool | None
    """Whether exactly one of many writers won, in every round; None: it was not found out."""
    conditional_multipart: bool | None
    """The same for multipart uploads, which nothing depends on; None: not found out, or it has none."""
    writers: int
    """Writers of one marker at one time."""
    rounds: int
    """Markers that were tried."""
    seconds: float
    """How long it took."""
    cause: str | None
    """Cause of the StoreError that ended the probe."""
    sentences: tuple[str, ...]
    """What it means, for people; the first says whether the store can be used."""


async def probe(store: ObjectStore, *, writers: int = WRITERS, rounds: int = ROUNDS) -> Probe:
    """Try a store and say whether it can be used; it never raises StoreError.

    Leaves one small object for each round (two more for multipart uploads) under ``probes/``: a store deletes nothing.
    """
    begun, unique = time.monotonic(), uuid.uuid4().hex
    put: bool | None = None
    multipart: bool | None = None
    failure: StoreError | None = None
    told: list[str] = []
    try:
        put, told = await _conditional_puts(store, unique, writers, rounds)
        if put and isinstance(store, MultipartStore):
            multipart = await _conditional_multipart(store, unique, min(writers, _MULTIPART_WRITERS))
            told.append(_about_multipart(multipart))
    except StoreError as error:
        failure = error
        if put:
            told.append(f"Multipart uploads could not be tried: {error}")
    usable = bool(put)
    first = f"Store {store} {'can' if usable else 'cannot'} be used."
    if not usable and failure is not None:
        told = [str(failure)]
    return Probe(
        usable=usable,
        conditional_put=put,
        conditional_multipart=multipart,
        writers=writers,
        rounds=rounds,
        seconds=time.monotonic() - begun,
        cause=failure.cause if failure else None,
        sentences=(first, *told),
    )


async def _conditional_puts(store: ObjectStore, unique: str, writers: int, rounds: int) -> tuple[bool, list[str]]:
    """Return whether every round had one winner, whose bytes all then read, and a sentence about each other round."""
    faults: list[str] = []
    for number in range(rounds):
        key = keys.probe(unique, str(number))
        won = await _all([store.create(key, _name(writer)) for writer in range(writers)])
        winners = [writer for writer, each in enumerate(won) if each]
        there = await store.get(key)
        if len(winners) != 1:
            faults.append(f"In round {number + 1} of {rounds}, {len(winners)} of {writers} writers of one marker won.")
        elif there != _name(winners[0]):
            faults.append(f"In round {number + 1} of {rounds}, the marker holds the bytes of a writer that lost.")
        elif await store.create(key, b"late") or await store.get(key) != there:
            faults.append(f"In round {number + 1} of {rounds}, a late writer overwrote the marker.")
        elif key not in await store.list(keys.probe(unique, "")):
            faults.append(f"In round {number + 1} of {rounds}, the marker was not in a list made after it.")
    if faults:
        advice = "Runs would be lost or counted twice in it. Use a store whose PUT honours `If-None-Match: *`, or a newer version."
        return False, [*faults, advice]
    held = f"Of {writers} writers of one marker exactly one won, in each of {rounds} rounds (it must hold)."
    return True, [held]


async def _conditional_multipart(store: MultipartStore, unique: str, writers: int) -> bool:
    for number in range(_MULTIPART_ROUNDS):
        key = keys.probe(unique, f"multipart-{number}")
        if sum(await _all([store.create_by_multipart(key, _name(writer)) for writer in range(writers)])) != 1:
            return False
    return True


async def _all(writes: Sequence[Awaitable[bool]]) -> list[bool]:
    """Return what each writer won, once all have ended: one that still writes would disturb whoever cleans up after a failure."""
    ended = await asyncio.gather(*writes, return_exceptions=True)
    if failures := [each for each in ended if isinstance(each, BaseException)]:
        raise failures[0]
    return [each for each in ended if isinstance(each, bool)]


def _about_multipart(holds: bool) -> str:
    seen = "held in the rounds that were tried" if holds else "does not hold: several writers won"
    return f"For multipart uploads the condition {seen} (information: only blobs under unique names are uploaded so)."


def _name(writer: int) -> bytes:
    return f"writer {writer}".encode()
