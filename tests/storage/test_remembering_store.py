"""Outcomes and verdicts are read once; everything else is as the store says at that moment."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import NotFoundError
from orchestrator.storage.file import FileStore
from orchestrator.storage.remembered import RememberingStore


class Counting:
    """A store that counts what it is asked for."""

    def __init__(self, store: Any) -> None:
        self.store, self.asked = store, Counter[tuple[str, str]]()

    def __getattr__(self, name: str) -> Any:
        def call(key: str, *words: Any) -> Any:
            self.asked[name, key] += 1
            return getattr(self.store, name)(key, *words)

        return call


@pytest.fixture
def below(tmp_path: Path) -> Counting:
    return Counting(FileStore(tmp_path))


def test_what_this_process_wrote_or_read_is_not_read_again(below: Counting) -> None:
    async def scenario() -> None:
        store = RememberingStore(below)
        assert await store.create("outcomes/r/t/1.json", b"ours")
        await below.store.create("grades/r/t/d.json", b"verdict")
        for _ in range(3):
            assert await store.get("outcomes/r/t/1.json") == b"ours"
            assert await store.get("grades/r/t/d.json") == b"verdict"

    asyncio.run(scenario())
    assert below.asked["get", "outcomes/r/t/1.json"] == 0
    assert below.asked["get", "grades/r/t/d.json"] == 1


def test_a_key_that_another_writer_took_is_read_from_the_store(below: Counting) -> None:
    async def scenario() -> None:
        store = RememberingStore(below)
        await below.store.create("outcomes/r/t/1.json", b"theirs")
        assert not await store.create("outcomes/r/t/1.json", b"ours")
        assert await store.get("outcomes/r/t/1.json") == b"theirs"

    asyncio.run(scenario())


def test_what_is_not_there_is_asked_for_again(below: Counting) -> None:
    async def scenario() -> None:
        store = RememberingStore(below)
        with pytest.raises(NotFoundError):
            await store.get("outcomes/r/t/1.json")
        await below.store.create("outcomes/r/t/1.json", b"now")
        assert await store.get("outcomes/r/t/1.json") == b"now"
        assert await store.list("outcomes/r/") == ["outcomes/r/t/1.json"]
        assert await store.exists("outcomes/r/t/1.json")

    asyncio.run(scenario())


def test_everything_else_comes_from_the_store_and_memory_is_bounded(below: Counting) -> None:
    async def scenario() -> None:
        store = RememberingStore(below, most_bytes=8)
        await store.create("leases/r/1/claim.json", b"x")
        await store.get("leases/r/1/claim.json")
        assert below.asked["get", "leases/r/1/claim.json"] == 1
        for number in range(3):
            await store.create(f"outcomes/r/t/{number}.json", b"1234")
        for number in (2, 1, 0):
            await store.get(f"outcomes/r/t/{number}.json")
        assert [below.asked["get", f"outcomes/r/t/{number}.json"] for number in range(3)] == [1, 0, 0]

    asyncio.run(scenario())
