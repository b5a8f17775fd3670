"""What a hostile program may leave behind in its workspace: recorded, never followed, never a hang."""

from __future__ import annotations

import base64
import hashlib
import os
import threading

import pytest
from sandbox_world import python, shell

from orchestrator.sandbox.keeper.freeze import Freezer
from orchestrator.sandbox.keeper.lay import Pristine


def test_a_fifo_a_socket_and_a_link_are_recorded_and_not_opened():
    seen = python(
        "import os, socket\n"
        "os.mkfifo('pipe')\n"
        "socket.socket(socket.AF_UNIX).bind('sock')\n"
        "os.symlink('/etc/shadow', 'shadow'); os.symlink('../../..', 'up'); os.symlink('ok.txt', 'fine')\n"
    )
    assert seen.entry("workspace/pipe").type == "fifo"
    assert seen.entry("workspace/pipe").finding == "special_file"
    assert seen.entry("workspace/sock").type == "socket"
    assert seen.entry("workspace/shadow").target == "/etc/shadow"
    assert seen.entry("workspace/shadow").sha256 is None
    assert [f.detail for f in seen.frozen.findings if f.type == "link_outside"] == [
        "workspace/shadow -> /etc/shadow",
        "workspace/up -> ../../..",
    ]
    members = seen.tar()
    assert set(members) == {"workspace/shadow", "workspace/up", "workspace/fine"}
    assert members["workspace/shadow"].linkname == "/etc/shadow"


def test_hard_links_become_files():
    seen = shell("echo same > a; ln a b")
    assert seen.entry("workspace/a").nlink == 2
    assert "hard_link" in seen.findings
    assert all(member.isreg() for member in seen.tar().values())
    assert seen.content("workspace/b") == b"same\n"


def test_setuid_bits_are_recorded_and_dropped():
    seen = shell("echo x > tool; chmod 4755 tool")
    assert seen.entry("workspace/tool").mode == 0o4755
    assert seen.entry("workspace/tool").finding == "setuid"
    assert seen.tar()["workspace/tool"].mode == 0o755


def test_a_terabyte_of_nothing_is_not_read():
    seen = shell("truncate -s 1T big; echo small > small")
    big = seen.entry("workspace/big")
    assert (big.size, big.sha256, big.finding) == (1 << 40, None, "too_large")
    assert set(seen.tar()) == {"workspace/small"}


def test_many_sparse_files_together_are_not_read_without_end():
    seen = shell("for n in $(seq 1000); do truncate -s 8M $n; done", disk_bytes=8 << 20)
    assert len([entry for entry in seen.entries if entry.finding == "too_large"]) == 998
    assert len(seen.changes) < 20 << 20


def test_names_that_are_no_text():
    seen = python(
        "import os\nopen(b'\\xff\\xfe name', 'w').write('x')\nos.symlink(b'to \\xff', b'link')\nopen('new\\nline\\x1b[31m', 'w')"
    )
    raw = next(entry for entry in seen.entries if entry.path is None)
    assert base64.b64decode(raw.path_b64) == b"workspace/\xff\xfe name"
    assert seen.entry("workspace/link").target == "to \\xff"
    names = {os.fsencode(name) for name in seen.tar()}
    assert b"workspace/\xff\xfe name" in names
    assert b"workspace/new\nline\x1b[31m" in names


def test_paths_of_4096_bytes_and_deeper():
    seen = python(
        "import os\nfor n in range(40):\n    os.mkdir('d' * 200); os.chdir('d' * 200); open('f', 'w').write(str(n))\n"
    )
    too_long = [entry for entry in seen.entries if entry.finding == "name_too_long"]
    assert len(too_long) == 1
    assert len(too_long[0].path) > 4000
    deep = [name for name in seen.tar() if name.endswith("/f")]
    assert len(deep) == 20
    assert max(map(len, deep)) > 3800


def test_a_very_deep_tree_ends_in_time():
    seen = python("import os\nfor n in range(5000):\n    os.mkdir('d'); os.chdir('d')\n")
    assert seen.ending.exit.code == 0
    assert "name_too_long" in seen.findings


