"""What every object store must do. Written against the Protocol; each store joins by one line in ``STORES``."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.storage.open import open_store

STORES: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "file": lambda request: f"file://{request.getfixturevalue('tmp_path')}/store",
    "s3": lambda request: request.getfixturevalue("s3_url"),
}
"""Kind of store to the URL of an empty one. Processes of a test open the same URL."""


@pytest.fixture(params=sorted(STORES))
def url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


@pytest.fixture
def store(url: str) -> ObjectStore:
    return open_store(url)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def everything(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in stream])


def test_a_blob_comes_back_with_the_digest_computed_on_the_way(store: ObjectStore) -> None:
    data = random.Random(1).randbytes(3_500_000)
    cuts = [data[:1], data[1:1_048_577], b"", data[1_048_577:]]

    async def scenario() -> None:
        ref = await store.put_blob("blobs/r/1", pieces(*cuts))
        assert (ref.key, ref.size, ref.sha256) == ("blobs/r/1", len(data), hashlib.sha256(data).hexdigest())
        assert await store.get("blobs/r/1") == data
        assert await everything(store.stream("blobs/r/1")) == data

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000])
def test_bytes_and_streams_are_stored_alike(store: ObjectStore, data: bytes) -> None:
    async def scenario() -> None:
        one = await store.put_blob("blobs/a", data)
        two = await store.put_blob("blobs/b", pieces(data))
        assert (one.sha256, one.size) == (two.sha256, two.size) == (hashlib.sha256(data).hexdigest(), len(data))
        assert await store.get("blobs/a") == await store.get("blobs/b") == data

    asyncio.run(scenario())


def test_a_blob_is_never_overwritten(store: ObjectStore) -> None:
    async def scenario() -> None:
        await store.put_blob("blobs/a", b"first")
        with pytest.raises(StoreError) as caught:
            await store.put_blob("blobs/a", b"second")
        assert caught.value.cause == "store_exists"
        assert await store.get("blobs/a") == b"first"

    asyncio.run(scenario())


def test_a_stream_that_fails_leaves_no_object(store: ObjectStore) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * (2 << 20)
        msg = "the sender is gone"
        raise ConnectionError(msg)

    async def scenario() -> None:
        with pytest.raises(ConnectionError):
            await store.put_blob("blobs/a", broken())
        assert not await store.exists("blobs/a")
        assert await store.list("") == []
        await store.put_blob("blobs/a", b"again")

    asyncio.run(scenario())


def test_a_marker_is_created_once(store: ObjectStore) -> None:
    async def scenario() -> None:
        assert await store.create("outcomes/r/t/1.json", b"one")
        assert not await store.create("outcomes/r/t/1.json", b"two")
        assert not await store.create("outcomes/r/t/1.json", b"one")
        assert await store.get("outcomes/r/t/1.json") == b"one"

    asyncio.run(scenario())


def test_what_is_not_there_is_named(store: ObjectStore) -> None:
    async def scenario() -> None:
        await store.create("a/b", b"")
        for key in ("nothing", "a", "a/c", "a/b/c"):
            assert not await store.exists(key)
            with pytest.raises(NotFoundError, match=key):
                await store.get(key)
            with pytest.raises(NotFoundError, match=key):
                await everything(store.stream(key))

    asyncio.run(scenario())


def test_list_takes_any_prefix_and_sorts(store: ObjectStore) -> None:
    keys = ["a/1", "a/10", "a/2", "ab/1", "b/c/d/e", "b/c/d2", "b/cc"]

    async def scenario() -> None:
        for key in reversed(keys):
            await store.create(key, b"")
        found = {
            prefix: await store.list(prefix) for prefix in ("", "a", "a/", "a/1", "b/c", "b/c/", "b/c/d/e", "z", "a/1/")
        }
        for prefix, listed in found.items():
            assert listed == sorted(key for key in keys if key.startswith(prefix)), prefix

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", ".tmp/a", "a\0b", "a\nb", "a\\b", "x" * 256, "a/\ud800"]
)
def test_bad_keys_are_refused_before_anything_is_written(store: ObjectStore, key: str) -> None:
    async def scenario() -> None:
        for attempt in (store.create(key, b""), store.put_blob(key, b""), store.get(key), store.exists(key)):
            with pytest.raises(StoreError, match="cannot be a store key") as caught:
                await attempt
            assert caught.value.cause == "store_key"
        assert await store.list("") == []

    asyncio.run(scenario())


def test_keys_of_255_bytes_and_other_alphabets_work(store: ObjectStore) -> None:
    async def scenario() -> None:
        for key in ("x" * 255, "ä" * 127, "trial@agent:1", "wrong%2Fname", "a+b c&d=e?f#g"):
            assert await store.create(f"k/{key}", key.encode())
            assert await store.get(f"k/{key}") == key.encode()
            assert await store.list(f"k/{key}") == [f"k/{key}"]

    asyncio.run(scenario())


def _claim(url: str, number: int) -> tuple[bool, bytes]:
    """One writer with a store of its own: returns whether it won, and what it then reads."""

    async def scenario() -> tuple[bool, bytes]:
        store = open_store(url)
        won = await store.create("outcomes/r/t/1.json", f"writer {number}".encode())
        return won, await store.get("outcomes/r/t/1.json")

    return asyncio.run(scenario())


def test_50_threads_on_one_marker_have_one_winner(url: str) -> None:
    with ThreadPoolExecutor(50) as pool:
        ends = list(pool.map(lambda number: _claim(url, number), range(50)))
    winners = [number for number, (won, _) in enumerate(ends) if won]
    assert len(winners) == 1
    assert {seen for _, seen in ends} == {f"writer {winners[0]}".encode()}


_CLAIMING = """
import asyncio, json, os, sys, time
from orchestrator.storage.open import open_store
url, number = sys.argv[1:]
async def main():
    store = open_store(url)
    print("ready", flush=True)
    sys.stdin.read()
    ends = []
    for key in range(10):
        won = await store.create(f"m/{key}", number.encode())
        ends.append([won, (await store.get(f"m/{key}")).decode()])
    print(json.dumps(ends), flush=True)
