"""A workspace that is shown instead of copied: to the agent and to who reads the state it is as if it had been laid."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laid_world import WAYS, Given, given_bundle

from orchestrator.interfaces import Input
from orchestrator.sandbox.keeper import overlay
from orchestrator.sandbox.keeper.areas import Areas
from orchestrator.spec.bundle import Item

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can show a workspace through an overlay")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Given:
    return given_bundle(tmp_path_factory.mktemp("given") / "x")


LOOK = """
for p in . a a/f c/tool link hollow; do stat -c '%n %u %g %a %F' $p; done
stat -f -c %T .; id -u; cat link; c/tool; ls -a hollow
"""


@needs_root
def test_it_is_an_overlay_and_looks_as_if_it_were_laid(bundle: Given) -> None:
    shown, laid = (bundle.run(way, "sh", "-c", LOOK) for way in ("overlay", "list"))
    assert "overlayfs" in shown.output
    assert shown.output.replace("overlayfs", "tmpfs") == laid.output
    assert (shown.lines, shown.changes) == (laid.lines, laid.changes)
    assert {entry.origin for entry in shown.entries} == {"pristine"}


PLAIN = r"""
import fcntl, mmap, os, stat
os.rename("a", "z"); os.rename("c", "a"); os.rename("z/deep", "a/deep")          # folders of the bundle, over each other's names
print(open("a/f").read(), open("z/f").read(), sorted(os.listdir("a")))
os.link("a/same", "hard"); print(os.stat("a/same").st_nlink, os.path.samefile("a/same", "hard"))
before = os.stat("README").st_ino
with open("README", "r+") as f: f.write("WROTE"); f.flush(); os.fsync(f.fileno())
print(os.stat("README").st_ino == before, open("README").read())
os.chmod("z/f", 0o600); print(oct(os.stat("z/f").st_mode)); os.utime("z/f", (1, 1)); print(os.stat("z/f").st_mtime)
os.truncate("a/deep/er/x", 3); print(open("a/deep/er/x").read())
with open("a/tool", "r+b") as f, mmap.mmap(f.fileno(), 0) as m: m[0:1] = b"%"
print(open("a/tool").read(2)); fcntl.flock(open("a/tool"), fcntl.LOCK_EX)
os.rmdir("hollow"); os.mkdir("hollow"); os.setxattr("a/f", "user.x", b"1"); print(os.getxattr("a/f", "user.x"))
os.symlink("nowhere", "l2"); os.mkfifo("pipe"); os.replace("l2", "link"); print(os.readlink("link"))
"""


@needs_root
def test_everything_that_works_in_a_plain_folder_works(bundle: Given) -> None:
    seen = [bundle.run(way, "python3", "-c", PLAIN) for way in WAYS]
    assert seen[0].ending.exit.code == 0, seen[0].output
    assert len({each.output for each in seen}) == 1
    assert len({(each.lines, each.changes) for each in seen}) == 1
    assert len({tuple(each.frozen.findings) for each in seen}) == 1


PATHS = [
    "README",
    "a",
    "a/f",
    "a/same",
    "a/deep",
    "a/deep/er",
    "a/deep/er/x",
    "c",
    "c/f",
    "c/same",
    "c/tool",
    "hollow",
    "link",
    "n",
    "n/m",
]
PATH = st.sampled_from(PATHS)
ACTION = st.one_of(
    st.tuples(st.just("write"), PATH, st.sampled_from(["", "f of c\n", "f of a\n", "same in both\n"])),
    st.tuples(st.sampled_from(["append", "unlink", "rmtree", "mkdir", "touch", "rewrite"]), PATH),
    st.tuples(st.sampled_from(["rename", "exchange", "link", "symlink", "copy"]), PATH, PATH),
    st.tuples(st.just("chmod"), PATH, st.sampled_from([0o600, 0o644, 0o700, 0o755])),
)
ACT = """
import ctypes, json, os, shutil, sys
libc = ctypes.CDLL(None, use_errno=True)
def exchange(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2): raise OSError(ctypes.get_errno(), "")
def write(p, t): open(p, "w").write(t)
def append(p): open(p, "a").write("more")
def rewrite(p): t = open(p).read(); open(p, "w").write(t)
def touch(p): os.utime(p)
do = dict(write=write, append=append, rewrite=rewrite, touch=touch, unlink=os.unlink, rmtree=shutil.rmtree, mkdir=os.mkdir,
          rename=os.rename, exchange=exchange, symlink=os.symlink, copy=shutil.copytree, chmod=os.chmod,
          link=lambda a, b: os.link(a, b, follow_symlinks=False))
