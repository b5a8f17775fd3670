"""What is frozen: an entry list that says how each path compares, and a tar of what differs."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_world import FakeGateway, backend, life, shell, spec_of, workspace

from orchestrator.errors import SandboxError, StoreError
from orchestrator.records.state import Entry

CHANGE = "rm old.txt; echo b > src/b.py; echo 'a = 2' > src/a.py; chmod -x run.sh; mkdir empty; echo '{}' > /output/final.json"


def origins(entries: list[Entry]) -> dict[str | None, str]:
    return {entry.path: entry.origin for entry in entries}


def test_origins_against_the_pristine_folder(given: Path):
    seen = shell(CHANGE, inputs=(workspace(given),), pristine=given)
    assert origins(seen.entries) == {
        "output/final.json": "added",
        "workspace/empty": "added",
        "workspace/link": "pristine",
        "workspace/old.txt": "removed",
        "workspace/run.sh": "changed",
        "workspace/src": "pristine",
        "workspace/src/a.py": "changed",
        "workspace/src/b.py": "added",
    }
    assert seen.entry("workspace/old.txt").sha256 == hashlib.sha256(b"old\n").hexdigest()
    assert set(seen.tar()) == {
        "output/final.json",
        "workspace/empty",
        "workspace/run.sh",
        "workspace/src/a.py",
        "workspace/src/b.py",
    }
    assert seen.content("workspace/src/a.py") == b"a = 2\n"
    assert seen.frozen.final == b"{}\n"


def test_a_pristine_folder_that_was_not_laid_is_read_instead(given: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "old.txt").write_text("old\n")
    seen = shell("true", inputs=(workspace(other),), pristine=given)
    assert origins(seen.entries)["workspace/old.txt"] == "pristine"
    assert origins(seen.entries)["workspace/src/a.py"] == "removed"


def test_a_change_through_a_memory_map_is_seen(given: Path):
    code = "import mmap\nwith open('src/a.py', 'r+b') as f:\n    m = mmap.mmap(f.fileno(), 0); m[0:1] = b'z'; m.flush()"
    seen = asyncio.run(
        life(spec_of("python3", "-c", code, requires=("python3",), inputs=(workspace(given),), pristine=given))
    )
    assert origins(seen.entries)["workspace/src/a.py"] == "changed"


def test_replacing_one_kind_by_another_is_a_change(given: Path):
    seen = shell("rm old.txt; mkdir old.txt; rm link; echo x > link", inputs=(workspace(given),), pristine=given)
    assert seen.entry("workspace/old.txt").type == "dir"
    assert seen.entry("workspace/old.txt").origin == "changed"
    assert seen.entry("workspace/link").origin == "changed"


def test_equal_worlds_are_equal_bytes(given: Path):
    first = shell(CHANGE, inputs=(workspace(given),), pristine=given)
    second = shell(
        "sleep 0.01; umask 022; mkdir empty; " + CHANGE.replace("mkdir empty; ", ""),
        inputs=(workspace(given),),
        pristine=given,
    )
    assert first.lines == second.lines
    assert first.changes == second.changes
    assert first.frozen.state is not None
    assert first.frozen.state == second.frozen.state
    assert first.frozen.state.entries.sha256 == hashlib.sha256(first.lines).hexdigest()
    assert first.frozen.state.changes.sha256 == hashlib.sha256(first.changes).hexdigest()


def test_lines_are_the_canonical_form_sorted_by_raw_path():
    seen = shell("mkdir a; echo > a/x; echo > a-b; echo > a.c; echo > 'ü\"\\'; ln -s 'ö' l")
    assert b"".join(entry.to_bytes() + b"\n" for entry in seen.entries) == seen.lines
    paths = [(entry.path or "").encode() for entry in seen.entries]
    assert paths == sorted(paths)
    assert paths[:4] == [b"workspace/a", b"workspace/a-b", b"workspace/a.c", b"workspace/a/x"]


def test_excluded_paths_are_not_frozen_and_not_missed(given: Path):
    seen = shell(
        "mkdir -p node_modules/x src/node_modules; echo > node_modules/x/y; echo > src/node_modules/z; rm old.txt; echo > keep.log",
        inputs=(workspace(given),),
        pristine=given,
        exclude=("**/node_modules/**", "old.txt"),
    )
    assert set(origins(seen.entries)) - {f"workspace/{name}" for name in ("link", "run.sh", "src", "src/a.py")} == {
        "workspace/keep.log",
        "workspace/node_modules",
        "workspace/src/node_modules",
    }


def test_the_relay_gets_output_entries_and_changes_in_this_order(gateway: FakeGateway, given: Path):
    async def scenario():
        async with gateway.serve():
            spec = spec_of(
                "sh", "-c", f"echo said; {CHANGE}", inputs=(workspace(given),), pristine=given, sink=gateway.sink
            )
            async with backend().open(spec) as sandbox:
                await sandbox.ended()
                return await sandbox.freeze()

    frozen = asyncio.run(scenario())
    state = frozen.state
    assert list(gateway.blobs) == ["/launch/state/output", "/launch/state/entries", "/launch/state/changes"]
    assert gateway.blobs["/launch/state/output"] == b"said\n"
    assert frozen.output_blob.sha256 == hashlib.sha256(b"said\n").hexdigest()
    assert gateway.tokens == ["freezer-token"] * 3
    assert state.entries.key == "blobs/r/entries"
    assert state.changes.sha256 == hashlib.sha256(gateway.blobs["/launch/state/changes"]).hexdigest()
    local = asyncio.run(life(spec_of("sh", "-c", CHANGE, inputs=(workspace(given),), pristine=given)))
    assert gateway.blobs["/launch/state/entries"] == local.lines
    assert gateway.blobs["/launch/state/changes"] == local.changes


async def freeze_big(gateway: FakeGateway):
    async with gateway.serve():
        spec = spec_of("sh", "-c", "head -c 5000000 /dev/urandom > big", sink=gateway.sink)
        async with backend().open(spec) as sandbox:
            await sandbox.ended()
            return (await sandbox.freeze()).state


def test_a_lost_reply_is_repaired(gateway: FakeGateway):
    gateway.lose_replies = 1
    state = asyncio.run(freeze_big(gateway))
    assert gateway.tokens == ["freezer-token"] * 3
    assert state.changes.size == len(gateway.blobs["/launch/state/changes"]) > 5_000_000


def test_a_relay_that_holds_other_bytes_is_not_believed(gateway: FakeGateway):
    gateway.lie = True
    with pytest.raises(SandboxError, match="holds other bytes") as caught:
        asyncio.run(freeze_big(gateway))
    assert caught.value.cause == "freeze"


def test_a_store_that_fails_behind_the_relay_is_named(gateway: FakeGateway):
    gateway.failing = "store_full"
    with pytest.raises(StoreError, match="503") as caught:
        asyncio.run(freeze_big(gateway))
    assert caught.value.cause == "store_full"


def test_a_relay_that_is_not_there_is_our_failure(gateway: FakeGateway):
    async def scenario():
        sink = replace(gateway.sink, socket=str(gateway.folder / "nobody"))
        async with backend().open(spec_of("true", sink=sink)) as sandbox:
            await sandbox.ended()
            await sandbox.freeze()

    with pytest.raises(SandboxError, match="did not take the frozen entries: No such file"):
        asyncio.run(scenario())


def test_without_a_sink_only_output_and_answer_come_back():
    async def scenario():
        async with backend().open(spec_of("sh", "-c", "echo hi; echo x > f; echo 1 > /output/final.json")) as sandbox:
            return await sandbox.freeze()

    frozen = asyncio.run(scenario())
    assert (frozen.state, frozen.output, frozen.final) == (None, b"hi\n", b"1\n")
