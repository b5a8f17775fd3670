"""Bundles published to a store and fetched as verified folders."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.records import keys
from orchestrator.spec.bundle import Bundle, Item
from orchestrator.spec.bundle_tar import tar_of
from orchestrator.spec.listing import read_listing, tree_digest
from orchestrator.storage.bundles import BundleCache, publish
from orchestrator.storage.file import FileStore

ROOT = Path(__file__).parents[2]
BUNDLE = Bundle.of(
    [
        Item("workspace/run.sh", "file", 0o755, b"#!/bin/sh\n"),
        Item("workspace/deep/er/a.txt", "file", 0o644, b"a"),
        Item("workspace/link", "symlink", 0o777, b"deep/er/a.txt"),
        Item("memory", "dir", 0o755),
        Item("ünïcode", "file", 0o644, bytes(range(256))),
    ]
)
TAR = b"".join(tar_of(BUNDLE))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def test_a_bundle_comes_back_as_it_was(store: FileStore, tmp_path: Path) -> None:
    async def scenario() -> None:
        assert await publish(store, "sandbox", BUNDLE) == BUNDLE.digest
        assert await publish(store, "sandbox", BUNDLE) == BUNDLE.digest
        old = os.umask(0o077)
        try:
            folder = await BundleCache(store, tmp_path / "cache").fetch("sandbox", BUNDLE.digest)
        finally:
            os.umask(old)
        assert tree_digest(read_listing(folder)) == BUNDLE.digest
        assert stat.S_IMODE((folder / "workspace/run.sh").stat().st_mode) == 0o755
        assert stat.S_IMODE((folder / "workspace/deep").stat().st_mode) == 0o755
        assert (folder / "workspace/link").readlink() == Path("deep/er/a.txt")

    asyncio.run(scenario())


def test_audiences_do_not_share_bundles(store: FileStore, tmp_path: Path) -> None:
    async def scenario() -> None:
        await publish(store, "graders", BUNDLE)
        with pytest.raises(NotFoundError):
            await BundleCache(store, tmp_path / "cache").fetch("sandbox", BUNDLE.digest)

    asyncio.run(scenario())


def test_a_cached_folder_that_was_changed_is_fetched_anew(store: FileStore, tmp_path: Path) -> None:
    async def scenario() -> None:
        await publish(store, "sandbox", BUNDLE)
        folder = await BundleCache(store, tmp_path / "cache").fetch("sandbox", BUNDLE.digest)
        (folder / "workspace/run.sh").write_text("changed")
        (folder / "workspace/.git").mkdir()  # by-products count here
        again = await BundleCache(store, tmp_path / "cache").fetch("sandbox", BUNDLE.digest)
        assert again == folder
        assert tree_digest(read_listing(again)) == BUNDLE.digest

    asyncio.run(scenario())


def _tar(*infos: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info in infos:
            tar.addfile(info, io.BytesIO(b"x" * info.size))
    return buffer.getvalue()


def _info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


@pytest.mark.parametrize(
    "data",
    [
        _tar(_info("../../escape", size=1)),
        _tar(_info("/absolute", size=1)),
        _tar(_info("a", tarfile.SYMTYPE, "../out")),
        _tar(_info("a", tarfile.SYMTYPE, "/etc")),
        _tar(_info("a", tarfile.LNKTYPE, "/etc/passwd")),
        _tar(_info("a", tarfile.FIFOTYPE)),
        _tar(_info("a", tarfile.CHRTYPE)),
        _tar(_info("a", size=1), _info("a", size=1)),
        _tar(_info("b", size=1), _info("a", size=1)),
        _tar(_info("d/up", tarfile.SYMTYPE, ".."), _info("d/up/out", tarfile.SYMTYPE, "../escape")),
        b"no tar at all" * 100,
        TAR.replace(b"#!/bin/sh", b"#!/bin/no"),
        TAR[:3000],
    ],
)
def test_a_bad_tar_in_the_store_is_refused_and_leaves_nothing(store: FileStore, tmp_path: Path, data: bytes) -> None:
    async def scenario() -> None:
        await store.put_blob(keys.bundle("sandbox", BUNDLE.digest), data)
        with pytest.raises(StoreError, match=BUNDLE.digest):
            await BundleCache(store, tmp_path / "cache").fetch("sandbox", BUNDLE.digest)
        assert [path for path in (tmp_path / "cache").rglob("*") if not path.is_dir()] == []
        assert not (tmp_path / "escape").exists()

    asyncio.run(scenario())


_FETCHING = """
import asyncio, sys
from pathlib import Path
from orchestrator.spec.listing import read_listing, tree_digest
from orchestrator.storage.bundles import BundleCache
from orchestrator.storage.file import FileStore
async def main():
    print("ready", flush=True)
    sys.stdin.read()
    cache = BundleCache(FileStore(Path(sys.argv[1])), Path(sys.argv[2]))
    folders = await asyncio.gather(*[cache.fetch("sandbox", sys.argv[3]) for _ in range(5)])
    print(len({str(each) for each in folders}), tree_digest(read_listing(folders[0])), flush=True)