for name, *args in json.loads(sys.argv[1]):
    try: do[name](*args); print("ok")
    except (OSError, shutil.Error) as error: print(type(error).__name__)
"""


@needs_root
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ACTION, min_size=1, max_size=12), st.sampled_from([(), ("c/**",), ("**/deep/**", "a/f")]))
def test_the_same_acts_leave_the_same_state_in_every_way(bundle: Given, acts: list, exclude: tuple[str, ...]) -> None:
    first, *others = [bundle.run(way, "python3", "-c", ACT, json.dumps(acts), exclude=exclude) for way in WAYS]
    assert first.ending.exit.code == 0, first.output
    for other in others:
        assert other.output == first.output
        assert other.lines == first.lines
        assert other.changes == first.changes
        assert other.frozen.findings == first.frozen.findings
        assert other.frozen.state == first.frozen.state


@needs_root
@pytest.mark.slow
@pytest.mark.timeout(1500)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ACTION, min_size=1, max_size=25), st.sampled_from([(), ("c/**",), ("**/deep/**", "a/f")]))
def test_long_lists_of_acts_leave_the_same_state_in_every_way(
    bundle: Given, acts: list, exclude: tuple[str, ...]
) -> None:
    seen = [bundle.run(way, "python3", "-c", ACT, json.dumps(acts), exclude=exclude) for way in ("overlay", "list")]
    assert (seen[0].output, seen[0].lines, seen[0].changes) == (seen[1].output, seen[1].lines, seen[1].changes)
    assert seen[0].frozen.findings == seen[1].frozen.findings


def test_where_no_overlay_can_be_had_the_workspace_is_laid(
    bundle: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise OSError(errno.EINVAL, "this file system shows its files as nobody else's")

    monkeypatch.setattr(overlay, "show", refuse)
    for name in ("disk", "output"):
        (tmp_path / name).mkdir()
    spec = {
        "listing": str(bundle.shown),
        "pristine": str(bundle.workspace),
        "workdir": "/workspace",
        "home": "/h",
        "sink": {},
    }
    areas = Areas(spec, str(tmp_path / "disk"), str(tmp_path / "output"), (os.geteuid(), os.getegid()), may_mount=True)
    areas.make()
    assert areas.lay(str(bundle.workspace), "/workspace") is None
    assert (tmp_path / "disk/workspace/a/f").read_text() == "f of a\n"
    pristine = areas.pristine()
    assert pristine.upper is None
    assert pristine.entries[b"c/tool"][:3] == ("file", True, 20)


@needs_root
def test_only_what_was_touched_is_read(bundle: Given, tmp_path: Path) -> None:
    """By what the list says of the rest: a wrong digest there comes out as it is, beside a folder that carries another attribute."""
    wrong = tmp_path / "wrong"
    wrong.write_bytes(
        bundle.shown.read_bytes().replace(hashlib.sha256(b"same in both\n").hexdigest().encode(), b"0" * 64)
    )
    fields = bundle.fields("overlay") | {"listing": wrong}
    code = "import os; os.setxattr('a', 'user.mine', b'1'); open('a/f', 'a').write('more'); os.chmod('c/same', 0o600)"
    seen = bundle.run("overlay", "python3", "-c", code, **fields)
    assert (seen.entry("workspace/a/same").sha256, seen.entry("workspace/a/same").origin) == ("0" * 64, "pristine")
    assert seen.entry("workspace/c/same").origin == "changed"
    assert seen.entry("workspace/a/f").origin == "changed"


@needs_root
def test_what_is_laid_into_an_overlay_belongs_to_it(bundle: Given, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new\n")
    fields = bundle.fields("overlay")
    fields["inputs"] += (Input(source=tmp_path / "new", target="/workspace/a/new", writable=True),)
    seen = bundle.run("overlay", "cat", "a/new", **fields)
    assert seen.output == "new\n"
    assert seen.entry("workspace/a/new").origin == "added"
    assert seen.entry("workspace/a/f").origin == "pristine"


@needs_root
def test_a_workspace_may_be_deeper_than_pythons_stack(tmp_path: Path) -> None:
    deep = "/".join(["d"] * 600)
    given = given_bundle(tmp_path / "x", [Item(f"workspace/{deep}/{name}", data=b"x") for name in ("left", "changed")])
    seen = [given.run(way, "sh", "-c", f"echo y > {deep}/changed") for way in WAYS]
    assert len({(each.lines, each.changes) for each in seen}) == 1
    origins = {entry.path[-7:]: entry.origin for entry in seen[0].entries if entry.type == "file"}
    assert origins == {"/d/left": "pristine", "changed": "changed"}
