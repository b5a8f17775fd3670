"""What every sandbox backend promises, whatever it is made of."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from container_world import WithImage

from orchestrator.errors import SandboxError
from orchestrator.interfaces import Ending, FolderSink, Frozen, Input, SandboxBackend, SandboxLimits, SandboxSpec
from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend
from orchestrator.spec.task import Environment

LIMITS = SandboxLimits(cpu=1, memory_bytes=128 << 20, disk_bytes=32 << 20, processes=64, wall_seconds=20)
BACKENDS: dict[str, Callable[[Path], SandboxBackend]] = {
    "bubblewrap": lambda _: BubblewrapBackend(),
    "container": WithImage,
}


@pytest.fixture(params=["bubblewrap", pytest.param("container", marks=pytest.mark.container)])
def backend(request: pytest.FixtureRequest, short_folder: Path) -> SandboxBackend:
    return BACKENDS[request.param](short_folder)


def spec(*command: str, **fields) -> SandboxSpec:
    return SandboxSpec(name="contract", command=command, limits=fields.pop("limits", LIMITS), **fields)


async def whole(backend: SandboxBackend, wanted: SandboxSpec) -> tuple[Ending, Frozen]:
    async with backend.open(wanted) as sandbox:
        return await sandbox.ended(), await sandbox.freeze()


def run(backend: SandboxBackend, *command: str, **fields) -> tuple[Ending, str]:
    ending, frozen = asyncio.run(whole(backend, spec(*command, **fields)))
    return ending, frozen.output.decode()


def test_preflight_gives_labels(backend):
    labels = asyncio.run(backend.preflight())
    assert "limits" in labels


@pytest.mark.parametrize(
    ("code", "exit_code", "signal"),
    [
        ("exit 0", 0, None),
        ("exit 7", 7, None),
        ("exit 137", 137, None),
        ("kill -9 $$", None, 9),
        ("kill -15 $$", None, 15),
    ],
)
def test_exit_codes_and_signals_are_told_apart(backend, code, exit_code, signal):
    ending, _ = run(backend, "sh", "-c", code)
    assert (ending.exit.code, ending.exit.signal, ending.cause) == (exit_code, signal, "exited")
    assert ending.started <= ending.ended <= time.time()


def test_a_program_that_is_not_there(backend):
    ending, output = run(backend, "no-such-program")
    assert ending.exit.code == 127
    assert "no-such-program" in output


def test_output_of_both_streams_is_kept_in_order_and_cut_at_the_front(backend):
    _, output = run(backend, "sh", "-c", "echo one; echo two >&2; echo three")
    assert output == "one\ntwo\nthree\n"
    _, output = run(backend, "sh", "-c", "seq 100000", limits=replace(LIMITS, output_bytes=12))
    assert output == "99999\n100000\n"[-12:]


def test_standard_input(backend):
    assert run(backend, "cat", stdin=b"x" * 300_000)[1] == "x" * 300_000
    assert run(backend, "cat")[1] == ""


def test_environment_is_exactly_what_was_asked(backend):
    _, output = run(backend, "env", env={"ONE": "1", "SPACE": "a b\nc", "TMPDIR": "/output"})
    names = {line.split("=")[0] for line in output.splitlines() if "=" in line}
    assert names - {"PWD", "OLDPWD", "_", "SHLVL"} == {"PATH", "HOME", "LANG", "TMPDIR", "ONE", "SPACE"}
    assert "SPACE=a b\nc\n" in output
    assert "TMPDIR=/output" in output


def test_inputs_are_laid_where_and_how_they_were_asked(backend, tmp_path):
    (tmp_path / "w" / "sub").mkdir(parents=True)
    (tmp_path / "w" / "sub" / "f").write_text("work")
    (tmp_path / "w" / "sub").chmod(0o555)
    (tmp_path / "w" / "sub" / "f").chmod(0o444)
    (tmp_path / "r").mkdir(mode=0o700)
    (tmp_path / "r" / "g").write_text("read")
    inputs = (
        Input(source=tmp_path / "w", target="/workspace", writable=True),
        Input(source=tmp_path / "r", target="/memory"),
        Input(source=tmp_path / "r" / "g", target="/task/instruction.md"),
        Input(source=tmp_path / "r", target="/workspace/hidden/x", writable=True),
        Input(source=tmp_path / "r", target="/opt/own", writable=True),
    )
    code = (
        "cat sub/f /memory/g /task/instruction.md hidden/x/g /opt/own/g; echo more >> sub/f && echo n > sub/n && echo n > /opt/own/n && "
        "echo wrote; echo x 2>/dev/null >> /memory/g || echo no; echo x 2>/dev/null > /memory/new || echo no"
    )
    _, output = run(backend, "sh", "-c", code, inputs=inputs)
    assert output == "workreadreadreadreadwrote\nno\nno\n"
    assert (tmp_path / "w" / "sub" / "f").read_text() == "work"


def test_workdir_is_the_workspace(backend, tmp_path):
    (tmp_path / "f").write_text("x")
    _, output = run(
        backend,
        "sh",
        "-c",
        "pwd; ls",
        workdir="/testbed",
        inputs=(Input(source=tmp_path, target="/testbed", writable=True),),
    )
    assert output == "/testbed\nf\n"


def test_python_is_there_when_required_without_our_packages(backend):
    code = "import sys, sqlite3, ssl\ntry: import pydantic\nexcept ImportError: print(sys.version_info[:2])"
    _, output = run(backend, "python3", "-c", code, requires=("python3",))
    assert output == f"{sys.version_info[:2]}\n"


def test_extra_packages_are_seen_wherever_they_lie_on_this_machine(backend, tmp_path):
    for name in ("inside_tmp", "other"):  # a sandbox has a /tmp of its own
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"print({name!r})\n")
    code = "import inside_tmp, other; open('/packages/other/x', 'w')"
    _, output = run(
        backend,
        *("python3", "-B", "-c", code),
        env={"PYTHONPATH": "/packages"},
        requires=("python3",),
        packages=(tmp_path / "inside_tmp", tmp_path / "other"),
    )
    assert "inside_tmp\nother\n" in output
    assert "Read-only file system" in output


def test_the_channel_is_descriptor_3(backend):
    ours, theirs = socket.socketpair()
    with ours, theirs:

        async def scenario() -> tuple[bytes, str]:
            code = "import os, socket\ns = socket.socket(fileno=3)\ns.sendall(s.recv(10) + b' back')\n"
            code += "print(sorted(map(int, os.listdir('/proc/self/fd'))))"
            async with backend.open(
                spec("python3", "-c", code, requires=("python3",), channel=theirs.fileno())
            ) as sandbox:
                theirs.close()
                ours.sendall(b"there")
                heard = await asyncio.to_thread(ours.recv, 100)
                assert await asyncio.to_thread(ours.recv, 100) == b""
                await sandbox.ended()
                return heard, (await sandbox.freeze()).output.decode()

        assert asyncio.run(scenario()) == (b"there back", "[0, 1, 2, 3, 4]\n")


def test_stop_kills_and_says_so(backend):
    async def scenario() -> Ending:
        async with backend.open(spec("sh", "-c", "trap '' TERM INT HUP; while :; do sleep 60; done")) as sandbox:
            await sandbox.stop()
            await sandbox.stop()
            return await sandbox.ended()

    ending = asyncio.run(scenario())
    assert ending.cause == "stopped"
    assert ending.exit.signal == 9


def test_stop_after_the_end_changes_nothing_and_the_state_can_still_be_frozen(backend):
    async def scenario() -> tuple[Ending, Ending, Frozen]:
        async with backend.open(spec("sh", "-c", "echo kept; exit 3")) as sandbox:
            first = await sandbox.ended()
            await sandbox.stop()
            return first, await sandbox.ended(), await sandbox.freeze()

    first, again, frozen = asyncio.run(scenario())
    assert first == again
    assert (first.exit.code, first.cause) == (3, "exited")
    assert frozen.output == b"kept\n"


def test_a_stopped_sandbox_can_be_frozen(backend, tmp_path):
    async def scenario() -> Frozen:
        async with backend.open(
            spec("sh", "-c", "echo x > f; echo ready; sleep 60", sink=FolderSink(folder=tmp_path))
        ) as sandbox:
            await asyncio.sleep(0.3)
            await sandbox.stop()
            return await sandbox.freeze()

    assert asyncio.run(scenario()).state is not None
    assert b'"path":"workspace/f"' in (tmp_path / "entries.jsonl").read_bytes()


def test_freezing_twice_is_refused(backend):
    async def scenario() -> None:
        async with backend.open(spec("true")) as sandbox:
            await sandbox.freeze()
            with pytest.raises(SandboxError, match="frozen once"):
                await sandbox.freeze()

    asyncio.run(scenario())


def test_many_at_one_time_do_not_disturb_each_other(backend):
    async def one(number: int) -> str:
        _, frozen = await whole(
            backend, spec("sh", "-c", f"echo {number} > f; sleep 0.1; cat f; test $(id -u) -ge 1000 && stat -c %U f")
        )
        return frozen.output.decode()

    async def scenario() -> list[str]:
        return await asyncio.gather(*map(one, range(12)))

    assert asyncio.run(scenario()) == [f"{number}\nagent\n" for number in range(12)]


def test_the_wall_clock_ends_it(backend):
    ending, _ = run(backend, "sleep", "60", limits=replace(LIMITS, wall_seconds=0.3))
    assert ending.cause == "wall_clock"
    assert 0.25 < ending.ended - ending.started < 5


def test_cancelling_while_it_runs_leaves_nothing(backend):
    async def scenario() -> None:
        async with backend.open(spec("sleep", "61.75")) as sandbox:
            await sandbox.ended()

    async def cancel() -> None:
        task = asyncio.create_task(scenario())
        while not alive("61.75"):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not alive("61.75")


@pytest.mark.parametrize("delay", [0, 0.01, 0.03, 0.06, 0.1])
def test_cancelling_while_it_opens_leaves_nothing(backend, delay):
    async def scenario() -> None:
        async with backend.open(spec("sleep", "62.75")) as sandbox:
            await sandbox.ended()

    async def cancel() -> None:
        task = asyncio.create_task(scenario())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not alive("62.75")
    assert not alive("orchestrator.sandbox")


def test_an_input_that_is_not_there_is_our_failure_and_named(backend, tmp_path):
    gone = tmp_path / "gone"
    for writable in (True, False):
        with pytest.raises(SandboxError, match="gone"):
            run(backend, "true", inputs=(Input(source=gone, target="/memory", writable=writable),))


def test_refusals_name_what_cannot_be_given_and_the_way_out(backend):
    assert backend.refusals(Environment()) == []
    (sentence,) = backend.refusals(Environment(isolation="vm"))
    assert "vm" in sentence


def test_many_one_after_the_other_leak_nothing(backend):
    async def scenario() -> tuple[int, int]:
        await whole(backend, spec("true"))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(8 if backend.name == "container" else 50):
            async with backend.open(spec("true")) as sandbox:
                await sandbox.ended()
        return before, len(os.listdir("/proc/self/fd"))

    mounts = own_mounts()
    before, after = asyncio.run(scenario())
    assert before == after
    assert not alive("orchestrator.sandbox")
    assert own_mounts() == mounts
    assert not list(Path("/sys/fs/cgroup").glob("**/orchestrate.*.contract"))


def own_mounts() -> list[str]:
    """Mounts of this machine, without those that engines make for containers of others."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if "/containers/storage" not in line and " /run/" not in line]


def alive(word: str) -> bool:
    """Whether a process started by this one has the word in its command."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            status = (folder / "status").read_text()
        except OSError:
            continue
        if word in command and "\nState:\tZ" not in status and descends(int(folder.name)):
            return True
    return False


def descends(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False
