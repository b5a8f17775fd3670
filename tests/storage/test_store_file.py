"""What is special about a store of files: durability, permissions, and errors that say what to do."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.errors import SpecError, StoreError
from orchestrator.storage.file import FileStore
from orchestrator.storage.open import open_store

ROOT = Path(__file__).parents[2]


def test_objects_are_read_only_and_folders_private(tmp_path: Path) -> None:
    asyncio.run(FileStore(tmp_path / "s").create("a/b", b"x"))
    assert stat.S_IMODE((tmp_path / "s/a/b").stat().st_mode) & 0o222 == 0
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


def test_nothing_temporary_is_left_and_nothing_temporary_is_listed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)

    async def scenario() -> None:
        await store.put_blob("a/b", b"x")
        assert list((tmp_path / ".tmp").iterdir()) == []
        (tmp_path / ".tmp/left-by-a-dead-writer").write_bytes(b"half")
        assert await store.list("") == ["a/b"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("number", "cause", "words"),
    [
        (errno.ENOSPC, "store_full", "free space"),
        (errno.EROFS, "store_read_only", "read-only"),
        (errno.EACCES, "store_permission", "owner or mode"),
        (errno.EIO, "store_io", "try again"),
    ],
)
def test_errors_of_the_system_say_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cause: str, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match=words) as caught:
        asyncio.run(FileStore(tmp_path / "s").create("a/b", b"x"))
    assert caught.value.cause == cause
    assert str(tmp_path) in str(caught.value)


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    code = f"""
import asyncio, resource, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from orchestrator.storage.file import FileStore
from orchestrator.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
async def main():
    store = FileStore(__import__("pathlib").Path(sys.argv[1]))
    try:
        await store.put_blob("a/b", b"x" * (3 << 20))
    except StoreError as error:
        print(error)
    print(await store.list(""), await store.create("a/c", b"fits"))
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert done.stdout.endswith("[] True\n")
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_a_folder_where_an_object_must_be_is_told(tmp_path: Path) -> None:
    store = FileStore(tmp_path)

    async def scenario() -> None:
        await store.create("a/b", b"")
        with pytest.raises(StoreError, match="there is a folder"):
            await store.create("a", b"")
        with pytest.raises(StoreError, match="is a file, not a folder"):
            await store.create("a/b/c", b"")

    asyncio.run(scenario())


def test_a_store_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="choose another store"):
        asyncio.run(FileStore(tmp_path / "file/store").create("a", b""))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_without_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="no permission"):
        asyncio.run(FileStore(tmp_path / "store").create("a", b""))


def test_a_cancelled_writer_leaves_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path)

    async def endless(started: asyncio.Event) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * (1 << 20)
            started.set()

    async def scenario() -> None:
        started = asyncio.Event()
        writing = asyncio.create_task(store.put_blob("a/b", endless(started)))
        await started.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert list((tmp_path / ".tmp").iterdir()) == []
        assert await store.list("") == []

    asyncio.run(scenario())


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("plain/folder", f"file://{tmp_path}/plain/folder", str(tmp_path / "plain/folder")):
        store = open_store(url)
        assert isinstance(store, FileStore)
        assert store.root == tmp_path / "plain/folder"
    spaced = open_store(f"file://{tmp_path}/with%20space")
    assert isinstance(spaced, FileStore)
    assert spaced.root.name == "with space"
    for url in ("gs://b", "file://host/x", "file://x", "", "file:///a?b=c"):
        with pytest.raises(SpecError):
            open_store(url)
    assert not (tmp_path / "plain").exists()
