"""What gc removes of this machine, and of the dataset."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from dataset_world import commit, everything, lay_run
from gc_world import DAY, age, gc, lay

from orchestrator.dataset.commits import load_snapshot
from orchestrator.dataset.compact import compact
from orchestrator.driver import scratch
from orchestrator.driver.gc import local
from orchestrator.driver.gc.local import clean_machine
from orchestrator.driver.gc.runs import Criteria
from orchestrator.driver.scratch import LONGEST_RAY_PARENT, scratch_folder
from orchestrator.errors import SpecError
from orchestrator.records import keys
from orchestrator.report.select import resolve_run
from orchestrator.settings import Settings
from orchestrator.spec.bundle import Bundle, Item
from orchestrator.storage.bundles import BundleCache, publish
from orchestrator.storage.file import FileStore
from orchestrator.storage.removals import announce, watch


def aged(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture
def settings(memory: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    # The system's temporary folder is everybody's: folders of its own, with short paths.
    monkeypatch.setattr(scratch, "_temporary_folders", lambda: [memory / "t"])
    return Settings(cache=memory / "cache", logs=memory / "logs", scratch=memory)


def clean(settings: Settings, *, dry: bool = False) -> dict[str, tuple[int, int]]:
    found = asyncio.run(clean_machine(settings, 3 * DAY, dry=dry))
    return {each.kind: (each.amount.objects, each.amount.size) for each in found if each.amount}


def test_a_machine_without_any_of_it_is_no_error(settings: Settings) -> None:
    assert clean(settings) == {}


def test_bundles_that_nobody_fetched_go_and_come_back(settings: Settings, memory: Path) -> None:
    store = FileStore(memory / "store")
    bundles = [Bundle.of([Item(path="f", data=bytes([number]) * 100, mode=0o644)]) for number in range(2)]

    async def fetch(*wanted: Bundle) -> list[Path]:
        cache = BundleCache(store, settings.cache / "bundles")
        return [await cache.fetch("sandbox", bundle.digest) for bundle in wanted]

    async def lay() -> list[Path]:
        for bundle in bundles:
            await publish(store, "sandbox", bundle)
        return await fetch(*bundles)

    used, unused = asyncio.run(lay())
    left = used.parent / ".new-of-a-killed-process"
    left.mkdir()
    for path in (used, unused, left):
        aged(path, 4 * DAY)
    asyncio.run(fetch(bundles[0]))  # from now on it is used
    assert clean(settings, dry=True) == {"cached_bundles": (2, 100)}
    assert clean(settings) == {"cached_bundles": (2, 100)}
    assert sorted(path.name for path in used.parent.iterdir() if path.name[0] != ".") == [
        used.name,
        f"{used.name}.workspace.json",
    ]
    assert asyncio.run(fetch(*bundles)) == [used, unused]
    assert (unused / "f").read_bytes() == b"\1" * 100


def test_fetched_parts_go_by_age_and_logs_keep_their_end(
    settings: Settings, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LOG_BYTES", 1000)
    monkeypatch.setattr(local, "LOG_KEPT", 100)
    parts = settings.cache / "datasets"
    parts.mkdir(parents=True)
    for name in ("old.parquet", "new.parquet", "killed.tmp"):
        (parts / name).write_bytes(b"12345")
    aged(parts / "old.parquet", 4 * DAY)
    aged(parts / "killed.tmp", 4 * DAY)
    settings.logs.mkdir()
    lines = b"".join(b"line %03d\n" % number for number in range(200))
    (settings.logs / "gateway.log").write_bytes(lines)
    (settings.logs / "grader.log").write_bytes(b"short\n")
    with (settings.logs / "gateway.log").open("ab") as service:
        would = clean(settings, dry=True)
        assert (settings.logs / "gateway.log").read_bytes() == lines
        assert clean(settings) == would
        assert would == {"cached_parts": (2, 10), "logs": (1, len(lines) - 100)}
        service.write(b"line 200\n")
    kept = (settings.logs / "gateway.log").read_bytes().splitlines()
    assert kept == [b"line %03d" % number for number in range(200 - len(kept) + 1, 201)]
    assert len(kept) == 12
    assert (settings.logs / "grader.log").read_bytes() == b"short\n"
    assert [path.name for path in parts.iterdir()] == ["new.parquet"]


def test_replaced_parts_go_when_no_reader_can_be_at_them_and_rows_of_removed_runs_stay(memory: Path) -> None:
    async def scenario() -> None:
        store, cache = FileStore(memory / "store"), memory / "cache"
        for number in range(3):
            await lay_run(store, f"r{number}", number, tasks=1, samples=1)
            await commit(store, f"r{number}", cache)
        before = await everything(store, cache)
        assert await compact(store, cache, due=2)
        all_parts = [key for key in await store.list(keys.DATASETS) if keys.is_dataset_part(key)]
        alive = sorted((await load_snapshot(store)).parts)
        age(store.root, 2 * DAY)
        age(store.root, 3600, "datasets/_commits")
        _, _, garbage = await gc(store, Criteria(keep=0))
        assert garbage["dataset_parts"] == 0  # a query of an hour ago may still read them
        age(store.root, 2 * DAY)
        _, _, garbage = await gc(store, Criteria(keep=0))
        assert garbage["dataset_parts"] == len(all_parts) - len(alive) > 0
        assert sorted(key for key in await store.list(keys.DATASETS) if keys.is_dataset_part(key)) == alive
        assert await everything(store, cache) == before
        with pytest.raises(SpecError, match="run r1 was removed by gc"):
            await resolve_run(store, "r1")

    asyncio.run(scenario())


def test_rows_written_ahead_go_when_their_run_has_ended(memory: Path) -> None:
    async def scenario() -> None:
        store = FileStore(memory / "store")
        for run, complete in (("ended", True), ("going-on", False)):
            await lay(store, run, ended=complete)
            for name in ("_stage.json", "trials.parquet"):
                assert await store.create(f"{keys.stages(run)}w/000001/{name}", b"x")
        young = f"{keys.stages('ended')}w/000002/_stage.json"
        age(store.root, 2 * DAY)
        assert await store.create(young, b"x")
        _, _, garbage = await gc(store, Criteria(runs=()))
        assert garbage["stages"] == 2
        assert await store.list(keys.stages("ended")) == [young]
        assert len(await store.list(keys.stages("going-on"))) == 2
        age(store.root, 2 * DAY)
        await gc(store, Criteria(keep=0))
        assert await store.list("stages/") == []

    asyncio.run(scenario())


def test_a_part_that_is_committed_while_gc_deletes_it_is_put_back(memory: Path) -> None:
    async def scenario() -> None:
        store, cache = FileStore(memory / "store"), memory / "cache"
        await lay_run(store, "r", tasks=1, samples=1)
        await commit(store, "r", cache)
        rows = await everything(store, cache)
        found = await load_snapshot(store)
        other = FileStore(memory / "other")  # the same parts, put there by a writer that was killed before its commit
        await lay_run(other, "r", tasks=1, samples=1)
        for key in found.parts:
            await other.put_blob(key, await store.get(key))

        async def disturbed() -> bool:  # gc says what it does, and has seen no commit
            notice = await announce(other, "gc", "test")
            await other.delete(list(found.parts))
            await notice.done(len(found.parts), 0)
            return await watching.disturbed()

        from orchestrator.dataset.write import commit_run
        from orchestrator.wiring import event_reader

        watching = await watch(other)
        await commit_run(other, "r", event_reader(other), cache, disturbed)
        assert await everything(other, cache) == rows

    asyncio.run(scenario())


def test_scratch_folders_of_killed_processes_go_from_both_places(settings: Settings, memory: Path) -> None:
    # Ray's sockets have longer names than ours, so its folders may lie elsewhere than those of sandboxes.
    for parent in (memory, memory / "t"):
        for name in ("orch-left", "orch-strange"):
            (parent / name).mkdir(parents=True)
        (parent / "orch-left/owner").write_bytes(b"")
        (parent / "orch-left/file").write_bytes(b"12345")
    with scratch_folder(settings, LONGEST_RAY_PARENT) as held:  # which removes what lies beside it
        assert held.parent == memory / "t"
        assert clean(settings, dry=True) == clean(settings) == {"scratch": (1, 5)}
        assert held.exists()
    assert sorted(path.name for path in memory.glob("**/orch-*")) == ["orch-strange", "orch-strange"]
