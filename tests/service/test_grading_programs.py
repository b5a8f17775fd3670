"""The programs of a grading pod for real, on a played cluster: laid, joined, asked, reported."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fault_kubelet import Script
from fault_server import FaultServer
from grader_world import RUN, TRIAL, Files, GraderWorld, lines
from grading_world import NAMESPACE, grading_pods
from pod_on_this_machine import runs

from grader_service.grade import grade
from grader_service.pod import join, wire
from grader_service.pod.runner import hang_up
from orchestrator.errors import SandboxError
from orchestrator.records.verdict import Verdict

BEFORE: Files = {"src/auth.py": "def check(password):\n    return True\n"}
HIDDEN: Files = {
    "tests/test_auth.py": """
        import os
        from subject import call, run

        def test_it():
            assert not [name for name in os.environ if "TOKEN" in name]
            assert call("auth:check", "") is False
            seen = run("sh", "-c", "ls /grader; echo $ORCHESTRATE_TOKEN").stdout.split()
            assert seen == ["guard", "join.py", "lib", "plan.json", "pristine", "state"]
        """,
    "expected.txt": "tests/test_auth.py::test_it\n",
}
GUARDED: Files = {
    "tests/test_auth.py": """
        from subject import run

        def test_it():
            assert run("sh", "-c", "kill -CONT $$").exit_code == 0
            assert run("sh", "-c", "kill -CONT 1").exit_code == 1
            assert "Seccomp:\\t2" in run("cat", "/proc/self/status").stdout
        """,
    "expected.txt": "tests/test_auth.py::test_it\n",
}
CHECK: dict[str, Any] = {
    "id": "hidden_tests", "type": "command", "run": "pytest -q hidden/tests", "results": "junit",
    "expect": "hidden/expected.txt", "pythonpath": ["src"], "timeout_seconds": 30,
}  # fmt: skip


def graded(
    world: GraderWorld,
    after: Files,
    check: dict[str, Any] = CHECK,
    hidden: Files = HIDDEN,
    memory: int = 1 << 30,
    resources: dict[str, Any] | None = None,
    **fields: Any,
) -> Verdict:
    environment = {"requires": ["python3"], "resources": resources or {}}
    world.task(BEFORE, [check], hidden=hidden, environment=environment)
    world.left(after)
    behave = runs(world.folder / "volumes")
    played = Script(dict.fromkeys(("prepare", "runner", "subject"), behave))

    async def scene() -> Verdict:
        async with FaultServer() as server:
            server.kubelet.play("g-*", played)
            async with grading_pods(server, **fields) as pairs:
                own = world.grading(runner_memory_bytes=memory)
                verdict = await grade(replace(own, tools=replace(own.tools, pairs=pairs)), RUN, TRIAL)
            assert all(pod["metadata"].get("deletionTimestamp") for pod in server.pods(NAMESPACE))
            return verdict

    return asyncio.run(asyncio.wait_for(scene(), 50))


def test_right_work_passes(world: GraderWorld) -> None:
    verdict = graded(world, {"src/auth.py": "def check(password):\n    return bool(password)\n"})
    assert verdict.result == "passed", lines(verdict)
    assert verdict.checks[0].actual == "1 of 1 passed"


def test_work_cannot_aim_at_the_process_that_watches_over_it(world: GraderWorld) -> None:
    verdict = graded(world, BEFORE, hidden=GUARDED)
    assert verdict.result == "passed", lines(verdict)


KEPT: Files = {
    "tests/test_auth.py": """
        from subject import script

        def test_it():
            answers = [script("result = [[]] * 200_000") for _ in range(20)]
            assert answers == []
        """,
    "expected.txt": "tests/test_auth.py::test_it\n",
}


@pytest.mark.slow
def test_answers_for_which_the_tests_have_no_memory_fail_them(world: GraderWorld) -> None:
    verdict = graded(world, BEFORE, hidden=KEPT, memory=128 << 20)
    assert verdict.result == "failed", lines(verdict)
    assert "MemoryError" in lines(verdict)


def test_a_termination_message_does_not_fill_the_nodes_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = tmp_path / "termination-log"
    message.write_bytes(b"words")
    monkeypatch.setattr(join, "_TERMINATION", str(message))
    writes = f"sleep 0.2; head -c 4000000 /dev/zero >> {message}; sleep 0.3"
    kept = subprocess.Popen(["sh", "-c", f"test $(cat {message}) = words && {writes}"])
    line, runner = socket.socketpair()
    with line, runner:
        assert join._watch(kept.pid, line, 1 << 20, time.monotonic() + 20, lambda: False) == 0
    kept.returncode = 0  # it was reaped there
    assert message.stat().st_size < 4_000_000


def test_a_subject_ends_with_its_line_whatever_keeps_it_from_noticing() -> None:
    line, runner = socket.socketpair()
    held = subprocess.Popen(["sh", "-c", "kill -STOP $$"])
    hang_up(runner)
    try:
        with line:
            assert join._watch(held.pid, line, 1 << 20, time.monotonic() + 20, lambda: False) == 0
        assert held.poll() is None
    finally:
        held.kill()
        held.wait()


def test_a_subject_is_ended_as_soon_as_it_takes_too_much_of_the_disk(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    is_over = join.disk_watch([str(folder)], 4 << 20)
    line, runner = socket.socketpair()
    writes = subprocess.Popen(["sh", "-c", f"head -c 3000000 /dev/zero > {folder}/a; sync {folder}/a; exec sleep 60"])
    with line, runner:
        try:
            assert join._watch(writes.pid, line, 1 << 20, time.monotonic() + 2, is_over) == wire.DEADLINE
            (folder / "b").write_bytes(bytes(3_000_000))
            os.sync()
            assert join._watch(writes.pid, line, 1 << 20, time.monotonic() + 20, is_over) == wire.DISK
        finally:
            writes.kill()
            writes.wait()


FILLS = """
import os

