"""The checker: the same results as sandboxes give, and a child that reaches nothing of the grader's or of its neighbours'."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from checker_world import checker
from grader_world import RUN, TRIAL, GraderWorld, lines

from grader_service.cluster.checker import CheckerChildren
from grader_service.grade import grade
from grader_service.programs import Programs
from grader_service.room import Room
from orchestrator.errors import RefusedError, SandboxError, StoreError
from orchestrator.records.verdict import Verdict

ROOT = Path(__file__).parents[2]
CHECKS = [
    {"id": "json", "type": "files", "path": "d.json", "values": [{"at": "a", "equals": 1}]},
    {"id": "yaml", "type": "files", "path": "d.yaml", "values": [{"at": "a", "equals": 1}]},
    {"id": "diff", "type": "diff", "allow": ["d.*"]},
    {"id": "deep", "type": "files", "path": "deep.json", "values": [{"at": "a", "equals": 1}]},
    {"id": "slow", "type": "files", "path": "slow.txt", "regex": "^(a+)+$"},
]
API = {"id": "api", "type": "public_api_unchanged", "package": "p"}
BEFORE = {"p/__init__.py": "def f(a): ...\n", "deep.json": "{}", "slow.txt": ""}
AFTER = {**BEFORE, "d.json": '{"a": 1}', "d.yaml": "a: 1\n", "deep.json": "[" * 200_000, "slow.txt": "a" * 60 + "b"}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Folder of a checker that several tests use, one after the other."""
    with tempfile.TemporaryDirectory(prefix="o-", dir="/tmp") as folder, checker(Path(folder)):
        yield Path(folder)


@pytest.fixture
def world(place: Path, short_folder: Path, programs: Programs) -> GraderWorld:
    world = GraderWorld(short_folder, programs)
    world.checker = place / "c.sock"
    return world


def scratch_of(world: GraderWorld) -> Path:
    assert world.checker is not None
    return world.checker.parent / "scratch"


def test_what_is_laid_has_room_by_its_own_size_and_not_by_what_its_task_allows(world: GraderWorld) -> None:
    world.task({"big.txt": "x" * 1000}, [{"id": "a", "type": "files", "path": "a.txt", "exists": True}])
    world.left({"big.txt": "x" * 1000, "a.txt": "y" * 5000})

    async def scene(limit: int) -> Verdict:
        own = world.grading()
        assert world.checker is not None
        tools = replace(own.tools, limited=CheckerChildren(str(world.checker), Room.on(limit, "give it more")))
        return await grade(replace(own, tools=tools), RUN, TRIAL)

    with pytest.raises(StoreError, match="give it more") as caught:
        asyncio.run(scene(8000))
    assert caught.value.cause == "grader_scratch"
    assert asyncio.run(scene(1 << 20)).result == "passed"


def test_one_verdict_from_checks_of_all_kinds(world: GraderWorld) -> None:
    world.task(BEFORE, CHECKS, invariants=[API])
    world.left(AFTER)
    verdict = world.grade(check_seconds=1)
    found = {result.id: result.passed for result in (*verdict.checks, *verdict.invariants)}
    assert found == {"json": True, "yaml": True, "diff": False, "deep": False, "slow": False, "api": True}, lines(
        verdict
    )
    assert os.listdir(scratch_of(world)) == []


def test_a_contradicting_state_is_a_grader_error(world: GraderWorld) -> None:
    world.task(BEFORE, CHECKS)
    world.committed((b'{"path": "workspace/../x", "type": "file"}\n', b""))
    assert "evidence" in lines(world.grade())


