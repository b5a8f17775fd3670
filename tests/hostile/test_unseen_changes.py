"""Programs that change a file of the workspace so that its size, times and inode do not tell, or that reach for the bundle itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from laid_world import WAYS, given_bundle
from sandbox_world import life, spec_of

from orchestrator.spec.bundle import Item
from orchestrator.spec.listing import read_listing

ways = pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=pytest.mark.skipif(way == "overlay" and os.geteuid() != 0, reason="needs root"))
        for way in WAYS[:2]
    ],
)
BEFORE = b"expected = 41  # line\n" * 400
ITEMS = [Item(f"workspace/d/{name}", data=BEFORE) for name in "abcdefghijk"] + [
    Item("workspace/d/left_alone", data=BEFORE)
]

TRICKS = """
import ctypes, mmap, os, shutil, time
WAS, NOW = b"41", b"42"
def restore(path, seen):
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
def stealthy(path, act):
    seen = os.stat(path); act(path); restore(path, seen)
def mapped(path):                                # on a tmpfs, no time changes for a page that was read before it was written
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        at = m.find(WAS); m[at:at + 2] = NOW
def written(path):
    fd = os.open(path, os.O_RDWR); os.pwrite(fd, NOW, 11)
def through_a_link(path):
    os.link(path, "extra"); written("extra"); os.unlink("extra")
def renamed_over(path):
    shutil.copy2(path, "new"); written("new"); os.rename("new", path)
def another_inode(path):
    seen = os.stat(path); data = open(path, "rb").read(); os.unlink(path)
    open(path, "wb").write(data.replace(WAS, NOW)); os.chmod(path, seen.st_mode)
def away_and_back(path):
    os.rename("d", "e"); mapped("e/" + os.path.basename(path)); os.rename("e", "d")
def while_another_name(path):
    os.rename(path, "x"); mapped("x"); os.rename("x", path)
def punched(path):
    ctypes.CDLL(None).fallocate(os.open(path, os.O_RDWR), 3, ctypes.c_long(0), ctypes.c_long(4096))
def swapped(path):
    os.rename("d", "old"); os.mkdir("d")
    for name in os.listdir("old"):
        if name != os.path.basename(path): os.rename("old/" + name, "d/" + name)
    shutil.copy2("old/" + os.path.basename(path), path); written(path); shutil.rmtree("old")
def before_it_was_unlinked(path):
    fd = os.open(path, os.O_RDWR); os.rename(path, "gone"); shutil.copy2("gone", path); os.unlink("gone"); written(path)
def opened_then_closed_late(path):
    fd = os.open(path, os.O_RDWR); m = mmap.mmap(fd, 0); m.find(WAS)
    if os.fork() == 0:
        time.sleep(0.05); m[11:13] = NOW; os._exit(0)
    os.wait()
acts = [mapped, written, through_a_link, renamed_over, another_inode, away_and_back, while_another_name, punched, swapped,
        before_it_was_unlinked, opened_then_closed_late]
for name, act in zip("abcdefghijk", acts): stealthy("d/" + name, act)
try: time.clock_settime(time.CLOCK_REALTIME, 1); print("CLOCK SET")
except OSError: pass
"""


@ways
def test_no_change_hides_behind_sizes_times_and_inodes(tmp_path: Path, way: str) -> None:
    given = given_bundle(tmp_path / "x", ITEMS)
    seen = given.run(way, "python3", "-c", TRICKS)
    assert (seen.ending.exit.code, seen.output) == (0, "")
    origins = {entry.path: entry.origin for entry in seen.entries if entry.type == "file"}
    assert origins.pop("workspace/d/left_alone") == "pristine"
    assert origins == {f"workspace/d/{name}": "changed" for name in "abcdefghijk"}
    assert all(seen.content(f"workspace/d/{name}") != BEFORE for name in "abcdefghijk")


POISON = """
import ctypes, fcntl, mmap, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, act):
    try: act()
    except (OSError, ValueError): return
    print("ALLOWED", name)
reading = os.open("d/a", os.O_RDONLY)
attempt("write to what is open for reading", lambda: os.write(reading, b"x"))
attempt("truncate", lambda: os.ftruncate(reading, 0))
attempt("map for writing", lambda: mmap.mmap(reading, 0, mmap.MAP_SHARED, mmap.PROT_WRITE))
shared = mmap.mmap(reading, 0, mmap.MAP_SHARED, mmap.PROT_READ)
where = int(next(line for line in open("/proc/self/maps") if "/d/a" in line).split("-")[0], 16)
attempt("make a mapping writable", lambda: libc.mprotect(ctypes.c_void_p(where), 4096, 3) and os.stat("/none"))
def memory():
    with open("/proc/self/mem", "r+b", buffering=0) as own: own.seek(where); own.write(b"POISON")
attempt("write through /proc/self/mem", memory)
attempt("whiteout", lambda: os.mknod("white", 0o020000, 0))
for name in ("trusted.overlay.redirect", "trusted.overlay.opaque", "trusted.x", "security.capability"):
    attempt(name, lambda: os.setxattr("d", name, b"/"))
attempt("mount", lambda: libc.mount(b"d", b"/tmp", b"", 4096, None) and os.stat("/none"))
attempt("immutable", lambda: fcntl.ioctl(os.open("d/b", os.O_RDONLY), 0x40086602, struct.pack("l", 0x10)))
attempt("open by handle", lambda: libc.open_by_handle_at(-100, b"\\0" * 64, 0) < 0 and os.stat("/none"))
for name in os.listdir("d"):
    with open("d/" + name, "r+b") as f, mmap.mmap(f.fileno(), 0) as m: m[0:6] = b"POISON"
print(open("d/a").read(6), shared[:6] in (b"expect", b"POISON"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can show a workspace through an overlay")
def test_the_bundle_stays_as_it_is_whatever_those_do_who_share_it(tmp_path: Path, kind: str) -> None:
    given = given_bundle(tmp_path / "x", ITEMS)
    os.chmod(given.folder, 0o755)
    before = read_listing(given.folder)
    times = {path: path.stat().st_ctime_ns for path in given.folder.rglob("*")}

    async def all_at_once() -> list[str]:
        fields = given.fields("overlay") | {"requires": ("python3",)}
        specs = [spec_of("python3", "-c", POISON, name=f"poison{number}", **fields) for number in range(3)]
        quiet = spec_of("sh", "-c", "sleep 0.5; cat d/a | head -c 6", name="quiet", **fields)
        return [seen.output for seen in await asyncio.gather(*map(life, [*specs, quiet]))]

    *loud, quiet = asyncio.run(all_at_once())
    # Containers get a copy: what an overlay would take for a whiteout is a file without meaning there, on a file system without devices.
    assert loud == ["ALLOWED whiteout\nPOISON True\n" if kind == "container" else "POISON True\n"] * 3
    assert quiet == "expect"
    assert read_listing(given.folder) == before
    assert {path: path.stat().st_ctime_ns for path in given.folder.rglob("*")} == times
