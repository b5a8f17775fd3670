"""The relay: takes a frozen state from the launch's freezer, once, after the seal."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

from aiohttp import web

from orchestrator.gateway.launch import Launch, Part
from orchestrator.gateway.refusal import Refusal
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.state import FrozenState

_IDLE_SECONDS = 900.0
"""A freezer is silent while it reads: an agent's sparse files can be twice a disk of many gigabytes. One that died hangs up."""
_PIECE = 1 << 18


async def put_state(launch: Launch, part: Part, request: web.BaseRequest, store: ObjectStore) -> web.Response:
    """``PUT /launch/state/output|entries|changes``. A second PUT gets 409 with what was committed. Raises Refusal, StoreError."""
    if launch.seal is None:
        msg = "the state is taken after the seal: first the agent must be gone"
        raise Refusal(409, "not_sealed", msg, close=True)
    slot = launch.parts[part]
    async with slot.lock:
        if slot.blob is not None:
            answer = web.Response(status=409, body=slot.blob.to_bytes(), content_type="application/json")
            answer.force_close()
            return answer
        key = keys.blob(launch.body.run, uuid.uuid4().hex)
        slot.blob = await store.put_blob(key, _pieces(request, launch.config.max_state_bytes))
    await _commit(launch, store)
    return web.Response(body=slot.blob.to_bytes(), content_type="application/json")


async def _commit(launch: Launch, store: ObjectStore) -> None:
    entries, changes = launch.parts["entries"].blob, launch.parts["changes"].blob
    if entries is None or changes is None:
        return
    body = launch.body
    state = FrozenState(entries=entries, changes=changes)
    await store.create(keys.record(body.run, body.trial_id, body.launch, body.epoch, "state.json"), state.to_bytes())


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
