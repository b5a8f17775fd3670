"""Programs that use up what they were given: each ends with its own cause, and nothing hangs."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandbox_world import ending_only, python, shell, spec_of

PROCESSES = {"refused_forks", "process_limit"}
MEMORY = {"oom_kill", "memory_limit"}
"""What the kernel counted, or else what our samples saw."""


def test_a_fork_bomb_ends_as_out_of_processes():
    seen = python(
        "import os, time\n"
        "while True:\n"
        "    try:\n        pid = os.fork()\n"
        "    except BlockingIOError:\n        time.sleep(0.001)\n        continue\n"
        "    if pid == 0:\n"
        "        while True: time.sleep(1)\n"
    )
    assert seen.ending.cause == "out_of_processes"
    assert seen.findings & PROCESSES


def test_the_classic_shell_fork_bomb_does_not_outlive_its_end():
    seen = shell("bomb() { bomb | bomb & }; bomb; sleep 2", wall_seconds=10)
    assert seen.ending.cause in {"out_of_processes", "exited"}
    assert seen.findings & PROCESSES or seen.labels["limits"] == "sampled"  # it may be over before it is sampled
    assert seen.ending.ended - seen.ending.started < 9


def test_one_refused_fork_is_survived():
    seen = python(
        "import os, time\n"
        "children = []\n"
        "try:\n"
        "    while True:\n"
        "        pid = os.fork()\n"
        "        if pid == 0: time.sleep(30)\n"
        "        children.append(pid)\n"
        "except BlockingIOError: print('refused')\n"
        "time.sleep(0.4)\n",
        processes=16,
    )
    assert seen.ending.cause == "exited"
    assert seen.ending.exit.code == 0
    assert seen.findings & PROCESSES


def test_a_memory_hog_ends_as_out_of_memory():
    seen = python("x = []\nwhile True: x.append(b'x' * (1 << 20))", disk_bytes=8 << 20)
    assert seen.ending.cause == "out_of_memory"
    assert seen.findings & MEMORY


def test_a_memory_hog_in_a_child_ends_the_whole_tree():
    seen = python(
        "import subprocess, sys, time\n"
        "subprocess.run([sys.executable, '-c', \"x = []\\nwhile True: x.append(b'x' * (1 << 20))\"])\n"
        "time.sleep(30)",
        disk_bytes=8 << 20,
    )
    assert seen.ending.cause == "out_of_memory"
    assert seen.ending.ended - seen.ending.started < 15


def test_shared_memory_counts_as_disk():
    seen = shell("dd if=/dev/zero of=/dev/shm/x bs=1M; sleep 30", disk_bytes=8 << 20)
    assert seen.ending.cause == "out_of_disk"


@pytest.mark.parametrize("place", ["/workspace/x", "/tmp/x", "/home/agent/x", "/output/x"])
def test_a_disk_filler_that_ends_well_ends_as_out_of_disk(place):
    seen = shell(f"dd if=/dev/zero of={place} bs=1M 2>/dev/null; exit 0", disk_bytes=8 << 20)
    assert seen.ending.cause == "out_of_disk"
    assert "disk_full" in seen.findings


def test_a_disk_filler_with_an_unlinked_open_file_is_caught_while_it_runs():
    seen = python(
        "import os, time\n"
        "fd = os.open('/workspace/x', os.O_RDWR | os.O_CREAT); os.unlink('/workspace/x')\n"
        "try:\n"
        "    while True: os.write(fd, bytes(1 << 20))\n"
        "except OSError as error: print(error)\n"
        "time.sleep(30)",
        disk_bytes=8 << 20,
    )
    assert seen.ending.cause == "out_of_disk"
    assert seen.entries == []


def test_running_out_of_inodes_ends_as_out_of_disk():
    code = "import os, time\nfor n in range(10**7): os.mknod(f'{n}')\ntime.sleep(30)"
    ending = asyncio.run(ending_only(spec_of("python3", "-c", code, requires=("python3",), disk_bytes=8 << 20)))
    assert ending.cause == "out_of_disk"
    assert "disk_full" in {finding.type for finding in ending.findings}


def test_thousands_of_files_are_frozen():
    seen = shell("mkdir many; seq 5000 | while read n; do : > many/$n; done")
    assert seen.lines.count(b"\n") == 5001
    assert len(seen.tar()) == 5001


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_million_files_are_frozen():
    seen = python(
        "import os\nos.mkdir('many')\nfor n in range(10**6): os.mknod(f'many/{n}')",
        disk_bytes=5 << 30,
        memory_bytes=4 << 30,
        wall_seconds=200,
    )
    assert seen.ending.exit.code == 0
    assert seen.lines.count(b"\n") == 10**6 + 1


def test_ignored_sigterm_does_not_help_against_the_wall_clock():
    started = time.monotonic()
    seen = python(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(60)", wall_seconds=0.5
    )
    assert seen.ending.cause == "wall_clock"
    assert seen.ending.exit.signal == 9
    assert time.monotonic() - started < 8


def test_a_double_forked_daemon_dies_with_the_first_process():
    started = time.monotonic()
    seen = python(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        while True:\n"
        "            open('/workspace/beat', 'a').write('x'); time.sleep(0.01)\n"
        "    os._exit(0)\n"
        "while not os.path.exists('/workspace/beat'): time.sleep(0.01)\n"
    )
    assert seen.ending.cause == "exited"
    assert seen.ending.exit.code == 0
    assert time.monotonic() - started < 8
    assert seen.entry("workspace/beat").sha256 is not None


def test_endless_output_neither_blocks_nor_grows():
    seen = shell("yes 0123456789 | head -c 200000000; echo the end", output_bytes=1000, wall_seconds=30)
    assert seen.ending.exit.code == 0
    assert len(seen.frozen.output) == 1000
    assert seen.output.endswith("the end\n")
