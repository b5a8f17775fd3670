"""The keeper at its edges: killed, abandoned, given nonsense, without control groups, on a machine that denies namespaces."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from sandbox_world import backend, python, shell, spec_of

from orchestrator.errors import SandboxError
from orchestrator.interfaces import Door
from orchestrator.sandbox.bubblewrap import host
from orchestrator.sandbox.interpreter import interpreter
from orchestrator.spec.task import Environment, RepositoryWorkspace, Resources

ROOT = Path(__file__).parents[2]


def running(word: str) -> list[int]:
    """Processes of this machine that have exactly that word in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_killed_keeper_leaves_no_process_and_is_our_failure():
    async def scenario() -> None:
        code = "sleep 71.125 & (setsid sleep 71.125 &) ; exec sleep 71.125"
        async with backend().open(spec_of("sh", "-c", code)) as sandbox:
            await until(lambda: len(running("71.125")) == 3)
            sandbox._keeper.kill()
            with pytest.raises(SandboxError, match="its keeper ended with -9 before 'ended'") as caught:
                await sandbox.ended()
            assert caught.value.cause == "sandbox_keeper"
            await until(lambda: not running("71.125"))

    asyncio.run(scenario())


def test_the_end_of_the_driver_ends_the_sandbox():
    code = (
        "import asyncio, os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from sandbox_world import *\n"
        "async def main():\n"
        "    async with backend().open(spec_of('sleep', '72.125')):\n"
        "        print('up', flush=True); await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as driver:
        assert driver.stdout.readline() == b"up\n"
        assert running("72.125")
        driver.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while running("72.125"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/memory", os.W_OK), reason="control groups of version 1 are not ours to write"
)
def test_groups_of_a_killed_keeper_are_removed_by_a_later_one():
    async def scenario() -> list[Path]:
        async with backend().open(spec_of("sleep", "73.125", name="orphan")) as sandbox:
            sandbox._keeper.kill()
            await sandbox._keeper.wait()
            await until(lambda: not running("73.125"))
        return list(Path("/sys/fs/cgroup").glob("*/**/orchestrate.*.orphan"))

    left = asyncio.run(scenario())
    assert left
    for folder in left:
        os.utime(folder, (time.time() - 3600, time.time() - 3600))
    asyncio.run(_true())
    assert not list(Path("/sys/fs/cgroup").glob("*/**/orchestrate.*.orphan"))


async def _true() -> None:
    async with backend().open(spec_of("true")) as sandbox:
        await sandbox.ended()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "a/b"}, "sandbox name 'a/b'"),
        ({"workdir": "/usr/lib"}, "workdir /usr/lib"),
        ({"env": {"A-B": "1"}}, "'A-B'"),
        ({"env": {"A": "\0"}}, "zero byte"),
    ],
)
def test_a_specification_that_cannot_work_is_named(wrong, message):
    async def scenario() -> None:
        async with backend().open(spec_of("true", **wrong)):
            pytest.fail("it must not open")

    with pytest.raises(SandboxError, match=message):
        asyncio.run(scenario())


def test_refusals():
    environment = Environment(
        image="ghcr.io/x@sha256:0",
        isolation="gvisor",
        user="root",
        workdir="/etc/x",
        workspace=RepositoryWorkspace(repository="x", commit="82c41d9"),
        resources=Resources(),
    )
    sentences = "\n".join(backend().refusals(environment))
    for word in ("image", "gvisor", "root", "/etc/x", "repository"):
        assert word in sentences
    assert backend().refusals(Environment(image="x@sha256:0", requires=("python3", "sh"))) == []
    (missing,) = backend().refusals(Environment(requires=("sh", "no-such-tool")))
    assert "no-such-tool" in missing
    assert "/usr/bin" in missing


PREFLIGHT = (
    "import asyncio; from pathlib import Path\n"
    "from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend\n"
    "from orchestrator.errors import RefusedError\n"
    "try: print(dict(asyncio.run(BubblewrapBackend().preflight())))\n"
    "except RefusedError as error: print('REFUSED', error)"
)


def inside_bwrap(*flags: str, code: str = PREFLIGHT) -> str:
    command = [str(host.bwrap()), "--dev-bind", "/", "/", *flags, sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=50).stdout


def test_preflight_where_user_namespaces_are_denied_says_what_to_change():
    said = inside_bwrap("--unshare-user", "--disable-userns")
    assert said.startswith("REFUSED")
    assert "user.max_user_namespaces" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to take capabilities from")
def test_preflight_of_a_root_without_capabilities_says_what_to_change():
    said = inside_bwrap("--cap-drop", "ALL")
    assert said.startswith("REFUSED")
    assert "CAP_SYS_ADMIN" in said


def test_an_ordinary_user_without_control_groups_gets_sampled_limits():
    assert inside_bwrap("--unshare-user", "--uid", "1234", "--tmpfs", "/sys/fs/cgroup") == "{'limits': 'sampled'}\n"


HOGS = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    """
from sandbox_world import *
memory = python("x = []\\nwhile True: x.append(b'x' * (1 << 20))", disk_bytes=8 << 20)
forks = python(
    "import os, time\\n"
    "while True:\\n"
    "    try:\\n        pid = os.fork()\\n"
    "    except BlockingIOError:\\n        time.sleep(0.001)\\n        continue\\n"
    "    if pid == 0:\\n"
    "        while True: time.sleep(1)\\n", processes=16)
fine = shell("umask 0; mkdir d; echo x > d/f; chmod 0 d/f d; exit 5")
print(memory.ending.cause, forks.ending.cause, fine.ending.exit.code, fine.entry('workspace/d/f').sha256[:8])
"""
)