asyncio.run(main())
"""


def test_processes_share_one_cache(store: FileStore, tmp_path: Path) -> None:
    asyncio.run(publish(store, "sandbox", BUNDLE))
    command = [sys.executable, "-c", _FETCHING, str(store.root), str(tmp_path / "cache"), BUNDLE.digest]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    outputs = []
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    for child in children:
        assert child.stdout is not None
        outputs.append(child.stdout.read())
        child.stdout.close()
        assert child.wait() == 0
    assert outputs == [f"1 {BUNDLE.digest}\n"] * 3
    left = [path.name for path in (tmp_path / "cache/sandbox").iterdir()]
    name = BUNDLE.digest.removeprefix("sha256:")
    assert sorted(left) == sorted([".lock", name, f"{name}.workspace.json"])


def listing(store: FileStore, cache: Path) -> list[Any]:
    file = asyncio.run(BundleCache(store, cache).listing(BUNDLE.digest))
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def test_a_bundle_lies_beside_the_list_of_its_workspace(store: FileStore, tmp_path: Path) -> None:
    asyncio.run(publish(store, "sandbox", BUNDLE))
    found = listing(store, tmp_path / "cache")
    assert found == [
        {"owner": [os.geteuid(), (tmp_path / "cache").stat().st_gid]},
        ["deep", "dir", False, 0, None, None],
        ["deep/er", "dir", False, 0, None, None],
        ["deep/er/a.txt", "file", False, 1, hashlib.sha256(b"a").hexdigest(), None],
        ["link", "symlink", False, 0, None, "deep/er/a.txt"],
        ["run.sh", "file", True, 10, hashlib.sha256(b"#!/bin/sh\n").hexdigest(), None],
    ]
    assert listing(store, tmp_path / "cache") == found


@pytest.mark.parametrize(
    "change", [lambda f: f.chmod(0o600), lambda f: os.link(f, f.parents[4] / "x"), lambda f: f.parent.chmod(0o700)]
)
def test_the_list_says_when_the_files_themselves_cannot_be_shown(
    store: FileStore, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    asyncio.run(publish(store, "sandbox", BUNDLE))
    folder = asyncio.run(BundleCache(store, tmp_path / "cache").fetch("sandbox", BUNDLE.digest))
    _, *before = listing(store, tmp_path / "cache")
    change(folder / "workspace/deep/er/a.txt")
    assert listing(store, tmp_path / "cache") == [{"owner": None}, *before]


def test_a_list_that_was_changed_or_lost_is_made_again(store: FileStore, tmp_path: Path) -> None:
    async def scenario() -> list[bytes]:
        await publish(store, "sandbox", BUNDLE)
        cache = BundleCache(store, tmp_path / "cache")
        file = await cache.listing(BUNDLE.digest)
        seen = [file.read_bytes()]
        file.unlink()
        seen.append((await cache.listing(BUNDLE.digest)).read_bytes())
        file.write_bytes(b"{}")
        seen.append((await BundleCache(store, tmp_path / "cache").listing(BUNDLE.digest)).read_bytes())
        return seen

    assert len(set(asyncio.run(scenario()))) == 1


def test_who_only_reads_a_bundle_needs_no_list(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    asyncio.run(publish(store, "sandbox", BUNDLE))
    cache = BundleCache(store, tmp_path / "cache")
    asyncio.run(cache.listing(BUNDLE.digest)).unlink()
    monkeypatch.setattr(tempfile, "mkstemp", full)
    later = BundleCache(store, tmp_path / "cache")
    assert asyncio.run(later.fetch("sandbox", BUNDLE.digest)).is_dir()
    with pytest.raises(StoreError, match="Read-only") as caught:
        asyncio.run(later.listing(BUNDLE.digest))
    assert caught.value.cause == "bundle_cache"
