"""Files with holes are read as they are, and the holes are not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.sandbox.keeper import holes
from orchestrator.sandbox.keeper.holes import read_out

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def made(file: Path, size: int, islands: dict[int, bytes]) -> bytes:
    with file.open("wb") as out:
        for at, data in islands.items():
            out.seek(at)
            out.write(data)
        out.truncate(size)
    return file.read_bytes()


def read(file: Path, size: int) -> bytes:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return b"".join(read_out(descriptor, size))
    finally:
        os.close(descriptor)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    size=st.integers(0, 3 * MIB),
    islands=st.dictionaries(st.integers(0, 4 * MIB), st.binary(min_size=1, max_size=9000), max_size=4),
    asked=st.integers(0, 4 * MIB),
)
def test_every_byte_is_where_it_was(file: Path, size: int, islands: dict[int, bytes], asked: int):
    content = made(file, size, islands)
    assert read(file, asked) == content[:asked]


def test_holes_are_not_read(file: Path, monkeypatch: pytest.MonkeyPatch):
    content = made(file, 256 * MIB, {100 * MIB: b"island", 200 * MIB + 5: b"another"})
    if file.stat().st_blocks * 512 > MIB:
        pytest.skip("this file system keeps no holes")
    taken: list[int] = []

    def pread(descriptor: int, size: int, at: int) -> bytes:
        taken.append(size)
        return real(descriptor, size, at)

    real = os.pread
    monkeypatch.setattr(holes.os, "pread", pread)
    assert read(file, 256 * MIB) == content
    assert sum(taken) < MIB


def test_a_disk_that_does_not_say_where_its_holes_are_is_read_whole(file: Path, monkeypatch: pytest.MonkeyPatch):
    content = made(file, 2 * MIB, {MIB: b"island"})

    def lseek(*_: int) -> int:
        raise OSError(22, "invalid argument")

    monkeypatch.setattr(holes.os, "lseek", lseek)
    assert read(file, 2 * MIB) == content


def test_a_file_that_has_shrunk_ends_early(file: Path):
    file.write_bytes(b"abc")
    assert read(file, 10) == b"abc"