asyncio.run(main())
"""


def test_processes_on_one_marker_have_one_winner(url: str) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CLAIMING, url, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.close()  # Everybody starts at once.
    ends = []
    for child in children:
        assert child.stdout is not None
        ends.append(json.loads(child.stdout.read()))
        child.stdout.close()
        assert child.wait() == 0
    for key in range(10):
        winners = [number for number, end in enumerate(ends) if end[key][0]]
        assert len(winners) == 1
        assert {end[key][1] for end in ends} == {str(winners[0])}


_WRITING = """
import asyncio, sys
from orchestrator.storage.open import open_store
async def main():
    store = open_store(sys.argv[1])
    for number in range(10**6):
        if number == 1:
            print("ready", flush=True)
        body = str(number).encode() * 200_000
        async def parts():
            for start in range(0, len(body), 70_000):
                yield body[start : start + 70_000]
        await store.put_blob(f"blobs/{sys.argv[2]}-{number}", parts())
        await store.create(f"markers/{sys.argv[2]}-{number}", str(number).encode() * 50_000)
asyncio.run(main())
"""


def _kill_while_writing(url: str, seed: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", _WRITING, url, str(seed)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    # The moment of the kill is what this test varies; there is no event to wait for.
    time.sleep(random.Random(seed).uniform(0, 0.12))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()


def _check_whole(url: str) -> int:
    async def scenario() -> int:
        store = open_store(url)
        keys = await store.list("")
        for key in keys:
            number = key.rsplit("-", 1)[1].encode()
            assert await store.get(key) == number * (200_000 if key.startswith("blobs/") else 50_000)
        return len(keys)

    return asyncio.run(scenario())


def test_a_killed_writer_leaves_no_half_object(url: str) -> None:
    for seed in range(3):
        _kill_while_writing(url, seed)
    assert _check_whole(url) > 0
    assert asyncio.run(open_store(url).create("markers/after-1", b"the store still works"))


@pytest.mark.slow
def test_a_killed_writer_leaves_no_half_object_over_many_seeds(url: str) -> None:
    for seed in range(100, 150):
        _kill_while_writing(url, seed)
    assert _check_whole(url) > 0


def test_a_listing_holds_all_that_was_created_before_it(url: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", _WRITING, url, "w"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"

        async def scenario() -> None:
            store, seen = open_store(url), set()
            for number in range(8):
                await store.create(f"mine/{number:03}", b"")
                assert await store.list("mine/") == [f"mine/{each:03}" for each in range(number + 1)]
                fresh = {*await store.list("")} - seen
                for key in fresh:
                    assert await store.exists(key), key
                seen |= fresh

        asyncio.run(scenario())
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
