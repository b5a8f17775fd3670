"""The relay: takes the parts of a frozen state from a launch's freezer, each once, after the seal.

Who the freezer is, and what has been taken before, is asked at a ``Desk``: that of this process on one machine, that of a gateway over
the network where the relay is a service of its own. So any number of relays can serve one launch.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Protocol, get_args
from weakref import WeakValueDictionary

from aiohttp import web

from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.tokens import bearer
from orchestrator.gateway.wire import Admission, LaunchName, Part
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.state import FrozenState

PARTS: dict[str, Part] = {part: part for part in get_args(Part)}
"""Names of parts, as paths have them."""
_IDLE_SECONDS = 900.0
"""A freezer is silent while it reads: an agent's sparse files can be twice a disk of many gigabytes. One that died hangs up."""
_PIECE = 1 << 18


class Desk(Protocol):
    """Where launches are known. Methods may raise Refusal and StoreError."""

    async def admit(self, token: str, peer: str | None) -> Admission:
        """Return the launch whose freezer shows this token, from this address; None where addresses tell nothing."""
        ...

    async def commit(self, launch: str, part: Part, blob: BlobRef) -> Mapping[Part, BlobRef]:
        """Note a part that is in the store, unless there is one, and return what counts for each part that was taken."""
        ...


class Relay:
    """Takes states into the store."""

    def __init__(self, store: ObjectStore, uploads: int) -> None:
        self._store = store
        self._uploads = asyncio.Semaphore(uploads)
        """A store may hold several MiB of each part that is on its way; more than so many wait, unread."""
        self._locks: WeakValueDictionary[tuple[str, Part], asyncio.Lock] = WeakValueDictionary()

    async def put(self, desk: Desk, part: Part, request: web.BaseRequest, peer: str | None = None) -> web.Response:
        """``PUT /launch/state/output|entries|changes``. A second PUT gets 409 with what was committed. Raises Refusal, StoreError."""
        token = bearer(request.headers.get("Authorization"))
        lock = self._locks.setdefault((token, part), asyncio.Lock())
        async with lock:
            launch = await desk.admit(token, peer)
            if not launch.sealed:
                msg = "the state is taken after the seal: first the agent must be gone"
                raise Refusal(409, "not_sealed", msg, close=True)
            done: Mapping[Part, BlobRef] = launch.done
            blob: BlobRef | None = None
            if part not in done:
                key = keys.blob(launch.run, uuid.uuid4().hex)
                pieces = _pieces(request, launch.max_state_bytes)
                first = await anext(pieces, b"")  # who is still reading what an agent left has no place yet
                async with self._uploads:
                    blob = await self._store.put_blob(key, _all(first, pieces))
                done = await desk.commit(launch.id, part, blob)
        if part != "output":
            await self._mark(launch, done)
        taken = done[part]
        answer = web.Response(
            status=200 if taken == blob else 409, body=taken.to_bytes(), content_type="application/json"
        )
        if blob is None:
            answer.force_close()  # the request's body was not read
        return answer

    async def _mark(self, launch: LaunchName, done: Mapping[Part, BlobRef]) -> None:
        """Name the state once both parts are there. Whoever comes second writes the same."""
        if (state := state_of(done)) is not None:
            key = keys.record(launch.run, launch.trial_id, launch.launch, launch.epoch, "state.json")
            await self._store.create(key, state.to_bytes())


def state_of(done: Mapping[Part, BlobRef]) -> FrozenState | None:
    """Return the state that parts make; None while one is missing."""
    if "entries" not in done or "changes" not in done:
        return None
    return FrozenState(entries=done["entries"], changes=done["changes"])


async def _all(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in others:
        yield piece


async def _pieces(request: web.BaseRequest, most: int) -> AsyncIterator[bytes]:
    size = 0
    content = request.content
    while True:
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                piece = await content.read(_PIECE)
        except TimeoutError:
            msg = f"nothing of the state came for {_IDLE_SECONDS:g} s"
            raise Refusal(408, "request_timeout", msg, close=True) from None
        if not piece:
            return
        size += len(piece)
        if size > most:
            msg = f"the state is larger than {most} bytes"
            raise Refusal(413, "state_too_large", msg, close=True)
        yield piece
