"""The supervisor as the first process of a container, and an agent that is against it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from supervised_world import Pod, holding, supervisor


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def marker(name: str = "here") -> str:
    """Python that tells the test that the agent has come so far."""
    return f"open('/workspace/{name}', 'w').close()\n"


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("code", [0, 1, 3, 118, 126, 255])
def test_the_code_of_the_command_is_the_containers(pod: Pod, code: int):
    assert pod.run("sh", "-c", f"exit {code}") == code
    ending = pod.ending()
    assert (ending["cause"], ending["code"], ending["signal"]) == ("exited", code, None)
    assert ending["started"] <= ending["ended"]


def test_a_signal_that_ends_the_command_is_128_more(pod: Pod):
    assert pod.run("sh", "-c", "kill -SEGV $$") == 128 + signal.SIGSEGV
    assert (pod.ending()["code"], pod.ending()["signal"]) == (None, signal.SIGSEGV)


@pytest.mark.parametrize("code", [119, 120, 121, 122, 123, 124, 125])
def test_no_command_can_speak_for_the_supervisor(pod: Pod, code: int):
    assert pod.run("sh", "-c", f"exit {code}") == 118
    assert pod.ending()["code"] == code


@pytest.mark.parametrize(
    ("command", "code", "number"), [("no-such-program", 127, 2), ("/etc/passwd", 126, 13), ("/", 126, 13)]
)
def test_what_cannot_be_run(pod: Pod, command: str, code: int, number: int):
    assert pod.run(command) == code
    assert (pod.ending()["cause"], pod.ending()["errno"]) == ("cannot_run", number)
    assert f"cannot run {command}: {os.strerror(number)}".encode() in pod.output()


def test_stdin_environment_folder_and_session(pod: Pod):
    (pod.ctl / "stdin").write_bytes(b"hello\0there")
    code = (
        "import _signal; _signal.signal(13, 0); _signal.signal(25, 0)\n"  # Python ignores these two by itself
        "import os, sys\n"
        "assert sys.stdin.buffer.read() == b'hello\\0there'\n"
        "assert os.getcwd() == '/workspace' and os.getppid() == 1 and os.getsid(0) == os.getpid()\n"
        "assert os.listdir('/proc/self/fd') == ['0', '1', '2', '3'], os.listdir('/proc/self/fd')\n"  # 3 lists them
        "assert not _signal.pthread_sigmask(_signal.SIG_BLOCK, [])\n"
        "ignored = int(open('/proc/self/status').read().split('SigIgn:')[1].split()[0], 16)\n"
        "assert not ignored & ~(3 << 31), hex(ignored)\n"  # 32 and 33 are the C library's own, and nobody else's to set
        "assert int(open('/proc/self/oom_score_adj').read()) > int(open('/proc/1/oom_score_adj').read())"
    )
    assert pod.python(code) == 0, pod.output()


def test_descriptors_of_whoever_starts_it_are_not_passed_on(pod: Pod):
    with (pod.ctl / "alive").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        code = f"import os; os.fstat({secret.fileno()})"
        assert pod.python(code) == 1
    assert b"Bad file descriptor" in pod.output()


def test_orphans_are_reaped_while_the_command_runs_and_killed_when_it_ends(pod: Pod):
    code = (
        "import os, time\n"
        "for sleep in (0, 1000):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0:\n"
        "            os.setsid(); time.sleep(sleep)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "time.sleep(0.3)\n"
        "print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) > 2).__len__())"
    )
    started = time.monotonic()
    assert pod.python(code) == 0
    assert pod.output() == b"1\n"
    assert time.monotonic() - started < 100


def test_more_orphans_than_are_reaped_at_once(tmp_path: Path):
    pod = Pod(tmp_path, processes=100_000)
    code = (
        "import os, time\nif os.fork() == 0:\n"
        "    for _ in range(2500):\n        if os.fork() == 0: os._exit(0)\n"
        "    os._exit(0)\n"
        "end = time.monotonic() + 10\n"
        "while time.monotonic() < end and sum(name.isdigit() for name in os.listdir('/proc')) > 3: time.sleep(0.05)\n"
        "os._exit(sum(name.isdigit() for name in os.listdir('/proc')))"
    )
    assert pod.python(code) == 3  # the supervisor, this program, and its own child


def test_the_lock_is_held_before_the_command_starts_and_until_all_is_dead(pod: Pod):
    code = marker() + "import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(1000)"
    running = pod.start(sys.executable, "-I", "-S", "-c", code)
    running.until(pod.log / "started")
    assert is_locked(pod.ctl / "alive")
    running.until(pod.workspace / "here")
    assert is_locked(pod.ctl / "alive")
    pod.stop()
    with (pod.ctl / "alive").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):  # it is gone itself
            assert Path(f"/proc/{running.first}/task/{running.first}/children").read_text() == ""
    assert running.wait() == 125
    assert pod.ending()["cause"] == "stopped"


def test_whoever_keeps_the_lock_keeps_the_agent_from_starting(pod: Pod):
    with holding(pod.ctl / "alive"):
        assert pod.run("touch", "/workspace/here") == 120
    assert not (pod.workspace / "here").exists()
    assert not (pod.log / "started").exists()
    assert json.loads(pod.termination.read_text())["cause"] == "cannot_lock"


def test_a_lock_that_is_only_tried_is_waited_for(pod: Pod):
    with holding(pod.ctl / "alive"):
        running = pod.start("true")
        time.sleep(0.3)
        assert running.process.poll() is None
    assert running.wait() == 0


def test_the_hard_deadline(tmp_path: Path):
    pod = Pod(tmp_path, wall=0.4)
    assert pod.run("sh", "-c", "trap '' TERM INT; sleep 1000 & sleep 1000") == 124
    assert pod.ending()["cause"] == "deadline"


def test_a_disk_that_is_said_to_be_full_ends_it(pod: Pod):
    running = pod.start("sh", "-c", "trap '' TERM INT; touch here; sleep 1000")
    running.until(pod.workspace / "here")
    (pod.ctl / "full").touch()
    assert running.wait() == 119
    assert pod.ending()["cause"] == "out_of_disk"


def test_a_stop_file_that_is_there_already(pod: Pod):
    pod.stop()
    assert pod.run("sleep", "1000") == 125


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGWINCH])
def test_whatever_signal_an_image_is_stopped_by_ends_it(pod: Pod, number: signal.Signals):
    running = pod.start("sh", "-c", "trap '' TERM INT QUIT; touch here; sleep 1000")
    running.until(pod.workspace / "here")
    running.signal(number)
    assert running.wait() == 143
    assert pod.ending()["cause"] == "terminated"


ATTACKS = {
    "kill": "for n in [*range(1, 32), *range(34, 65)]: refused(os.kill, 1, n)",
    "everybody": "_signal.signal(15, 1)\ntry: os.kill(-1, 15)\nexcept ProcessLookupError: pass",
    "thread": "assert [libc.syscall(200, 1, 9), libc.syscall(234, 1, 1, 19), libc.syscall(62, (7 << 32) + 1, 9)] == [-1] * 3",
    "queue": (
        # SI_QUEUE with a process id of 0, as if from outside
        "info = struct.pack('iiiiii', 15, 0, -1, 0, 0, 0).ljust(128, b'\\0')\n"
        "assert libc.syscall(129, 1, 15, info) == -1 and libc.syscall(297, 1, 1, 15, info) == -1"
    ),
    "attach": "assert libc.ptrace(16, 1, 0, 0) == -1 and libc.ptrace(0x4206, 1, 0, 0) == -1",
    "memory": (
        "for n in ('mem', 'environ', 'maps', 'fd/0', 'root/etc'):\n"
        "    try: open('/proc/1/' + n, 'rb').read(1); os._exit(9)\n"
        "    except OSError: pass"
    ),
    "descriptors": (
        "fd = libc.syscall(434, 1, 0); assert fd >= 0 and libc.syscall(438, fd, 4, 0) == -1 and libc.syscall(424, fd, 9, 0, 0) == -1\n"
        "fd = os.open('/proc/1', 0); assert libc.syscall(424, fd, 19, 0, 0) == -1"
    ),
    "owner": (
        "import fcntl\na, b = os.pipe(); fcntl.fcntl(a, 8, 1); refused(fcntl.fcntl, a, 10, 19)\n"
        "fcntl.fcntl(a, 4, fcntl.fcntl(a, 3) | 0o20000); os.write(b, b'x')"
    ),
    "sibling": "assert libc.syscall(56, 0x8000 | 19, 0, 0, 0, 0) == -1 and libc.syscall(435, b'\\0' * 64, 64) == -1",
    "contexts": "assert libc.syscall(206, 1, ctypes.create_string_buffer(8)) == -1",
    "limits": "for r in (0, 1, 2, 3, 5, 6, 7, 8, 9, 11): refused(resource.prlimit, 1, r, (0, 0))",
    "priority": (
        "for which, who in ((os.PRIO_PROCESS, 1), (os.PRIO_PGRP, 1), (os.PRIO_USER, 0)): refused(os.setpriority, which, who, 19)\n"
        "refused(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0)); refused(os.sched_setaffinity, 1, [0])"
    ),
    "control": "\n".join(
        f"try: {each}; os._exit(9)\nexcept OSError: pass"
        for each in (
            "os.unlink('/ctl/alive')",
            "open('/ctl/stop', 'w')",
            "os.rename('/ctl/alive', '/ctl/x')",
            "os.chmod('/ctl/limits', 0)",
        )
    )
    + "\nimport fcntl\ntry: fcntl.flock(open('/ctl/alive'), fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(9)\nexcept OSError: pass",
}
REFUSED = """
def refused(call, *arguments):
    try: call(*arguments)
    except PermissionError: return
    os._exit(9)
