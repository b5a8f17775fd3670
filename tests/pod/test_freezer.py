"""The freezer: nothing is read before the agent is dead, everything is delivered once, whatever the agent left."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pod_double import DROP, Double, PodFolders, closed_port, until

from orchestrator.gateway.wire import FreezeReport
from orchestrator.records.state import Entry
from orchestrator.sandbox.keeper.lay import read_pristine
from orchestrator.sandbox.pod.pristine import Noted, write_list

QUICK = """
orders.SETTLE_SECONDS, orders._LOOK_SECONDS = 0.1, 0.1
talk._FIRST_PAUSE, orders._LONGEST_PAUSE = 0.02, 0.1
"""
AS_POD_USER = "import encodings.ascii, _hashlib, os, resource; os.setgroups([]); os.setgid(64000); os.setuid(64000)"  # loaded while it may
STOP, DEAD, FROZEN = "GET /launch/stop", "POST /launch/dead", "POST /launch/frozen"


@pytest.fixture
def double() -> Iterator[Double]:
    with Double() as server:
        yield server


@pytest.fixture
def pod(tmp_path: Path, double: Double) -> PodFolders:
    """A pod whose workspace was prepared, and whose agent has left something."""
    pod = PodFolders(tmp_path / "pod", double)
    workspace = pod.path("areas/workspace")
    for name, text in (("kept", "kept"), ("changed", "old"), ("removed", "gone")):
        (workspace / name).write_text(text)
        (workspace / name).chmod(0o644)
    noted = Noted()
    for path, what in read_pristine(os.fsencode(workspace)).rows():
        noted.leaf(path, what)
    write_list(str(pod.path("ctl/pristine")), noted.lines())
    (pod.path("ctl") / "alive").touch()
    (workspace / "changed").write_text("new")
    (workspace / "removed").unlink()
    (workspace / "made").mkdir()
    pod.path("areas/output/final.json").write_text('{"status": "completed"}')
    return pod


class Agent:
    """Whoever holds the lock on /ctl/alive."""

    def __init__(self, pod: PodFolders) -> None:
        self.pod = pod
        self.file = (pod.path("ctl") / "alive").open()
        fcntl.flock(self.file, fcntl.LOCK_EX)
        (pod.path("log") / "started").write_text("1000.5\n")

    def end(self, cause: str = "exited", code: int | None = 0) -> None:
        ending = {"cause": cause, "code": code, "signal": None, "started": 1000.5, "ended": 1010.5}
        (self.pod.path("log") / "ending").write_text(json.dumps(ending))
        self.kill()

    def kill(self) -> None:
        self.file.close()


@pytest.fixture
def agent(pod: PodFolders) -> Iterator[Agent]:
    agent = Agent(pod)
    yield agent
    agent.kill()


def started(pod: PodFolders) -> subprocess.Popen[bytes]:
    process = pod.start("freezer.freezer", settings=QUICK)
    until(lambda: STOP in pod.double.asked)
    return process


def finished(process: subprocess.Popen[bytes]) -> int:
    try:
        _, told = process.communicate(timeout=30)
        print(told.decode())
    finally:
        process.kill()
    return process.returncode


def frozen(pod: PodFolders) -> int:
    """Freeze a pod whose agent is dead and whose launch is sealed."""
    pod.double.tell(sealed=True)
    return finished(pod.start("freezer.freezer", settings=QUICK))


def entries(pod: PodFolders) -> dict[str | None, Entry]:
    found = [Entry.model_validate_json(line) for line in pod.double.parts["entries"].splitlines()]
    return {entry.path: entry for entry in found}


def report(pod: PodFolders) -> FreezeReport:
    (only,) = pod.double.reports
    return FreezeReport.model_validate_json(json.dumps(only))


def origins(pod: PodFolders) -> dict[str | None, str]:
    return {path: entry.origin for path, entry in entries(pod).items()}


def test_once_sealed_it_delivers_in_order_and_reports(pod: PodFolders, agent: Agent):
    process = started(pod)
    (pod.path("log") / "output").write_bytes(b"%20d %10d\n" % (5, 4096) + b"hello")
    agent.end("exited", 3)
    pod.double.tell(sealed=True)
    assert finished(process) == 0
    assert [each for each in pod.double.asked if each not in (STOP, DEAD)] == [
        "PUT /launch/state/output",
        "PUT /launch/state/entries",
        "PUT /launch/state/changes",
        FROZEN,
    ]
    assert pod.double.indexes == {"3"}
    assert origins(pod) == {
        "output/final.json": "added",
        "workspace/changed": "changed",
        "workspace/kept": "pristine",
        "workspace/made": "added",
        "workspace/removed": "removed",
    }
    with tarfile.open(fileobj=io.BytesIO(pod.double.parts["changes"])) as tar:
        assert tar.getnames() == ["output/final.json", "workspace/changed", "workspace/made"]
    told = report(pod)
    assert told.exit is not None
    assert (told.exit.code, told.started, told.ended) == (3, 1000.5, 1010.5)
    assert base64.b64decode(told.final_b64 or "") == b'{"status": "completed"}'
    assert base64.b64decode(told.output_b64) == pod.double.parts["output"] == b"hello"
    assert told.disk_bytes is not None
    assert told.disk_bytes >= 3 * 4096
    assert (told.lost, told.interrupted) == (None, False)


@pytest.mark.parametrize(
    ("noted", "told"),
    [
        ("out_of_memory", "out_of_memory"),
        ("processes", "out_of_processes"),
        ("exited", None),
        ("out_of_processes", None),
    ],
)
def test_a_limit_for_which_the_supervisor_ended_the_agent_is_told(
    pod: PodFolders, agent: Agent, noted: str, told: str | None
):
    agent.end(noted, None)
    assert frozen(pod) == 0
    assert report(pod).cause == told


def test_the_volumes_group_bit_is_not_the_agents(pod: PodFolders):
    (pod.path("areas/workspace") / "made").chmod(0o2755)
    assert frozen(pod) == 0
    assert entries(pod)["workspace/made"].mode == 0o755


def test_a_stop_is_passed_on_and_the_launch_goes_on(pod: PodFolders, agent: Agent):
    process = started(pod)
    assert not (pod.path("ctl") / "stop").exists()
    pod.double.tell(stopped="cost_budget")
    until((pod.path("ctl") / "stop").exists)
    assert process.poll() is None
    agent.end("stopped", None)
    pod.double.tell(sealed=True)
    assert finished(process) == 0
    assert report(pod).interrupted is False


LOOKING = f"{QUICK}\nfrom orchestrator.sandbox.pod import usage\nusage.LOOK_SECONDS, usage.MOST_NAMES = 0.05, 200\n"


@pytest.mark.parametrize(
    ("where", "most"),
    [("areas/workspace", 4 << 20), ("areas/home/a", 4 << 20), ("areas/output", 1 << 20), ("log", 1 << 20)],
)
def test_an_agent_that_fills_the_disk_is_ended_with_a_result_of_its_own(
    pod: PodFolders, agent: Agent, where: str, most: int
):
    pod.plan["disk_bytes"] = 4 << 20
    process = pod.start("freezer.freezer", settings=f"{LOOKING}usage.SMALL_BYTES = 1 << 20")
    until(lambda: STOP in pod.double.asked)
    pod.path(where).mkdir(exist_ok=True)
    with (pod.path(where) / "big").open("wb") as file:
        until(lambda: file.write(b"x" * 65536) and (pod.path("ctl") / "full").exists())
    assert not (pod.path("ctl") / "stop").exists()
    assert pod.double.reports == []
    agent.end("out_of_disk")
    pod.double.tell(sealed=True)
    assert finished(process) == 0
    assert (report(pod).over_disk, report(pod).interrupted, report(pod).lost) == (True, False, None)
    assert most < (pod.path(where) / "big").stat().st_size < 1 << 30


def test_an_agent_that_makes_files_without_end_is_ended(pod: PodFolders, agent: Agent):
    pod.plan["disk_bytes"] = 200 << 10
    process = pod.start("freezer.freezer", settings=f"{LOOKING}usage._AT_LEAST_SECONDS = 0.1")
    until(lambda: STOP in pod.double.asked)
    names = iter(range(100_000))
    until(lambda: (pod.path("areas/tmp") / f"{next(names)}").touch() or (pod.path("ctl") / "full").exists())
    agent.end("out_of_disk")
    pod.double.tell(sealed=True)
    assert finished(process) == 0
    assert report(pod).over_disk is True


def test_an_agent_within_its_limit_is_left_alone(pod: PodFolders, agent: Agent):
    (pod.path("areas/workspace") / "big").write_bytes(b"x" * (1 << 20))
    with (pod.path("areas/tmp") / "holes").open("wb") as file:
        file.truncate(1 << 40)
    process = pod.start("freezer.freezer", settings=f"{LOOKING}usage._AT_LEAST_SECONDS = usage._LONG_REST = 0.0")
    until(lambda: pod.double.count(STOP) >= 2)
    assert not (pod.path("ctl") / "full").exists()
    agent.end()
    pod.double.tell(sealed=True)
    assert finished(process) == 0
    assert report(pod).over_disk is False


def test_a_seal_before_the_death_is_no_leave_to_read(pod: PodFolders, agent: Agent):
    process = started(pod)
    pod.double.tell(sealed=True)
    until((pod.path("ctl") / "stop").exists)
    time.sleep(0.2)
    assert "PUT /launch/state/entries" not in pod.double.asked
    agent.end("stopped")
    assert finished(process) == 0


def test_sigterm_while_the_agent_lives(pod: PodFolders, agent: Agent):
    process = started(pod)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    until((pod.path("ctl") / "stop").exists)
    time.sleep(0.2)
    assert DEAD not in pod.double.asked
    agent.end("terminated", None)
    assert finished(process) == 0
    assert [each for each in pod.double.asked if each not in (STOP, "PUT /launch/state/output")] == [
        DEAD,
        "PUT /launch/state/entries",
        "PUT /launch/state/changes",
        FROZEN,
    ]
    assert report(pod).interrupted is True


@pytest.mark.parametrize("quick", ["agent", "freezer"])
def test_sigterm_before_the_first_look(pod: PodFolders, double: Double, quick: str):
    process = started(pod)
    agent = Agent(pod)
    if quick == "agent":
        agent.end("terminated", None)
    process.send_signal(signal.SIGTERM)
    until((pod.path("ctl") / "stop").exists)
    agent.end("stopped" if quick == "freezer" else "terminated", None)
    assert finished(process) == 0
    assert report(pod).interrupted is True


def test_sigterm_just_after_the_agent_ended_by_itself(pod: PodFolders, agent: Agent):
    process = started(pod)
    time.sleep(0.3)
    agent.end("exited", 0)
    process.send_signal(signal.SIGTERM)
    assert finished(process) == 0
    assert pod.double.dead == 1
    assert report(pod).interrupted is False


def test_an_agent_cannot_say_itself_that_its_pod_was_ended(pod: PodFolders, agent: Agent):
    process = started(pod)
    agent.end("terminated", None)  # what it wrote before it had its supervisor killed
    pod.double.tell(sealed=True)
    assert finished(process) == 0
    assert report(pod).interrupted is False


def test_sigterm_before_the_agent_starts_keeps_it_from_starting(pod: PodFolders):
    process = started(pod)
    pod.double.answers(DEAD, *[503] * 3)
    process.send_signal(signal.SIGTERM)
    until(lambda: DEAD in pod.double.asked)
    with (pod.path("ctl") / "alive").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert finished(process) == 0
    assert (report(pod).started, report(pod).exit) == (None, None)


def test_a_lock_that_is_never_released_is_waited_for(pod: PodFolders, agent: Agent):
    process = started(pod)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    assert DEAD not in pod.double.asked
    process.kill()
    assert finished(process) == -signal.SIGKILL
    assert pod.double.reports == []


def test_the_kernel_tells_of_the_death_and_nobody_else_is_waited_for(pod: PodFolders, agent: Agent):
    settings = f"{QUICK}\norders._LOOK_SECONDS = 600"
    process = pod.start("freezer.freezer", settings=settings)
    until(lambda: STOP in pod.double.asked)
    time.sleep(0.3)
    assert DEAD not in pod.double.asked
    agent.end()
    assert finished(process) == 0
    assert pod.double.dead == 1
    assert report(pod).interrupted is False


def test_a_seal_ends_the_time_between_lock_and_death(pod: PodFolders, agent: Agent):
    process = pod.start("freezer.freezer", settings=f"{QUICK}\norders.SETTLE_SECONDS = 600")
    until(lambda: STOP in pod.double.asked)
    agent.end()
    pod.double.tell(sealed=True)
    assert finished(process) == 0
    assert DEAD not in pod.double.asked


def test_sigterm_a_moment_after_a_quick_supervisor_has_obeyed(pod: PodFolders, agent: Agent):
    pod.double.answers("PUT /launch/state/entries", *[503] * 4)
    process = pod.start("freezer.freezer", settings=f"{QUICK}\norders.JUST_NOW_SECONDS = 600")
    until(lambda: STOP in pod.double.asked)
    time.sleep(0.3)
    agent.end("stopped", None)
    until(lambda: "PUT /launch/state/entries" in pod.double.asked)
    process.send_signal(signal.SIGTERM)
    assert finished(process) == 0
    assert report(pod).interrupted is True


def test_a_lock_that_was_taken_is_kept_whatever_comes(pod: PodFolders, agent: Agent):
    pod.double.answers(FROZEN, *[503] * 4)
    process = started(pod)
    agent.end()
    until(lambda: FROZEN in pod.double.asked)
    process.send_signal(signal.SIGTERM)
    until(lambda: pod.double.count(FROZEN) >= 2)
    with (pod.path("ctl") / "alive").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert finished(process) == 0


def test_an_absent_driver_does_not_cost_the_state(pod: PodFolders, agent: Agent):
    process = started(pod)
    agent.end()
    until(lambda: DEAD in pod.double.asked)
    assert finished(process) == 0
    assert origins(pod)["workspace/changed"] == "changed"
    assert report(pod).interrupted is False


def test_an_agent_that_removed_its_started_marker(pod: PodFolders, agent: Agent):
    (pod.path("log") / "started").unlink()
    process = started(pod)
    time.sleep(0.3)  # the lock was seen held
    agent.kill()
    assert finished(process) == 0
    assert pod.double.dead == 1


def test_an_agent_that_has_not_started_is_waited_for(pod: PodFolders):
    process = started(pod)
    time.sleep(1)
    assert process.poll() is None
    assert DEAD not in pod.double.asked
    pod.double.tell(sealed=True)
    assert finished(process) == 0


def test_whether_the_agent_has_started_is_told_with_each_question(pod: PodFolders, double: Double):
    double.answers(STOP, *[(200, {})] * 3)
    process = started(pod)
    until(lambda: double.count(f"{STOP}?started=0") >= 2)
    agent = Agent(pod)
    until(lambda: f"{STOP}?started=1" in double.asked_fully)
    agent.end()
    assert finished(process) == 0


def test_lost_answers_and_a_stumbling_relay(pod: PodFolders):
    double = pod.double
    double.answers(STOP, DROP, 503)
    double.answers("PUT /launch/state/entries", 503, DROP, 500)
    double.answers("PUT /launch/state/changes", DROP)
    double.answers(FROZEN, 500, DROP)
    process = pod.start("freezer.freezer", settings=QUICK)
    double.tell(sealed=True)
    assert finished(process) == 0
    assert double.count("PUT /launch/state/entries") == 4
    assert double.count("PUT /launch/state/changes") == 2  # 409 the second time, with what it holds
    assert double.reports[0] == double.reports[1]


def test_a_relay_that_holds_something_else(pod: PodFolders):
    pod.double.parts["entries"] = b"something else"
    assert frozen(pod) == 51
    assert pod.told()["cause"] == "relay_refused"
    assert "holds other bytes" in pod.told()["message"]
    assert pod.double.reports == []


def test_a_relay_that_is_away_for_a_while(pod: PodFolders):
    relay = closed_port()
    pod.env["ORCHESTRATE_RELAY"] = f"http://{relay}"
    pod.double.tell(sealed=True)
    process = pod.start("freezer.freezer", settings=QUICK)
    until(lambda: STOP in pod.double.asked)
    time.sleep(0.3)
    with Double() as late:
        late._server.server_close()
        host, port = relay.split(":")
        late._server.socket = socket.create_server((host, int(port)))
        late._server.server_address = (host, int(port))
        assert finished(process) == 0
        assert set(late.parts) == {"entries", "changes"}
    assert len(pod.double.reports) == 1


def test_a_state_that_is_too_large_is_told_as_lost(pod: PodFolders):
    pod.double.answers("PUT /launch/state/entries", (413, {"error": {"type": "state_too_large"}}))
    assert frozen(pod) == 0
    assert "state_too_large" in (report(pod).lost or "")
    assert report(pod).final_b64


def test_a_gateway_that_does_not_know_the_launch_ends_the_agent(pod: PodFolders, agent: Agent):
    pod.env["ORCHESTRATE_TOKEN"] = "of another process"
    process = started(pod)
    assert finished(process) == 52
    assert pod.told()["cause"] == "gateway_restarted"
    assert (pod.path("ctl") / "stop").exists()


def test_a_gateway_that_is_away_is_waited_for(pod: PodFolders, agent: Agent):
    gateway = pod.env["ORCHESTRATE_GATEWAY"]
    pod.env["ORCHESTRATE_GATEWAY"] = f"http://{closed_port()}"
    process = pod.start("freezer.freezer", settings=QUICK)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    until((pod.path("ctl") / "stop").exists)
    agent.end()
    time.sleep(0.5)
    assert process.poll() is None
    process.kill()
    finished(process)
    assert gateway


def test_sigterm_while_freezing_changes_nothing(pod: PodFolders):
    pod.double.answers("PUT /launch/state/entries", *[503] * 5)
    pod.double.tell(sealed=True)
    process = pod.start("freezer.freezer", settings=QUICK)
    until(lambda: "PUT /launch/state/entries" in pod.double.asked)
    process.send_signal(signal.SIGTERM)
    assert finished(process) == 0
    assert report(pod).interrupted is False


def test_what_an_agent_leaves_in_its_workspace(pod: PodFolders):
    workspace = pod.path("areas/workspace")
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(workspace)
        bound.bind("sock")
        os.chdir(here)
    (workspace / "etc").symlink_to("/etc")
    (workspace / "loop").symlink_to("loop")
    with (workspace / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (workspace / os.fsdecode(b"\xff\n")).write_text("x")
    os.link(workspace / "kept", workspace / "again")
    (workspace / "suid").touch(0o755)
    (workspace / "suid").chmod(0o4755)
    assert frozen(pod) == 0
    seen = entries(pod)
    assert (seen["workspace/pipe"].type, seen["workspace/pipe"].finding) == ("fifo", "special_file")
    assert seen["workspace/sock"].type == "socket"
    assert seen["workspace/etc"].target == "/etc"
    assert "workspace/etc/passwd" not in seen
    assert seen["workspace/sparse"].finding == "too_large"
    assert {finding.type for finding in report(pod).findings} >= {
        "special_file",
        "link_outside",
        "too_large",
        "hard_link",
        "setuid",
    }
    assert {finding.source for finding in report(pod).findings} == {"freezer"}
    assert (report(pod).disk_bytes or 0) < 1 << 20


@pytest.mark.skipif(os.getuid() != 0, reason="another user is needed, whom modes hold for")
def test_what_the_pods_user_cannot_read_is_found_and_the_rest_delivered(pod: PodFolders):
    workspace = pod.path("areas/workspace")
    (workspace / "closed").mkdir()
    (workspace / "closed/in").write_text("x")
    (workspace / "closed").chmod(0)
    (workspace / "secret").write_text("x")
    (workspace / "secret").chmod(0)
    for folder in [pod.root, *pod.root.parents]:
        with contextlib.suppress(PermissionError):
            folder.chmod(folder.stat().st_mode | 0o055)
    (pod.path("dev")).chmod(0o777)
    (pod.path("ctl")).chmod(0o777)
    pod.double.tell(sealed=True)
    process = pod.start("freezer.freezer", settings=QUICK, before=AS_POD_USER)
    assert finished(process) == 0
    assert entries(pod)["workspace/secret"].finding == "unreadable"
    assert "workspace/closed/in" not in entries(pod)
    assert "unreadable" in {finding.type for finding in report(pod).findings}


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "huge", "socket"])
def test_a_final_answer_that_is_no_file(pod: PodFolders, kind: str):
    final = pod.path("areas/output/final.json")
    final.unlink()
    if kind == "fifo":
        os.mkfifo(final)
    elif kind == "link":
        final.symlink_to("/etc/passwd")
    elif kind == "folder":
        final.mkdir()
    elif kind == "huge":
        final.write_bytes(b"x" * 65537)
    else:
        here = Path.cwd()
        os.chdir(final.parent)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("final.json")
        os.chdir(here)
    assert frozen(pod) == 0
    assert report(pod).final_b64 is None


LOGS = {
    "fifo": os.mkfifo,
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "folder": lambda path: path.mkdir(),
    "lies": lambda path: path.write_text('{"code": 1e400, "signal": "x", "started": -1, "ended": [], "cause": {}}'),
    "deep": lambda path: path.write_text("[" * 4000),
    "noise": lambda path: path.write_bytes(os.urandom(4096)),
    "numbers": lambda path: path.write_bytes(b"%20d %10d\nabc" % (10**19, 0)),
    "absent": lambda path: None,
}


@pytest.mark.parametrize("attack", LOGS)
def test_logs_that_are_not_what_they_should_be(pod: PodFolders, attack: str):
    for name in ("output", "ending", "started"):
        LOGS[attack](pod.path("log") / name)
    assert frozen(pod) == 0
    told = report(pod)
    assert told.exit in (None, type(told.exit)() if told.exit else None)
    assert told.started is None
    assert told.lost is None


def test_the_end_of_a_ring(pod: PodFolders):
    (pod.path("log") / "output").write_bytes(b"%20d %10d\n" % (10, 8) + b"89234567")
    assert frozen(pod) == 0
    assert pod.double.parts["output"] == b"23456789"


def test_more_folders_than_can_be_looked_at_are_no_reason_to_wait(pod: PodFolders):
    for number in range(50):
        (pod.path("areas/tmp") / f"{number}").mkdir()
    pod.double.tell(sealed=True)
    settings = f"{QUICK}\nimport orchestrator.sandbox.pod.freezer as own\nown.MEASURE_SECONDS = -1.0"
    assert finished(pod.start("freezer.freezer", settings=settings)) == 0
    told = report(pod)
    assert [each.type for each in told.findings] == ["disk_not_measured"]
    assert (told.lost, told.final_b64 is not None) == (None, True)
    assert origins(pod)["workspace/changed"] == "changed"


def test_areas_that_are_not_there_are_told(pod: PodFolders):
    (pod.path("ctl") / "pristine").unlink()
    assert frozen(pod) == 0
    assert "cannot be read: No such file or directory" in (report(pod).lost or "")


def test_memory_is_bounded_and_what_needs_more_is_lost(pod: PodFolders):
    workspace = pod.path("areas/workspace")
    for number in range(3000):
        os.symlink("x" * 4000, workspace / str(number))
    pod.double.tell(sealed=True)
    limit = "freezer._memory_limit = lambda: 1; freezer._LEAST_HEAP = 10 << 20"
    assert finished(pod.start("freezer.freezer", settings=f"{QUICK}{limit}")) == 0
    assert "memory does not suffice" in (report(pod).lost or "")


def test_variables_that_are_missing_are_named_by_the_freezer(pod: PodFolders):
    del pod.env["ORCHESTRATE_RELAY"]
    assert finished(pod.start("freezer.freezer")) == 59
    assert pod.told() == {"cause": "freezer_failed", "message": "the pod has no ORCHESTRATE_RELAY"}


def test_what_is_large_is_hashed_before_a_relay_is_asked_to_listen(pod: PodFolders):
    with (pod.path("areas/workspace") / "holes").open("wb") as file:
        file.truncate(3 << 20)
    content = bytes(3 << 20)
    settings = f"""{QUICK}
