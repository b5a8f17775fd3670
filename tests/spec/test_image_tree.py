"""What comes out of an image's folder, and what must not."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.spec import room
from orchestrator.spec.bundle import Item, Reader
from orchestrator.spec.image_tree import extract
from orchestrator.spec.room import NoRoomError

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6).filter(
    lambda name: name not in {".", ".."}
)


def member(
    name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **fields: object
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode = kind, len(data), 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, tarfile.SYMTYPE, linkname=target)


TOP = member("testbed", tarfile.DIRTYPE)


def items(folder: Path) -> list[Item]:
    reader = Reader(everything=True)
    found = reader.tree(folder)
    assert not reader.problems
    return sorted(found, key=lambda item: item.path)


def test_files_folders_links_and_second_names_come_out(tmp_path: Path) -> None:
    told = extract(
        tar(
            TOP,
            member("testbed/run", data=b"#!", mode=0o4755),
            member("testbed/.git", tarfile.DIRTYPE, mode=0o700),
            member("testbed/.git/HEAD", data=b"ref", mode=0o400),
            member("testbed/hard", tarfile.LNKTYPE, linkname="testbed/.git/HEAD"),
            link("testbed/.git/up", "../run"),
            link("testbed/abs", "/testbed/.git/HEAD"),
            link("testbed/.git/self", "/testbed"),
            link("testbed/.git/round", "../../testbed/run"),
            member("testbed/empty", tarfile.DIRTYPE, mode=0o1777),
        ),
        "/testbed/",
        tmp_path / "out",
    )
    assert told == []
    assert items(tmp_path / "out") == [
        Item(".git/HEAD", data=b"ref"),
        Item(".git/round", "symlink", 0o777, b"../run"),
        Item(".git/self", "symlink", 0o777, b".."),
        Item(".git/up", "symlink", 0o777, b"../run"),
        Item("abs", "symlink", 0o777, b".git/HEAD"),
        Item("empty", "dir", 0o755),
        Item("hard", data=b"ref"),
        Item("run", mode=0o755, data=b"#!"),
    ]
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in (tmp_path / "out").rglob("*") if not path.is_symlink()}
    assert modes == {0o755, 0o644}


def test_what_no_bundle_holds_is_told_and_left_out(tmp_path: Path) -> None:
    told = extract(
        tar(
            TOP,
            member("testbed/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
            member("testbed/disk", tarfile.BLKTYPE),
            member("testbed/pipe", tarfile.FIFOTYPE),
            link("testbed/python", "/usr/bin/python3"),
            link("testbed/out", "../etc/passwd"),
            member("testbed/second", tarfile.LNKTYPE, linkname="testbed/pipe"),
            member("testbed/third", tarfile.LNKTYPE, linkname="../../etc/passwd"),
            member("testbed/bad\udcff", data=b"x"),
            member("testbed/good", data=b"x"),
        ),
        "/testbed",
        tmp_path / "out",
    )
    assert told == [
        "null is no file, folder or symbolic link",
        "disk is no file, folder or symbolic link",
        "pipe is no file, folder or symbolic link",
        "python is a symbolic link to '/usr/bin/python3'; only relative targets are kept",
        "out is a symbolic link to '../etc/passwd', which leaves the folder",
        "second is a second name of 'pipe', which is not there",
        "third is a second name of '../../etc/passwd', which is not there",
        "bad\\xff has a name that is not UTF-8",
    ]
    assert [item.path for item in items(tmp_path / "out")] == ["good"]


class Endless(io.RawIOBase):
    """A tar without end: members of one kind, or zeros after the first one."""

    def __init__(self, kind: bytes, size: int = 0) -> None:
        self.taken = 0
        self._kind, self._size = kind, size
        self._data = TOP[0].tobuf()

    def read(self, size: int = -1) -> bytes:
        self.taken += size
        if self.taken > 20 << 20:
            raise OSError(0, "there was no end of it")
        while len(self._data) < size:
            name = f"testbed/{self.taken}-{len(self._data)}"
            self._data += member(name, self._kind, size=self._size)[0].tobuf() + bytes(min(self._size, 1 << 20))
        data, self._data = self._data[:size], self._data[size:]
        return data


@pytest.mark.parametrize(
    ("kind", "size"), [(tarfile.REGTYPE, 1 << 60), (tarfile.REGTYPE, 0), (tarfile.DIRTYPE, 0), (tarfile.CHRTYPE, 0)]
)
def test_an_image_does_not_fill_this_machine(
    kind: bytes, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a sparse file of a billion gigabytes, or by empty files, folders or devices without number."""
    monkeypatch.setattr(room, "_FEWEST_PATHS", 256)
    with pytest.raises(NoRoomError, match="/testbed does not fit"):
        extract(Endless(kind, size), "/testbed", tmp_path / "out", 1 << 20)  # type: ignore[arg-type]
    assert len(list((tmp_path / "out").iterdir())) <= 256


@pytest.mark.parametrize(
    "members",
    [
        (member("../escape", data=b"x"),),
        (member("testbed/../../escape", data=b"x"),),
        (link("testbed/d", ".."), member("testbed/d/escape", data=b"x")),
        (link("testbed/a/up", ".."), link("testbed/a/up/up", "../.."), member("testbed/a/up/up/escape", data=b"x")),
        (
            member("testbed/d", tarfile.DIRTYPE),
            link("testbed/d/l", ".."),
            member("testbed/d/l/escape", tarfile.DIRTYPE),
        ),
    ],
)
def test_nothing_is_written_outside(tmp_path: Path, members: tuple[tuple[tarfile.TarInfo, bytes], ...]) -> None:
    (tmp_path / "in").mkdir()
    told = extract(tar(TOP, *members), "/testbed", tmp_path / "in/out")
    assert told
    assert [path for path in tmp_path.rglob("escape") if not path.is_relative_to(tmp_path / "in/out")] == []


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (tar(member("testbed", data=b"x")), "/testbed is no folder; name a folder"),
        (tar(link("testbed", "/srv")), "/testbed is a symbolic link to '/srv'"),
        (tar(), "empty"),
        (io.BytesIO(b"no tar " * 200), "cannot be read"),
        (io.BytesIO(tar(TOP, member("testbed/a", data=b"x" * 9000)).getvalue()[:4000]), "cannot be read"),
    ],
)
def test_what_is_no_folder_is_refused(tmp_path: Path, archive: io.BytesIO, words: str) -> None:
    archive.seek(0)
    with pytest.raises(ValueError, match=words):
        extract(archive, "/testbed", tmp_path / "out")


@settings(max_examples=25, deadline=None)
@given(files=st.dictionaries(NAMES, st.binary(max_size=30), max_size=5), data=st.data())
def test_every_tree_of_plain_files_comes_out_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], data: st.DataObject
) -> None:
    folder = data.draw(NAMES)
    top = tmp_path_factory.mktemp("tree")
    members = [member(f"x/{folder}", tarfile.DIRTYPE)]
    members += [member(f"x/{folder}/{name}", data=content) for name, content in files.items()]
    archive = tar(member("x", tarfile.DIRTYPE), *data.draw(st.permutations(members)))
    assert extract(archive, "/deep/er/x", top / "out") == []
    found = {
        os.path.relpath(path, top / "out" / folder): path.read_bytes() for path in (top / "out" / folder).iterdir()
    }
    assert found == files
