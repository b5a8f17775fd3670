"""Committing with a marker: create, and when the name is taken, read who took it."""

from __future__ import annotations

import json

from orchestrator.errors import StoreError
from orchestrator.interfaces import ObjectStore


async def commit(store: ObjectStore, key: str, record: bytes, writer_id: str) -> bool:
    """Write a record's marker. True: ours stands there, maybe from an earlier try. False: somebody else's does.

    The record is JSON with a field ``writer_id``. Raises StoreError when the store fails or the marker cannot be read.
    """
    if await store.create(key, record):
        return True
    return _writer(key, await store.get(key)) == writer_id


def _writer(key: str, data: bytes) -> str | None:
    try:
        value = json.loads(data)
    except ValueError as error:
        msg = f"the marker {key!r} is not JSON; the store was changed by something else"
        raise StoreError(msg, cause="record_unreadable") from error
    writer = value.get("writer_id") if isinstance(value, dict) else None
    return writer if isinstance(writer, str) else None
