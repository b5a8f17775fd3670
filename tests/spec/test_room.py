"""A workspace that the disk of its own task cannot hold is the author's mistake, found before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import load_suite
from orchestrator.spec.room import Room


def text(disk: str) -> str:
    return f"id: one\ninstruction: Work.\nenvironment:\n  resources: {{disk: {disk}}}\nchecks: [{{id: a, type: files, path: f0}}]\n"


@pytest.mark.parametrize(
    ("size", "files", "fits"), [((1 << 20) - 4096, 1, True), (1 << 20, 1, False), (1, 255, True), (1, 256, False)]
)
def test_the_workspace_fits_on_the_disk(write, tmp_path: Path, size: int, files: int, fits: bool) -> None:
    write("small/suite.yaml", "id: small\n")
    write("small/one/task.yaml", text("1Mi"))
    for number in range(files):
        write(f"small/one/workspace/f{number}", "x" * size)
    if fits:
        assert load_suite(tmp_path / "small").tasks[0].task.id == "one"
        return
    with pytest.raises(SpecError) as caught:
        load_suite(tmp_path / "small")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (4, "environment.resources.disk")
    assert "the disk has 1,048,576" in problem.message


@pytest.mark.parametrize(("paths", "fits"), [(65535, True), (65536, False)])
def test_empty_files_need_room_too(paths: int, fits: bool) -> None:
    room = Room(1 << 20)
    for _ in range(paths):
        room.take(0)
    assert (room.problem() is None) == fits
    assert fits or "65,536 paths" in room.problem()
