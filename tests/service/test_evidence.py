"""Nothing is read before its digest is proven, and a state that contradicts itself is an error of the grading, never a result."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grader_world import RUN, TRIAL, GraderWorld, entries_and_tar, lines

from grader_service.child.assemble import EvidenceError, assemble, read_entries
from grader_service.evidence import NothingToGradeError
from grader_service.grade import grade
from orchestrator.records import keys
from orchestrator.records.outcome import Outcome

CHECKS = [{"id": "answer", "type": "files", "path": "answer.txt", "equals": "42\n"}]
BEFORE = {"answer.txt": "0\n"}
AFTER = {"answer.txt": "42\n"}


def blob_file(world: GraderWorld, number: int) -> Path:
    files = [path for path in (world.store_folder / "blobs").rglob("*") if path.is_file()]
    return sorted(files, key=lambda path: path.stat().st_size)[number]


@pytest.mark.parametrize("how", ["changed", "longer", "gone"])
@pytest.mark.parametrize("blob", [0, 1])
def test_bytes_that_are_not_what_was_committed_are_a_permanent_error(world: GraderWorld, how: str, blob: int) -> None:
    world.task(BEFORE, CHECKS)
    world.left(AFTER)
    path = blob_file(world, blob)
    path.chmod(0o644)
    if how == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data + b"\n" if how == "longer" else bytes([data[0] ^ 1]) + data[1:])
    verdict = world.grade()
    assert (verdict.result, verdict.error.type) == ("grader_error", "evidence")
    assert str(world.folder) not in lines(verdict)
    assert len(world.stored_verdicts()) == 1, "permanent, so it is kept"


def test_two_winners_are_a_permanent_error(world: GraderWorld) -> None:
    world.task(BEFORE, CHECKS)
    world.left(AFTER)
    world.left(AFTER, launch=2)
    verdict = world.grade()
    assert verdict.error.type == "evidence"


@pytest.mark.parametrize("how", ["own", "earlier", "delivered_again", "another", "another_launch", "none"])
def test_a_state_that_no_relay_took_in_is_not_graded(world: GraderWorld, how: str) -> None:
    world.task(BEFORE, CHECKS)
    world.left(AFTER, epoch=3)
    (name,) = asyncio.run(world.store.list(keys.outcomes(RUN, TRIAL)))
    state = Outcome.from_bytes(asyncio.run(world.store.get(name)), name).state
    assert state is not None
    if how == "delivered_again":
        state = state.model_copy(update={"changes": state.changes.model_copy(update={"key": "blobs/r/other"})})
    if how == "another":
        state = state.model_copy(update={"entries": state.changes})
    if how != "none":
        launch, epoch = 2 if how == "another_launch" else 1, 2 if how == "earlier" else 3
        key = keys.record(RUN, TRIAL, launch, epoch, "state.json")
        asyncio.run(world.store.create(key, state.to_bytes()))
    verdict = asyncio.run(grade(replace(world.grading(), relayed=True), RUN, TRIAL))
    if how in {"own", "earlier", "delivered_again"}:
        assert verdict.result == "passed", lines(verdict)
    else:
        assert (verdict.result, verdict.error and verdict.error.type) == ("grader_error", "evidence")
        assert "the relay did not take in" in lines(verdict)


def test_lost_launches_before_the_result_do_not_matter(world: GraderWorld) -> None:
    world.task(BEFORE, CHECKS)
    world.left(None, outcome_class="infra", termination_reason="infra_lost")
    with pytest.raises(NothingToGradeError, match="ended as infra"):
        world.grade()
    world.left(AFTER, launch=2)
    assert (world.grade().result, world.grade().launch) == ("passed", 2)


def member(
    name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"42\n", target: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data if kind == tarfile.REGTYPE else b""


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


GOOD = member("workspace/answer.txt")
TARS = {
    "twice": tar_of(GOOD, GOOD),
    "traversal": tar_of(GOOD, member("workspace/../../escaped")),
    "absolute": tar_of(GOOD, member("/escaped")),
    "not listed": tar_of(GOOD, member("workspace/other")),
    "hard link": tar_of(member("workspace/answer.txt", tarfile.LNKTYPE, target="/etc/passwd")),
    "device": tar_of(GOOD, member("workspace/device", tarfile.CHRTYPE)),
    "symlink for a file": tar_of(member("workspace/answer.txt", tarfile.SYMTYPE, target="/etc/passwd")),
    "other bytes": tar_of(member("workspace/answer.txt", data=b"43\n")),
    "other size": tar_of(member("workspace/answer.txt", data=b"42\n\n")),
    "missing": tar_of(),
    "garbage": b"\xff" * 2048,
    "cut": tar_of(GOOD)[:700],
}


def lay(folder: Path, entries: bytes, changes: bytes, *, limit: int = 1 << 20) -> Path:
    for name in ("pristine", "root"):
        (folder / name).mkdir()
    (folder / "pristine" / "answer.txt").write_text("0\n")
    (folder / "entries.jsonl").write_bytes(entries)
    (folder / "changes.tar").write_bytes(changes)
    assemble(
        read_entries(str(folder / "entries.jsonl")),
        changes=str(folder / "changes.tar"),
        pristine=str(folder / "pristine"),
        root=str(folder / "root"),
        limit_bytes=limit,
    )
    return folder / "root"


@pytest.mark.parametrize("name", TARS)
def test_a_tar_that_no_honest_freezer_writes_is_refused(tmp_path: Path, name: str) -> None:
    entries, _ = entries_and_tar(BEFORE, AFTER)
    if name == "absolute":  # members outside of the workspace are not ours to lay, and stay unread
        assert [path.name for path in lay(tmp_path, entries, TARS[name]).iterdir()] == ["answer.txt"]
        assert not Path("/escaped").exists()
        return
    with pytest.raises(EvidenceError):
        lay(tmp_path, entries, TARS[name])
    assert not (tmp_path / "escaped").exists()


def edited(change: Callable[[dict[str, Any]], Any]) -> bytes:
    entries, _ = entries_and_tar(BEFORE, AFTER)
    entry = json.loads(entries.splitlines()[0])
    change(entry)
    return json.dumps(entry).encode() + b"\n"


ENTRY_LISTS = {
    "no json": b"{\n",
    "nested": b"[" * 60000 + b"\n",
    "traversal": edited(lambda e: e.update(path="workspace/../x")),
    "empty part": edited(lambda e: e.update(path="workspace//x")),
    "nul": edited(lambda e: e.update(path="workspace/a\0b")),
    "twice": edited(lambda e: None) * 2,
    "type": edited(lambda e: e.update(type="door")),
    "size": edited(lambda e: e.update(size="3")),
    "negative": edited(lambda e: e.update(size=-3)),
    "huge": edited(lambda e: e.update(size=1 << 50)),
    "below a file": edited(lambda e: None)
    + edited(lambda e: e.update(path="workspace/answer.txt/x", origin="pristine")),
    "long line": edited(lambda e: e.update(target="x" * 70000)),
}


@pytest.mark.parametrize("name", ENTRY_LISTS)
def test_an_entry_list_that_no_honest_freezer_writes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(EvidenceError):
        lay(tmp_path, ENTRY_LISTS[name], TARS["missing"] if name == "below a file" else tar_of(GOOD))


def test_a_self_contradicting_state_becomes_a_verdict_of_its_own(world: GraderWorld) -> None:
    world.task(BEFORE, CHECKS)
    entries, _ = entries_and_tar(BEFORE, AFTER)
    world.committed((entries, TARS["twice"]))
    verdict = world.grade()
    assert verdict.error.type == "evidence"
    assert "answer.txt" in verdict.error.message


def test_the_same_trial_of_another_run_is_not_there(world: GraderWorld) -> None:
    with pytest.raises(NothingToGradeError, match=f"no run {RUN!r}"):
        world.grade()
    assert TRIAL.sample == 1


@pytest.mark.parametrize(
    "check", [CHECKS[0], {"id": "d", "type": "diff", "allow": ["**"]}, {"id": "x", "type": "files", "path": "x"}]
)
def test_a_file_that_is_called_pristine_and_was_never_given_is_found_whatever_is_checked(
    world: GraderWorld, check: dict[str, Any]
) -> None:
    world.task(BEFORE, [check, CHECKS[0] | {"id": "other"}])
    entries, changes = entries_and_tar(BEFORE, AFTER)
    world.committed((entries + edited(lambda e: e.update(path="workspace/made/up", origin="pristine")), changes))
    verdict = world.grade()
    assert verdict.error.type == "evidence"
    assert "made/up" in verdict.error.message


def test_the_manifest_of_a_run_is_read_once_by_a_service(world: GraderWorld) -> None:
    world.task(BEFORE, CHECKS)
    world.left(AFTER)
    grading, asked = world.grading(), Counter[str]()
    get = grading.store.get

    async def counting(key: str) -> bytes:
        asked[key] += 1
        return await get(key)

    object.__setattr__(grading, "store", Counted(grading.store, counting))

    async def several() -> list[str]:
        return [(await grade(grading, RUN, TRIAL)).result for _ in range(3)]

    assert asyncio.run(several()) == ["passed"] * 3
    assert asked[keys.manifest(RUN)] == 1
    assert sum(count for key, count in asked.items() if key.startswith("grades/")) == 2  # whoever wrote it knows it


class Counted:
    """A store whose ``get`` is another one."""

    def __init__(self, store: Any, get: Any) -> None:
        self._store, self.get = store, get

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
