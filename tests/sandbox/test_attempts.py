"""What a program tries on folders that it may only read is seen, and nothing that it may do is hindered."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sandbox_world import Seen, run, spec_of

from orchestrator.interfaces import Input
from orchestrator.sandbox import seccomp
from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend
from orchestrator.sandbox.keeper.attempts import MOST_PATHS

needs_python = pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python that everybody may run")
TRIES = {
    "echo x > /memory/notes.md": "'/memory/notes.md'",
    "echo x > /memory/new.md": "'/memory/new.md'",
    "cd /memory; echo x >> sub/../notes.md": "'/memory/notes.md'",
    "rm -f /memory/notes.md": "'/memory/notes.md'",
    "mkdir -p /memory/more": "'/memory/more'",
    "mv /memory/notes.md /tmp/": "'/memory/notes.md'",
    "ln -s /memory /tmp/m; echo x > /tmp/m/notes.md": "'/memory/notes.md'",
    "ln -s x /memory/link": "'/memory/link'",
    "chmod 777 /memory/notes.md": "'/memory/notes.md'",
    "touch /memory/notes.md": "'/memory/notes.md'",
    "rmdir /memory/sub": "'/memory/sub'",
    "echo x > /memory/$(printf 'a\\nb\\377')": r"'/memory/a\nb\udcff'",
}
HARMLESS = (
    "cat /memory/notes.md; mkdir -p /memory/sub; ls -R /memory; cp -r /memory /tmp/copy; ln -s /memory/notes.md /tmp/l; rm /tmp/l; "
    "mkdir /tmp/memory /workspace/memory; echo x > /workspace/memory/a; rm -r /tmp/memory; echo done"
)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.md").write_text("remember\n")
    return folder


def tried(memory: Path, script: str, **fields) -> Seen:
    return run("sh", "-c", script, inputs=(Input(source=memory, target="/memory"),), watched=("/memory",), **fields)


def attempts(seen: Seen) -> list[str]:
    return [finding.detail for finding in seen.ending.findings if finding.type == "memory_write"]


def test_attempts_of_every_kind_are_seen(memory: Path) -> None:
    script = "\n".join(f"({each}) 2>/dev/null; rm -f /workspace/n" for each in TRIES)
    for each, where in TRIES.items():
        if each.startswith(("echo x > /memory/notes", "cd", "ln -s /memory", "rmdir")):
            alone = attempts(tried(memory, each))
            assert alone, each
            assert {line.split(" ", 1)[1] for line in alone} == {where}, each
    seen = tried(memory, script)
    assert seen.labels["memory"] == "watched"
    told = attempts(seen)
    assert {line.split(" ", 1)[1] for line in told if line[0].isalpha()} == set(TRIES.values())
    assert told[-1].endswith("attempts in all")
    assert (memory / "notes.md").read_text() == "remember\n"


def test_reading_and_writing_elsewhere_is_no_attempt(memory: Path) -> None:
    seen = tried(memory, HARMLESS)
    assert seen.output.endswith("done\n"), seen.output
    assert (seen.ending.exit.code, attempts(seen)) == (0, [])


def test_a_flood_is_counted_and_told_once(memory: Path) -> None:
    script = "i=0; while [ $i -lt 1200 ]; do echo > /memory/$i; i=$((i + 1)); done 2>/dev/null; echo x > /workspace/a && echo on"
    seen = tried(memory, script)
    assert seen.output == "on\n"
    told = attempts(seen)
    assert len(told) == MOST_PATHS + 1
    assert told[-1] == "1000 or more attempts in all"


def test_where_nothing_is_watched_nothing_is_said(memory: Path) -> None:
    seen = run("sh", "-c", "echo x > /memory/a", inputs=(Input(source=memory, target="/memory"),))
    assert "memory" not in seen.labels
    assert attempts(seen) == []


ODD = """
import ctypes, os, random
libc, low = ctypes.CDLL(None, use_errno=True), random.Random(7)
text = ctypes.create_string_buffer(b"/memory/" + b"a" * 9000)
words = [0, 1, -1, -100, 3, 2**63, 2**64 - 1, 2**63 - 1, 0x7FFF_FFFF_F000, ctypes.addressof(text), ctypes.addressof(text) + 8999]
for number in CALLS:
    for _ in range(40):
        libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(low.choice(words) % 2**64) for _ in range(6)))
print("on")
"""


def test_no_odd_argument_breaks_what_looks(memory: Path) -> None:
    calls = sorted(seccomp.watched(platform.machine()).calls)
    code = ODD.replace("CALLS", repr(calls))
    seen = run(
        "python3",
        "-c",
        code,
        inputs=(Input(source=memory, target="/memory"),),
        watched=("/memory",),
        requires=("python3",),
    )
    assert (seen.output, seen.ending.exit.code, seen.ending.cause) == ("on\n", 0, "exited")


def test_a_tree_that_is_killed_in_the_midst_of_attempts_is_gone(memory: Path) -> None:
    seen = tried(
        memory,
        "while true; do echo x > /memory/a; done 2>/dev/null & while true; do rm -f /memory/b; done 2>/dev/null",
        wall_seconds=1,
    )
    assert seen.ending.cause == "wall_clock"
    assert len(attempts(seen)) == 3


@contextmanager
def keeper(memory: Path, script: str, **user: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A keeper of its own, by any user, whose sandbox runs."""
    folders = (Input(source=memory, target="/memory"),)
    spec = BubblewrapBackend()._specification(spec_of("sh", "-c", script, inputs=folders, watched=("/memory",)))
    code = "import sys; sys.path.append(sys.argv[1]); from orchestrator.sandbox.bubblewrap.keeper import main; sys.exit(main())"
    words = ["/usr/bin/python3", "-I", "-S", "-c", code, str(Path(__file__).resolve().parents[2])]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **user) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        process.stdin.flush()
        yield process
        process.stdin.close()


def event(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


@needs_python
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become nobody")
def test_a_keeper_of_an_ordinary_user_sees_them_too() -> None:
    with tempfile.TemporaryDirectory(prefix="o-") as folder:
        Path(folder).chmod(0o755)
        with keeper(Path(folder), "echo x > /memory/a", user=65534, group=65534, extra_groups=[]) as process:
            assert event(process)["labels"]["memory"] == "watched"
            assert ["memory_write", "openat '/memory/a'"] in event(process)["findings"]


@needs_python
def test_when_nobody_looks_any_more_the_failure_is_ours(memory: Path) -> None:
    with keeper(memory, "read -r x < /dev/zero") as process:
        assert event(process)["event"] == "started"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        [looks] = [pid for pid in children if b"bwrap" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]]
        os.kill(int(looks), signal.SIGKILL)
        assert process.stdin is not None
        process.stdin.write(b"stop\n")
        process.stdin.flush()
        failed = event(process)
    assert (failed["event"], failed["cause"]) == ("error", "sandbox_watch")