PROBE = """
import os, resource, signal, socket, subprocess, sys
from orchestrator.sandbox import jail
jail.protect()
parent = os.getpid()
child = os.fork()
if child == 0:
    jail.confine([{own!r}], {home!r}, cpu_seconds=5, memory_bytes=64 << 20, file_bytes=1 << 20)
    def tried(what):
        try:
            what()
        except (OSError, MemoryError, ValueError) as error:
            return type(error).__name__
        return "done"
    found = [
        open({own!r} + "/state").read(),
        tried(lambda: open({home!r} + "/new", "w").write("x")),
        tried(lambda: open({other!r}).read()),
        tried(lambda: os.listdir("/proc")),
        tried(lambda: open(f"/proc/{{parent}}/environ").read()),
        tried(lambda: open({own!r} + "/state", "a")),
        tried(lambda: socket.socket(socket.AF_INET)),
        tried(lambda: socket.socketpair()),
        tried(lambda: subprocess.run(["/bin/true"])),
        tried(lambda: bytearray(256 << 20)),
        tried(lambda: open({home!r} + "/big", "w").write("x" * (2 << 20))),
        tried(lambda: resource.prlimit(parent, resource.RLIMIT_CPU, (1, 1))),
        tried(lambda: os.kill(parent, signal.SIGKILL)),
    ]
    print(*found, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_confined_process_reaches_its_own_files_and_nothing_else(tmp_path: Path) -> None:
    own, home, other = tmp_path / "own", tmp_path / "home", tmp_path / "token"
    own.mkdir()
    home.mkdir()
    (own / "state").write_text("state")
    other.write_text("secret")
    code = textwrap.dedent(PROBE).format(own=str(own), home=str(home), other=str(other))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    denied = "PermissionError"
    assert done.stdout.split() == [
        "state", "done", denied, denied, denied, denied, denied, denied, denied, "MemoryError", "OSError", denied, denied,
    ], done.stderr  # fmt: skip


FULL = """
import json, socket, sys
from grader_service.checker import warden
warden._SPARE_BYTES = 1 << 60
here, there = socket.socketpair()
job = {"state": sys.argv[1], "pristine": "/n", "hidden": "/n", "checks": [], "lay": True}
job |= {"limit_bytes": 1, "seconds": 5, "memory_bytes": 1 << 28}
print(json.dumps(warden.Warden({"job": job, "wall_seconds": 30, "disk_bytes": 1 << 20}, sys.argv[1], here).run()))
"""


def test_a_full_disk_is_no_finding_about_the_agent(tmp_path: Path) -> None:
    for name in ("entries.jsonl", "changes.tar"):
        (tmp_path / name).touch()
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "scratch folder more" in json.loads(done.stdout)["problem"]
    assert sorted(os.listdir(tmp_path)) == ["changes.tar", "entries.jsonl"]


SPIN = """
import json, socket, sys
from grader_service.checker import warden
from orchestrator.sandbox import jail
def parse(request, home):
    jail.confine([], home, cpu_seconds=1, memory_bytes=64 << 20, file_bytes=1 << 20)
    while True:
        pass
warden.parse = parse
here, there = socket.socketpair()
print(json.dumps(warden.Warden({"job": {}, "wall_seconds": 30}, sys.argv[1], here).run()))
"""


def test_what_takes_too_much_processor_time_is_the_agents(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPIN, str(tmp_path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert json.loads(done.stdout).get("cause") == "wall_clock", done.stdout


def test_leaving_early_ends_the_job(world: GraderWorld) -> None:
    slow = {"id": "slow", "type": "files", "path": "slow.txt", "regex": "^(a+)+$"}
    world.task(BEFORE, [slow])
    world.left(AFTER)
    scratch = scratch_of(world)

    async def scene() -> None:
        asking = asyncio.create_task(grade(world.grading(check_seconds=600), RUN, TRIAL))
        while not os.listdir(scratch):
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        while os.listdir(scratch):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_checker_that_does_not_fit_is_refused(world: GraderWorld) -> None:
    children = CheckerChildren(str(world.checker))
    with pytest.raises(RefusedError, match="give both the same image"):
        asyncio.run(children.preflight("another", 1 << 20))
    with pytest.raises(RefusedError, match="does not answer"):
        asyncio.run(CheckerChildren(str(world.folder / "gone")).preflight("another", 1 << 20, patience=0))


@pytest.mark.parametrize(
    "reply", [b"", b"[" * 100_000 + b"\n", b'{"code": "x"}\n', b'{"problem": "full"}\n', b"x" * (5 << 20)]
)
def test_a_broken_checker_is_infrastructure(programs: Programs, short_folder: Path, reply: bytes) -> None:
    world = GraderWorld(short_folder, programs)
    world.task(BEFORE, CHECKS)
    world.left(AFTER)
    path = short_folder / "broken.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            client, _ = listening.accept()
            with client, contextlib.suppress(OSError):
                client.recv(1 << 20)
                client.sendall(reply)

        threading.Thread(target=answer, daemon=True).start()
        world.checker = path
        with pytest.raises(SandboxError) as caught:
            world.grade()
    assert caught.value.cause == "grader_checker"
    assert world.stored_verdicts() == []


def test_a_killed_warden_is_infrastructure_and_leaves_the_checker_working(world: GraderWorld) -> None:
    slow = {"id": "slow", "type": "files", "path": "slow.txt", "regex": "^(a+)+$"}
    world.task(BEFORE, [slow])
    world.left(AFTER)

    def strike() -> None:
        scratch = scratch_of(world)
        while not os.listdir(scratch):
            pass
        for warden in _forks_of_the_checker(world):
            os.kill(warden, signal.SIGKILL)

    threading.Thread(target=strike, daemon=True).start()
    with pytest.raises(SandboxError, match="without a reply"):
        world.grade(check_seconds=5)
    assert world.grade(check_seconds=1).result == "failed"


def _forks_of_the_checker(world: GraderWorld) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1])
            if (
                str(world.checker).encode() in words
                and str(world.checker).encode() in Path(f"/proc/{parent}/cmdline").read_bytes()
            ):
                found.append(int(name))
        except OSError:
            continue
    return sorted(found)[:1]
