"""What a request leaves that is no file is removed on kernels that list it and on those that do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "pod"))

from supervised_world import supervisor

_ROOT = Path(__file__).parents[2]
_OWN_IPC = ("bwrap", "--unshare-user", "--unshare-ipc", "--dev-bind", "/", "/")

OBJECTS = """
import ctypes, sys
from grader_service.subject import leftovers
libc = ctypes.CDLL(None)
if sys.argv[1] == "unlisted":
    leftovers._listed, listed = lambda kind: None, leftovers._listed
else:
    listed = leftovers._listed
left = leftovers.SharedMemory()
for _ in range(2):
    for key in range(1, 4):
        assert min(libc.shmget(key, 10, 0o1600), libc.msgget(key, 0o1600), libc.semget(key, 1, 0o1600)) >= 0
    assert [len(listed(kind)) for kind in ("shm", "msg", "sem")] == [3, 3, 3]
    left.forget()
    assert [listed(kind) for kind in ("shm", "msg", "sem")] == [[], [], []]
"""
QUEUES = """
import ctypes, errno, os, resource, sys
from grader_service.subject import leftovers
def refuses(*_): raise ValueError("not allowed to raise maximum limit")
if sys.argv[1] == "no limit":
    resource.setrlimit = refuses
leftovers.refuse_message_queues()
libc = ctypes.CDLL(None, use_errno=True)
call = leftovers._MQ_OPEN[os.uname().machine]
assert libc.syscall(call, b"kept", os.O_CREAT | os.O_RDWR, 0o600, None) == -1
assert ctypes.get_errno() in {errno.EMFILE, errno.ENOSYS}, ctypes.get_errno()
"""


def python(code: str, word: str, *before: str) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", code, word]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kernel", ["listed", "unlisted"])
def test_system_v_objects_are_removed(kernel: str) -> None:
    done = python(OBJECTS, kernel, *_OWN_IPC)
    assert done.returncode == 0, done.stderr


def test_message_queues_are_refused_by_a_limit_or_by_the_guard() -> None:
    guard = (str(supervisor()), "guard", "--")
    for word, before in (("limit", ()), ("no limit", guard)):
        done = python(QUEUES, word, *_OWN_IPC, *before)
        assert done.returncode == 0, done.stderr


def test_where_neither_refuses_them_nothing_is_served() -> None:
    done = python(QUEUES, "no limit", *_OWN_IPC)
    assert done.returncode == 1
    assert "POSIX message queues cannot be refused" in done.stderr
