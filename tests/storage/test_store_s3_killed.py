"""S3 itself is killed and comes back: nothing that was acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import asyncio

import pytest
from s3_world import ADMIN, BUCKET, own_server, session_of

from orchestrator.storage.s3 import S3Store
from orchestrator.storage.s3_place import S3Place

WRITERS = 8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_s3_loses_and_doubles_nothing() -> None:
    with own_server() as server:
        place = S3Place(bucket=BUCKET, endpoint=server.endpoint, path_style=True, checksums="when_required")
        won: dict[str, list[str]] = {}

        async def write(name: str, store: S3Store, over: asyncio.Event) -> None:
            number = 0
            while not over.is_set():
                key = f"outcomes/r/{number}"
                if await store.create(key, name.encode()):
                    won.setdefault(key, []).append(name)
                number += 1
                if name == "0":
                    await store.put_blob(f"blobs/r/{number}", bytes(6 << 20))

        async def scenario() -> None:
            stores = [S3Store(place, session=session_of(ADMIN), part_bytes=5 << 20) for _ in range(2)]
            over = asyncio.Event()
            writing = [asyncio.create_task(write(str(n), stores[n % 2], over)) for n in range(WRITERS)]
            for pause in (1.0, 2.0):
                await asyncio.sleep(pause)  # the moment of the kill is what varies
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            before = len(won)
            while len(won) < before + 20:
                await asyncio.sleep(0.1)
            over.set()
            await asyncio.gather(*writing)
            listed = await stores[0].list("outcomes/")
            assert {key: len(winners) for key, winners in won.items()} == dict.fromkeys(listed, 1)
            for key, (winner,) in won.items():
                assert await stores[1].get(key) == winner.encode(), key

        asyncio.run(scenario())