def check(password):
    os.mkdir("/tmp/closed")
    data = bytes(1 << 20)
    os.chmod("/tmp/closed", 0o300)
    for number in range(4000):
        with open(f"/tmp/closed/{number}", "wb") as file:
            file.write(data)
"""


@pytest.mark.slow
def test_work_that_fills_the_disk_in_a_folder_that_it_has_closed_fails(world: GraderWorld) -> None:
    verdict = graded(world, {"src/auth.py": FILLS}, resources={"disk": "32Mi"})
    assert verdict.result == "failed", lines(verdict)
    assert "the subject's sandbox was ended: out_of_disk" in lines(verdict)
    left = sum(file.stat().st_size for file in (world.folder / "volumes").rglob("closed/*"))
    assert 0 < left < 3000 << 20


HOLDS = """
import os, signal, socket

def ended(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True

def check(password):
    os.kill(os.getppid(), signal.SIGSTOP)  # its server, which would end it
    held = []
    while True:
        held = [connection for connection in held if not ended(connection)]
        if len(held) < 150:
            held.append(socket.create_connection(("127.0.0.1", PORT)))
"""


@pytest.mark.slow
def test_work_that_takes_all_connections_of_its_pod_is_judged_all_the_same(world: GraderWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    verdict = graded(
        world, {"src/auth.py": HOLDS.replace("PORT", str(port))}, {**CHECK, "timeout_seconds": 5}, port=port
    )
    assert verdict.result == "failed", lines(verdict)
    assert verdict.checks[0].actual == "not finished within 5 s"


KILLER = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"


@pytest.mark.slow
def test_work_that_kills_its_server_fails_and_the_kubelet_tells_how(world: GraderWorld) -> None:
    verdict = graded(world, {"src/auth.py": KILLER})
    assert verdict.result == "failed", lines(verdict)
    assert "the subject's sandbox is gone or broken" in lines(verdict)


@pytest.mark.slow
def test_a_fork_bomb_is_ended_by_its_container(world: GraderWorld) -> None:
    verdict = graded(world, {"src/auth.py": "import os\nwhile True:\n    os.fork()\n"})
    assert verdict.result == "failed", lines(verdict)
    assert "the subject's sandbox was ended: out_of_processes" in lines(verdict)


@pytest.mark.slow
def test_a_deadline_ends_the_tests(world: GraderWorld) -> None:
    sleeps = {"id": "slow", "type": "command", "run": "echo begun; sleep 60", "timeout_seconds": 1}
    verdict = graded(world, BEFORE, sleeps)
    assert verdict.result == "failed"
    assert verdict.checks[0].actual == "not finished within 1 s"


@pytest.mark.slow
def test_an_open_network_is_found_by_prepare(world: GraderWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_:
        place = f"127.0.0.1:{open_.getsockname()[1]}"
        with pytest.raises(SandboxError, match=f"can reach {place}") as caught:
            graded(world, BEFORE, denied=(place,))
    assert caught.value.cause == "policy_not_enforced"


@pytest.mark.slow
def test_a_state_that_contradicts_itself_is_a_grader_error(world: GraderWorld) -> None:
    world.left = lambda after: world.committed((b'{"path": "workspace/../x", "type": "file"}\n', b""))  # type: ignore[method-assign, misc]
    verdict = graded(world, BEFORE)
    assert verdict.result == "grader_error"
    assert verdict.error is not None
    assert verdict.error.type == "evidence"
