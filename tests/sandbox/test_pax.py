"""Our tar headers are read by Python's own tarfile as they were meant."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from orchestrator.sandbox.keeper.pax import END, header, padding


@pytest.mark.parametrize(
    "name", [b"a", b"a" * 100, b"b" * 101, b"deep/" * 800 + b"x", "ü".encode(), b"\xff\xfe", b"new\nline"]
)
def test_names(name):
    data = header(name, "file", 0o4755, 3) + b"abc" + padding(3) + header(name + b"d", "dir", 0o700, 0)
    data += header(name + b"l", "symlink", 0o777, 0, name) + END
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        file, folder, link = archive.getmembers()
        assert archive.extractfile(file).read() == b"abc"
    assert os.fsencode(file.name) == name
    assert (file.mode, file.uid, file.uname, file.mtime) == (0o755, 0, "", 0)
    assert folder.isdir()
    assert os.fsencode(folder.name) == name + b"d"
    assert os.fsencode(link.linkname) == name


def test_sizes_beyond_what_octal_digits_hold():
    size = 9 * 2**30
    with tarfile.open(fileobj=io.BytesIO(header(b"x", "file", 0o644, size)), mode="r:") as archive:
        assert archive.next().size == size