"""


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_the_supervisor_does_not_keep_it_from_stopping(pod: Pod, attack: str):
    code = (
        "import ctypes, os, resource, struct, time, _signal\n"
        f"libc = ctypes.CDLL(None)\n{REFUSED}{ATTACKS[attack]}\n{marker()}print('done', flush=True)\ntime.sleep(1000)"
    )
    running = pod.start(sys.executable, "-I", "-S", "-c", _with_stdlib(code))
    running.until(pod.workspace / "here")
    time.sleep(0.15)
    assert running.process.poll() is None
    pod.stop()
    assert running.wait() == 125
    assert pod.output() == b"done\n"
    assert pod.ending()["cause"] == "stopped"


def _with_stdlib(code: str) -> str:
    import resource

    folder = Path(resource.__file__).parent if getattr(resource, "__file__", None) else None
    return code if folder is None else f"import sys; sys.path.append({str(folder)!r})\n{code}"


def test_what_is_not_aimed_at_the_supervisor_is_not_refused(pod: Pod):
    code = (
        "import os, resource, subprocess, sys, threading, _signal\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0)); resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "os.setpriority(os.PRIO_PROCESS, 0, 19); os.sched_setaffinity(0, os.sched_getaffinity(0))\n"
        "thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()\n"
        "os.killpg(child.pid, 9); assert child.wait() == -9\n"
        "sys.exit(7)"
    )
    assert pod.run(sys.executable, "-I", "-c", code) == 7, pod.output()
    assert pod.output() == b"thread\n"


def test_whatever_kills_the_supervisor_ends_the_agent_too(pod: Pod):
    running = pod.start("sh", "-c", "touch here; sleep 1000")
    running.until(pod.workspace / "here")
    running.signal(signal.SIGKILL)
    running.wait()
    deadline = time.monotonic() + 5
    while is_locked(pod.ctl / "alive") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_locked(pod.ctl / "alive")


def test_the_termination_message_does_not_fill_the_nodes_disk(pod: Pod):
    code = (
        "import time\nf = open('/dev/termination-log', 'r+b', 0)\nfor _ in range(64): f.write(bytes([7]) * (1 << 20))\n"
        f"{marker()}time.sleep(1000)"
    )
    running = pod.start(sys.executable, "-I", "-S", "-c", code)
    running.until(pod.workspace / "here")
    deadline = time.monotonic() + 10
    while (held := pod.termination.stat().st_blocks * 512) > 1 << 20 and time.monotonic() < deadline:
        time.sleep(0.01)  # a file that is cut has its new size some time before its blocks are free
    assert held <= 1 << 20
    pod.stop()
    assert running.wait() == 125
    assert pod.ending()["cause"] == "stopped"


def test_a_process_limit(tmp_path: Path):
    pod = Pod(tmp_path, processes=20)
    assert pod.run("sh", "-c", "for i in $(seq 10); do sleep 1 & done; wait; exit 3") == 3
    assert 10 <= pod.ending()["processes"] <= 20
    again = Pod(tmp_path / "again", processes=20)
    code = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)"
    bomb = f"import resource; resource.setrlimit(resource.RLIMIT_NPROC, (400, 400))\n{code}"
    assert again.python(_with_stdlib(bomb)) == 123
    assert again.ending()["cause"] == "processes"


def test_threads_count(tmp_path: Path):
    pod = Pod(tmp_path, processes=20)
    code = "import _thread, time\nfor _ in range(40): _thread.start_new_thread(time.sleep, (1000,))\ntime.sleep(1000)"
    assert pod.python(code) == 123


def test_the_end_of_the_output_is_kept(tmp_path: Path):
    pod = Pod(tmp_path, output=1000)
    assert pod.run("sh", "-c", "seq 1 20000; echo wrong >&2") == 0
    text = b"".join(b"%d\n" % n for n in range(1, 20001)) + b"wrong\n"
    assert pod.output() == text[-1000:]
    assert pod.ending()["printed"] == len(text)
    assert (pod.log / "output").stat().st_size == 1032


def test_output_of_orphans_and_a_closed_stdout(pod: Pod):
    assert pod.run("sh", "-c", "(sleep 0.1; echo late) & exec >&- 2>&-; sleep 0.3") == 0
    assert pod.output() == b"late\n"


def test_a_closed_output_costs_no_processor_time(pod: Pod):
    running = pod.start("sh", "-c", "exec >&- 2>&- <&-; touch here; exec sleep 1000")
    running.until(pod.workspace / "here")
    time.sleep(0.5)
    used = sum(int(word) for word in Path(f"/proc/{running.first}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
    pod.stop()
    assert running.wait() == 125
    assert used <= 10


def test_a_flood_of_output_does_not_hold_up_the_end(tmp_path: Path):
    pod = Pod(tmp_path, wall=0.5)
    assert pod.run("sh", "-c", "yes & yes & yes") == 124
    assert len(pod.output()) == 4096


def test_a_flood_of_signals_does_not_hold_up_the_end(pod: Pod):
    running = pod.start(
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import fcntl, os\na, b = os.pipe(); fcntl.fcntl(a, 8, 1)  # SIGIO to the first process\n"
        f"fcntl.fcntl(a, 4, fcntl.fcntl(a, 3) | 0o20000)\n{marker()}while True: os.write(b, b'x'); os.read(a, 1)",
    )
    running.until(pod.workspace / "here")
    time.sleep(0.2)
    pod.stop()
    assert running.wait() == 125


LOGS = {
    "deleted": "rm -f /log/*",
    "linked": "rm -f /log/*; for f in output ending started; do ln -s /workspace/victim /log/$f; done",
    "pipes": "rm -f /log/*; mkfifo /log/output /log/ending /log/started",
    "folders": "rm -f /log/*; mkdir -p /log/output/full /log/ending/full",
    "written": "echo lies > /log/output; echo lies > /log/ending; echo lies > /dev/termination-log",
    "grown": "truncate -s 1G /log/output; truncate -s 1G /log/ending /dev/termination-log",
    "closed": "chmod 0 /log/*",
}


@pytest.mark.parametrize("attack", LOGS)
def test_what_an_agent_does_to_the_log_is_put_in_order(pod: Pod, attack: str):
    (pod.workspace / "victim").write_text("untouched")
    assert pod.run("sh", "-c", f"echo before; {LOGS[attack]}; echo after; exit 7") == 7
    (pod.log / "output").chmod(0o644)
    (pod.log / "ending").chmod(0o644)
    assert not (pod.log / "output").is_symlink()
    assert pod.output() == b"before\nafter\n"
    assert (pod.ending()["cause"], pod.ending()["code"]) == ("exited", 7)
    assert (pod.workspace / "victim").read_text() == "untouched"


def test_a_full_disk_takes_no_words_from_the_supervisor(pod: Pod):
    binds = ("--size", str(256 << 10), "--tmpfs", "/log", "--bind", str(pod.workspace), "/log/keep")
    fill = "echo before; dd if=/dev/zero of=/log/fill bs=4096 2>/dev/null; echo after; exit 7"
    assert pod.run("sh", "-c", fill, binds=binds) == 7
    assert json.loads(pod.termination.read_text())["code"] == 7


@pytest.mark.parametrize(
    ("limits", "missing"),
    [
        ("wall_seconds 1\nprocesses 3\n", "output_bytes"),
        ("wall_seconds x\noutput_bytes 1\nprocesses 3\n", "wall"),
        (None, "file"),
    ],
)
def test_limits_that_cannot_be_read_are_our_failure(pod: Pod, limits: str | None, missing: str):
    (pod.ctl / "limits").unlink()
    if limits is not None:
        (pod.ctl / "limits").write_text(limits)
    assert pod.run("true") == 121, missing
    assert json.loads(pod.termination.read_text())["cause"] == "cannot_start"


def test_leftovers_in_the_log_do_not_misdirect_it(pod: Pod):
    (pod.workspace / "victim").write_text("untouched")
    for name in ("output", "ending", "started"):
        (pod.log / name).symlink_to("/workspace/victim")
    assert pod.run("echo", "x") == 0
    assert pod.output() == b"x\n"
    assert (pod.workspace / "victim").read_text() == "untouched"


def test_it_refuses_to_be_anything_but_a_first_process(pod: Pod):
    import subprocess

    done = subprocess.run([pod.ctl / "supervisor", "run", "--", "true"], capture_output=True, check=False)
    assert done.returncode == 121
    assert b"first process of a container" in done.stderr
    done = subprocess.run([pod.ctl / "supervisor", "walk"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"usage" in done.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 9\noom 9\noom_kill {}\noom_group_kill 0\n"),
        ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"),
    ],
)
def test_a_process_killed_for_memory_ends_it(pod: Pod, name: str, text: str):
    counter = pod.cgroup / name
    counter.parent.mkdir(exist_ok=True)
    counter.write_text(text.format(3))
    running = pod.start("sh", "-c", "touch here; sleep 1000")
    running.until(pod.workspace / "here")
    counter.write_text(text.format(5))
    assert running.wait() == 122
    assert (pod.ending()["cause"], pod.ending()["oom_kills"]) == ("out_of_memory", 2)


def test_a_kill_that_was_counted_before_is_not_this_agents(pod: Pod):
    (pod.cgroup / "memory.events").write_text("oom_kill 3\n")
    assert pod.run("true") == 0
    assert pod.ending()["oom_kills"] == 0


def guarded(*command: str) -> tuple[int, bytes]:
    done = subprocess.run([str(supervisor()), "guard", "--", *command], check=False, stdout=subprocess.PIPE)
    return done.returncode, done.stdout


def test_a_guarded_command_is_the_command_without_what_is_refused():
    assert guarded("sh", "-c", "kill -0 $$ && ! kill -0 1; echo $?; exit 3") == (3, b"0\n")
    assert guarded("no-such-program")[0] == 127
    assert guarded("/etc/passwd")[0] == 126