def test_sampled_limits_hold():
    said = inside_bwrap("--unshare-user", "--uid", "1234", "--tmpfs", "/sys/fs/cgroup", code=HOGS)
    assert said == "out_of_memory out_of_processes 5 73cb3858\n"


def test_nothing_leaks_from_one_sandbox_to_the_next():
    leave = (
        "import ctypes, os\n"
        "for folder in ('/tmp', '/dev/shm', '/home/agent', '/workspace', '/output'): open(folder + '/left', 'w').write('x')\n"
        "libc = ctypes.CDLL(None)\n"
        "print(libc.shmget(4242, 4096, 0o1666) >= 0, libc.semget(4242, 1, 0o1666) >= 0, libc.msgget(4242, 0o1666) >= 0)"
    )
    look = (
        "import ctypes, glob\n"
        "libc = ctypes.CDLL(None)\n"
        "print(libc.shmget(4242, 0, 0), libc.semget(4242, 0, 0), libc.msgget(4242, 0))\n"
        "print(glob.glob('/tmp/*') + glob.glob('/dev/shm/*') + glob.glob('/home/agent/*')"
        " + glob.glob('/workspace/*') + glob.glob('/output/*'))"
    )
    assert python(leave).output == "True True True\n"
    assert python(look).output == "-1 -1 -1\n[]\n"


def test_processor_time_is_limited():
    seen = python(
        "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())",
        cpu=0.2,
    )
    if "cgroup" in seen.labels["limits"] and "cpu" not in seen.labels["limits"]:
        assert float(seen.output) < 0.5


def test_loopback_and_names_work_inside():
    seen = python(
        "import socket\n"
        "s = socket.create_server(('localhost', 0)); c = socket.create_connection(s.getsockname())\n"
        "print(socket.gethostname(), c.getpeername()[0])"
    )
    assert seen.output == "sandbox 127.0.0.1\n"


def test_events_are_lines_of_json_and_nonsense_on_the_input_is_ignored():
    spec = backend()._specification(spec_of("sh", "-c", "exit 4"))
    python_ = interpreter()
    code = "import sys; sys.path.append(sys.argv[1]); from orchestrator.sandbox.bubblewrap.keeper import main; sys.exit(main())"
    with subprocess.Popen(
        [python_.program, "-I", "-S", "-c", code, str(ROOT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as keeper:
        keeper.stdin.write(json.dumps(spec).encode() + b"\n")
        keeper.stdin.flush()
        events = [json.loads(keeper.stdout.readline()) for _ in range(2)]
        keeper.stdin.write(b"nonsense\nfreeze\n")
        keeper.stdin.flush()
        events.append(json.loads(keeper.stdout.readline()))
        keeper.stdin.close()
    assert [event["event"] for event in events] == ["started", "ended", "frozen"]
    assert events[1]["code"] == 4
    assert keeper.returncode == 0


def test_output_ends_with_what_was_written_last():
    assert shell("echo last words; kill -9 $$").output == "last words\n"


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/usr/bin/python3"),
    reason="needs root to become nobody, and a public Python",
)
def test_a_keeper_of_an_ordinary_user_hands_over_a_listening_socket():
    with tempfile.TemporaryDirectory(prefix="o-") as folder, socket.socket(socket.AF_UNIX) as door:
        os.chmod(folder, 0o755)
        door.bind(f"{folder}/door")
        os.chmod(f"{folder}/door", 0o777)
        door.listen()
        door.settimeout(20)
        spec = backend()._specification(spec_of("/bin/true", door=Door(socket=f"{folder}/door", token="t")))
        keeper = "import sys; sys.path.append(sys.argv[1]); from orchestrator.sandbox.bubblewrap.keeper import main; sys.exit(main())"
        with subprocess.Popen(
            ["/usr/bin/python3", "-I", "-S", "-c", keeper, str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=65534,
            group=65534,
            extra_groups=[],
        ) as process:
            process.stdin.write(json.dumps(spec).encode() + b"\n")
            process.stdin.flush()
            connection, _ = door.accept()
            with connection:
                _, (listener,), _, _ = socket.recv_fds(connection, 4096, 4)
                connection.sendall(b'{"ok": true}\n')
            started = json.loads(process.stdout.readline())
            process.stdin.close()
    with socket.socket(fileno=listener) as taken:
        assert taken.getsockname() == ("127.0.0.1", 8080)
    assert started["labels"] == {"limits": "sampled"}


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/usr/bin/python3"),
    reason="needs root to become nobody, and a public Python",
)
def test_a_keeper_of_an_ordinary_user_holds_the_process_limit_by_resource_limit():
    code = (
        "import os, time\n"
        "for n in range(1, 1000):\n"
        "    try:\n        pid = os.fork()\n"
        "    except BlockingIOError:\n        print(n, 'refused', flush=True); break\n"
        "    if pid == 0: time.sleep(60)\n"
    )
    spec = backend()._specification(spec_of("/usr/bin/python3", "-c", code, processes=16))
    keeper = "import sys; sys.path.append(sys.argv[1]); from orchestrator.sandbox.bubblewrap.keeper import main; sys.exit(main())"
    with subprocess.Popen(
        ["/usr/bin/python3", "-I", "-S", "-c", keeper, str(ROOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=65534,
        group=65534,
        extra_groups=[],
    ) as process:
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        process.stdin.flush()
        started, ended = (json.loads(process.stdout.readline()) for _ in range(2))
        process.stdin.write(b"freeze\n")
        process.stdin.flush()
        frozen = json.loads(process.stdout.readline())
        process.stdin.close()
    assert started["labels"] == {"limits": "sampled"}
    assert ended["code"] == 0
    count, word = base64.b64decode(frozen["output"]).split()
    assert word == b"refused"
    assert 14 <= int(count) <= 20
