"""The copier: a workspace out of a task's image."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from supervised_world import Pod


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder as an image may have it, with everything that a workspace can hold."""
    folder = tmp_path / "image"
    (folder / "src/deep/er").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "src/a.py").write_bytes(b"a = 1\n" * 500_000)
    (folder / "src/deep/er/none").touch()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o4755)
    (folder / "private").write_text("x")
    (folder / "private").chmod(0o600)
    (folder / os.fsdecode(b"not\xfftext\nat all")).write_text("y")
    (folder / "src/link").symlink_to("deep/er/none")
    (folder / "src/deep/up").symlink_to("../../run.sh")
    (folder / "src/deep/absolute").symlink_to("/image/src/a.py")
    (folder / "top").symlink_to("/image")
    (folder / "dangling").symlink_to("nothing")
    (folder / "empty").chmod(0o2777)
    return folder


def copied(pod: Pod, image: Path, source: str = "/image") -> int:
    return pod.run(source, "/workspace", verb=("copy",), binds=("--ro-bind", str(image), "/image"))


def test_everything_is_copied_with_plain_modes(tmp_path: Path, image: Path):
    pod = Pod(tmp_path / "pod")
    pod.workspace.chmod(0o2777)
    assert copied(pod, image) == 0
    at = pod.workspace
    assert (at / "src/a.py").read_bytes() == b"a = 1\n" * 500_000
    assert {os.fsencode(p.relative_to(at)) for p in at.rglob("*")} == {
        os.fsencode(p.relative_to(image)) for p in image.rglob("*")
    }
    modes = {p.relative_to(at).as_posix(): stat.S_IMODE(p.lstat().st_mode) for p in at.rglob("*") if not p.is_symlink()}
    assert (modes["run.sh"], modes["private"], modes["empty"], modes["src/deep"]) == (0o755, 0o644, 0o755, 0o755)
    links = {p.relative_to(at).as_posix(): os.readlink(p) for p in at.rglob("*") if p.is_symlink()}
    assert links == {
        "src/link": "deep/er/none",
        "src/deep/up": "../../run.sh",
        "src/deep/absolute": "../../src/a.py",
        "top": ".",
        "dangling": "nothing",
    }


def test_a_slash_at_the_end_changes_nothing(tmp_path: Path, image: Path):
    pod = Pod(tmp_path / "pod")
    assert copied(pod, image, "/image//") == 0
    assert os.readlink(pod.workspace / "src/deep/absolute") == "../../src/a.py"


def test_what_no_workspace_can_hold_is_told_all_at_once(tmp_path: Path, image: Path):
    pod = Pod(tmp_path / "pod")
    (image / "out").symlink_to("/etc/passwd")
    (image / "src/above").symlink_to("../../x")
    (image / "src/through").symlink_to("deep/../../run.sh")
    (image / "src/almost").symlink_to("/image2/x")
    os.mkfifo(image / "src/pipe")
    assert copied(pod, image) == 47
    told = json.loads(pod.termination.read_text())
    assert told["cause"] == "image_path"
    assert "5 paths" in told["message"]
    for name in (
        "/image/out is a symbolic link",
        "/image/src/above",
        "/image/src/through",
        "/image/src/almost",
        "/image/src/pipe is no file",
    ):
        assert name in told["message"]
    assert (pod.workspace / "src/a.py").exists()


def test_an_image_without_the_folder(tmp_path: Path, image: Path):
    pod = Pod(tmp_path / "pod")
    assert copied(pod, image, "/testbed") == 47
    assert (
        "/testbed of the task's image cannot be read: No such file or directory"
        in json.loads(pod.termination.read_text())["message"]
    )


def test_a_full_volume_is_no_fault_of_the_image(tmp_path: Path, image: Path):
    pod = Pod(tmp_path / "pod")
    code = pod.run(
        "/image",
        "/small",
        verb=("copy",),
        binds=("--ro-bind", str(image), "/image", "--size", "65536", "--tmpfs", "/small"),
    )
    assert code == 49
    message = json.loads(pod.termination.read_text())["message"]
    assert "cannot copy /image/src/a.py to /small: No space left on device" in message