def test_a_name_of_255_bytes():
    seen = python("open('n' * 255, 'w').write('x')")
    assert seen.content("workspace/" + "n" * 255) == b"x"


def test_unreadable_permissions_hide_nothing():
    seen = shell("mkdir shut; echo x > shut/f; chmod 0 shut/f shut")
    assert seen.entry("workspace/shut/f").sha256 == hashlib.sha256(b"x\n").hexdigest()


def test_final_answers_that_are_no_plain_file():
    assert shell("ln -s /etc/passwd /output/final.json").frozen.final is None
    assert shell("mkfifo /output/final.json").frozen.final is None
    assert shell("mkdir /output/final.json").frozen.final is None
    assert shell("head -c 65537 /dev/zero > /output/final.json").frozen.final is None
    assert len(shell("head -c 65536 /dev/zero > /output/final.json").frozen.final) == 65536
    assert shell("true").frozen.final is None


def test_findings_are_bounded():
    seen = shell("for n in $(seq 300); do mkfifo p$n; done")
    assert len(seen.frozen.findings) == 201
    assert seen.frozen.findings[-1].type == "findings_cut"
    assert seen.frozen.findings[-1].detail.startswith("100 ")


def frozen(folder, **fields) -> tuple[Freezer, bytes, bytes]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        freezer = Freezer({"workspace": descriptor}, Pristine(), [], fields.get("limit", 1 << 30))
        entries = b"".join(freezer.entries())
        if "between" in fields:
            fields["between"]()
        return freezer, entries, b"".join(freezer.changes())
    finally:
        os.close(descriptor)


def test_a_file_that_grows_while_it_is_frozen(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"x" * 1000)
    stop = threading.Event()

    def grow() -> None:
        with file.open("ab") as stream:
            while not stop.is_set():
                stream.write(b"y" * 4096)
                stream.flush()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        while file.stat().st_size < 100_000:
            pass
        _, entries, changes = frozen(tmp_path)
    finally:
        stop.set()
        thread.join()
    assert entries.count(b"\n") == 1
    assert len(changes) % 512 == 0


def test_a_file_that_changes_between_the_two_passes_is_found(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"x" * 1000)
    freezer, _, changes = frozen(tmp_path, between=lambda: file.write_bytes(b"y" * 5))
    assert ("changed_while_frozen", "workspace/log: its bytes differ from its entry") in freezer.findings
    assert len(changes) == 512 + 1024 + 1024


def test_a_file_that_became_a_link_between_the_two_passes_is_not_followed(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"x" * 10)
    (tmp_path.parent / "secret").write_bytes(b"secret!!!!")

    def swap() -> None:
        file.unlink()
        file.symlink_to(tmp_path.parent / "secret")

    freezer, _, changes = frozen(tmp_path, between=swap)
    assert b"secret!!!!" not in changes
    assert freezer.findings


LONG_NAMES = """
import os
os.mkdir("deep"); os.chdir("deep")
for n in range(15):
    os.mkdir("\\x01" * 250); os.chdir("\\x01" * 250)
os.mkdir("inner"); os.chdir("inner")
for n in range(18_000):
    {make}
os.chdir("/workspace"); open("z", "w").write("seen")
"""


@pytest.mark.parametrize("make", ["os.mknod(str(n))", "os.symlink('\\x01' * 4000, f'{n:03}')"])
def test_names_alone_cannot_fill_a_store(make):
    """Without a limit a gigabyte of disk could have a list of many gigabytes, and a full disk of ours is no score."""
    seen = python(LONG_NAMES.format(make=make), disk_bytes=128 << 20)
    assert seen.ending.exit.code == 0
    assert len(seen.lines) < 400 << 20
    assert len(seen.changes) < 256 << 20
    assert "too_many_names" in seen.findings
    assert seen.content("workspace/z") == b"seen"


def test_a_folder_whose_names_are_left_out_says_so_itself():
    seen = python(LONG_NAMES.format(make="os.mknod(str(n))"), disk_bytes=128 << 20)
    (left_out,) = [entry for entry in seen.entries if entry.finding == "too_many_names"]
    assert (left_out.type, left_out.path.endswith("/inner")) == ("dir", True)
    assert left_out.path not in seen.tar()
    assert len(seen.entries) == 18