import orchestrator.sandbox.pod.freezer as own
from orchestrator.sandbox.keeper import freeze
own.AHEAD_BYTES = 1 << 20
plain, hashed = freeze.Freezer._hash, []
def told(self, root, path, size):
    print("hashed", path.decode(), file=sys.stderr)
    return plain(self, root, path, size)
freeze.Freezer._hash = told
real = sinks.connect
def connected(*given):
    print("connected", file=sys.stderr)
    return real(*given)
sinks.connect = connected
"""
    pod.double.tell(sealed=True)
    assert pod.run("freezer.freezer", settings=settings) == 0
    words = [line for line in pod.stderr.splitlines() if line in ("connected", "hashed holes")]
    assert words == ["hashed holes", "connected", "connected"]
    assert entries(pod)["workspace/holes"].sha256 == hashlib.sha256(content).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(pod.double.parts["changes"])) as tar:
        found = tar.extractfile("workspace/holes")
        assert found is not None
        assert found.read() == content


def test_where_containers_do_not_share_locks_only_the_driver_proves_a_death(pod: PodFolders):
    pod.plan["shared_lock"] = False  # as under gVisor
    (pod.path("log") / "started").write_text("1000.5\n")  # the agent lives, and its lock is not to be seen
    process = started(pod)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    assert DEAD not in pod.double.asked
    pod.path("areas/workspace/late").write_text("work")
    pod.double.tell(sealed=True)
    assert finished(process) == 0
    assert "workspace/late" in entries(pod)


def test_where_containers_do_not_share_locks_a_pod_that_is_ended_waits_for_the_note(pod: PodFolders):
    pod.plan["shared_lock"] = False
    agent = Agent(pod)
    agent.kill()
    (pod.path("log") / "ending").touch()  # a supervisor makes it when it starts
    process = started(pod)
    process.send_signal(signal.SIGTERM)
    until((pod.path("ctl") / "stop").exists)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert DEAD not in pod.double.asked
    agent.end("terminated", None)
    assert finished(process) == 0
    assert pod.double.reports[0]["interrupted"] is True
