"""Kernels without ``openat2`` (gVisor's): the same files are opened, the same links refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.sandbox.keeper import linux


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("x")
    (tmp_path / "a/link").symlink_to("b")
    (tmp_path / "a/b/up").symlink_to("/etc/passwd")
    return tmp_path


@pytest.mark.parametrize(
    "path",
    ["a/b/file", "a/b", ".", "a/link/file", "a/b/up", "a/../a/b/file", "/etc/passwd", "a/b/none", "a//b", "a/b/file/x"],
)
def test_parts_agree_with_the_kernels_own_call(root: Path, path: str, monkeypatch: pytest.MonkeyPatch):
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)

    def opened() -> tuple[int, int] | None:
        before = len(os.listdir("/proc/self/fd"))
        try:
            descriptor = linux.open_beneath(top, path.encode(), os.O_RDONLY)
        except OSError:
            assert len(os.listdir("/proc/self/fd")) == before
            return None
        assert len(os.listdir("/proc/self/fd")) == before + 1
        info = os.fstat(descriptor)
        os.close(descriptor)
        return info.st_dev, info.st_ino

    try:
        own = opened()
        monkeypatch.setattr(linux, "_SYS_OPENAT2", 100_000)  # no such call: ENOSYS
        parts = opened()
    finally:
        os.close(top)
    if path not in ("a/../a/b/file", "a//b"):  # refused, though they stay inside: we never make such names
        assert parts == own
    assert (parts is None) == (path not in ("a/b/file", "a/b", "."))
