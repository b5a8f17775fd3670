"""What every store must do for ``gc``: say how old and large its objects are, and delete them for good."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import UnfinishedFiles
from orchestrator.storage import s3
from orchestrator.storage.file import FileStore
from orchestrator.storage.open import open_store

KINDS = ("file", "s3")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "file":
        return f"file://{request.getfixturevalue('tmp_path')}/store"
    return request.getfixturevalue("s3_url")


def test_objects_have_sizes_and_ages(url: str) -> None:
    async def scenario() -> None:
        store = open_store(url)
        await store.create("runs/a/manifest.json", b"12345")
        await store.put_blob("runs/ab", b"")
        await store.create("outcomes/a", b"x")
        found = await store.stored("runs/a")
        assert [(each.key, each.size) for each in found] == [("runs/a/manifest.json", 5), ("runs/ab", 0)]
        assert all(-2 <= each.age_s < 600 for each in found)
        assert await store.stored("grades/") == []

    asyncio.run(scenario())


def test_what_is_deleted_is_gone_for_everybody_and_can_be_made_anew(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "MOST_DELETED", 3)

    async def scenario() -> None:
        store, other = open_store(url), open_store(url)
        keys = [f"outcomes/r/t@a:{number}/1.json" for number in range(7)]
        for key in [*keys, "outcomes/r/kept@a:1/1.json"]:
            await other.create(key, b"x")
        await store.delete([*keys, "outcomes/r/never-was"])
        await store.delete([])
        assert await other.list("") == ["outcomes/r/kept@a:1/1.json"]
        assert not await other.exists(keys[0])
        with pytest.raises(NotFoundError):
            await other.get(keys[0])
        assert await other.create(keys[0], b"y")
        assert await store.get(keys[0]) == b"y"
        await store.delete([keys[0]])
        await store.delete([keys[0]])
        assert await store.list("outcomes/r/t") == []

    asyncio.run(scenario())


def test_bad_keys_are_never_deleted(url: str) -> None:
    async def scenario() -> None:
        store = open_store(url)
        await store.create("runs/a", b"x")
        for key in ("runs/../runs/a", "/runs/a", "", "runs//a", ".tmp/x"):
            with pytest.raises(StoreError) as caught:
                await store.delete(["runs/a", key])
            assert caught.value.cause == "store_key"
        assert await store.list("") == ["runs/a"]

    asyncio.run(scenario())


def test_files_leave_no_empty_folders_and_never_take_one_from_a_writer(tmp_path: Path) -> None:
    root = tmp_path / "store"

    async def scenario() -> None:
        sweeper, writer = FileStore(root), FileStore(root)
        for number in range(60):
            sweeping = asyncio.create_task(sweeper.delete([f"runs/r/{number - 1}"]))
            made = await writer.create(f"runs/r/{number}", b"x")
            await sweeping
            assert made
        await sweeper.delete([f"runs/r/{number}" for number in range(60)])

    asyncio.run(scenario())
    assert sorted(path.name for path in root.rglob("*")) == [".tmp", "runs"]


def test_files_of_dead_writers_go_by_age(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    assert isinstance(store, UnfinishedFiles)

    async def scenario() -> None:
        assert await store.remove_unfinished(0) == (0, 0)
        await store.create("runs/r", b"x")
        for name, age in (("old", 7200), ("young", 60)):
            path = tmp_path / "store/.tmp" / name
            path.write_bytes(b"12345")
            os.utime(path, (time.time() - age,) * 2)
        assert await store.remove_unfinished(3600, dry_run=True) == (1, 5)
        assert await store.remove_unfinished(3600) == (1, 5)
        assert await store.remove_unfinished(3600) == (0, 0)
        assert [path.name for path in (tmp_path / "store/.tmp").iterdir()] == ["young"]
        assert await store.list("") == ["runs/r"]

    asyncio.run(scenario())


def test_a_folder_in_the_place_of_an_object_is_no_object_to_delete(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")

    async def scenario() -> None:
        await store.create("runs/r/manifest.json", b"x")
        with pytest.raises(StoreError):
            await store.delete(["runs/r"])
        assert await store.list("") == ["runs/r/manifest.json"]

    asyncio.run(scenario())
