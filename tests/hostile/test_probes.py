"""Programs that look for a way out. They open and connect; they never write to anything of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest
from sandbox_world import backend, life, python, shell, spec_of

TRY = """
import errno, os, socket, ctypes, sys
def attempt(name, call):
    try:
        call()
        print(name, 'ALLOWED')
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, error.errno))
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), 'syscall')
"""


def results(code: str, **fields) -> dict[str, str]:
    seen = python(TRY + code, **fields)
    assert seen.ending.exit.code == 0, seen.output
    return dict(line.split() for line in seen.output.splitlines())


def test_no_kernel_setting_can_be_opened_for_writing():
    seen = python(
        "import os\n"
        "tried = opened = 0\n"
        "for folder, _, names in os.walk('/proc/sys'):\n"
        "    for name in names:\n"
        "        tried += 1\n"
        "        try: os.close(os.open(os.path.join(folder, name), os.O_WRONLY))\n"
        "        except OSError: continue\n"
        "        opened += 1; print(folder, name)\n"
        "print(tried > 100, opened)"
    )
    assert seen.output == "True 0\n"


def test_nothing_dangerous_in_proc_opens_for_writing():
    code = "\n".join(
        f"attempt({path!r}, lambda: os.close(os.open({path!r}, os.O_WRONLY)))"
        for path in (
            "/proc/sysrq-trigger",
            "/proc/kcore",
            "/proc/kmsg",
            "/proc/sys/kernel/core_pattern",
            "/proc/irq/default_smp_affinity",
        )
    )
    assert "ALLOWED" not in results(code).values()


def test_only_own_processes_are_seen():
    seen = shell("for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done")
    assert str(os.getpid()) not in seen.output
    assert "orchestrator" not in seen.output
    assert "pytest" not in seen.output


def test_first_process_of_the_sandbox_tells_nothing_of_the_machine():
    seen = shell("tr '\\0' '\\n' < /proc/1/environ; tr '\\0' '\\n' < /proc/1/cmdline; ls -l /proc/1/fd")
    assert os.environ.get("USER", "root") + "@" not in seen.output
    assert str(os.getcwd()) not in seen.output


@pytest.mark.parametrize("family", ["AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_CAN", "AF_TIPC"])
def test_socket_families_beyond_inet_and_unix_are_refused(family):
    number = int(getattr(socket, family))
    found = results(
        f"attempt('socket', lambda: socket.socket({number}, socket.SOCK_RAW if {number} in (16, 17) else socket.SOCK_SEQPACKET, 0))\n"
        f"attempt('pair', lambda: syscall({53 if os.uname().machine == 'x86_64' else 199}, {number}, 1, 0, (ctypes.c_int * 2)()))"
    )
    assert found == {"socket": "EAFNOSUPPORT", "pair": "EAFNOSUPPORT"}


def test_ordinary_sockets_work():
    found = results(
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX): attempt(family.name, lambda: socket.socket(family).close())\n"
        "attempt('pair', socket.socketpair)"
    )
    assert set(found.values()) == {"ALLOWED"}


def test_abstract_unix_sockets_of_the_machine_are_out_of_reach():
    name = f"\0orchestrate-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        found = results(f"attempt('connect', lambda: socket.socket(socket.AF_UNIX).connect({name!r}))")
    assert found == {"connect": "ECONNREFUSED"}


def test_loopback_of_the_machine_is_out_of_reach():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = results(f"attempt('connect', lambda: socket.create_connection(('127.0.0.1', {port}), 2))")
    assert found == {"connect": "ECONNREFUSED"}


def test_there_is_no_route_out():
    found = results("attempt('connect', lambda: socket.create_connection(('198.18.0.1', 80), 2))")
    assert found == {"connect": "ENETUNREACH"}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
def test_dangerous_system_calls_are_refused():
    numbers = {
        "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425,
        "mount": 165, "umount2": 166, "pivot_root": 155, "fsopen": 430, "move_mount": 429, "setns": 308, "unshare": 272,
        "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175,
    }  # fmt: skip
    found = results(
        "\n".join(f"attempt({name!r}, lambda: syscall({number}, 0, 0, 0, 0, 0))" for name, number in numbers.items())
    )
    assert found == dict.fromkeys(numbers, "EPERM")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
def test_namespaces_cannot_be_made_by_clone():
    found = results(
        "attempt('user', lambda: syscall(56, 0x10000000 | 17, 0, 0, 0, 0))\n"
        "attempt('net', lambda: syscall(56, 0x40000000 | 17, 0, 0, 0, 0))\n"
        "attempt('clone3', lambda: syscall(435, 0, 0))"
    )
    assert found == {"user": "EPERM", "net": "EPERM", "clone3": "ENOSYS"}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is an ABI of x86_64")
def test_system_calls_of_another_abi_kill_the_program():
    seen = python(TRY + "syscall(0x40000000 + 39)")
    assert seen.ending.exit.signal == 31


def test_capabilities_are_none_and_new_ones_cannot_be_had():
    seen = shell("grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status")
    assert {line.split()[1] for line in seen.output.splitlines() if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in seen.output


def test_files_of_the_machine_are_not_there(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    places = [
        "/etc/shadow",
        "/etc/ssh",
        "/root/.ssh",
        "/root/.bashrc",
        "/var/log",
        "/sys/kernel",
        "/work",
        "/boot",
        str(secret),
        os.getcwd(),
    ]
    seen = shell("\n".join(f"test -e {place} && echo {place}" for place in places) + "\ntrue")
    assert seen.output == ""


def test_the_root_is_read_only_and_devices_cannot_be_made():
    seen = shell(
        "for p in / /etc /usr /dev /run /proc /sys; do touch $p/x 2>/dev/null && echo $p; done; "
        "mknod /tmp/d b 8 0 2>/dev/null && echo dev; true"
    )
    assert seen.output == ""


def test_no_descriptor_leaks_in():
    seen = python(
        "import os\nprint(sorted(os.listdir('/proc/self/fd')))\nprint([os.readlink(f'/proc/self/fd/{n}')[:5] for n in range(3)])"
    )
    # The fourth is the folder that is being listed.
    assert seen.output == "['0', '1', '2', '3']\n['/dev/', 'pipe:', 'pipe:']\n"


def real_users(word: str) -> set[int]:
    """The users of the machine that run a program with that word in its command."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.add(folder.stat().st_uid)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has users to spare")
def test_two_live_sandboxes_have_unprivileged_users_of_their_own():
    async def both() -> list[set[int]]:
        specs = [spec_of("sleep", f"{90 + n}.125", name=f"u{n}") for n in range(2)]
        async with backend().open(specs[0]), backend().open(specs[1]):
            while not all(real_users(spec.command[1]) for spec in specs):
                await asyncio.sleep(0.01)
            return [real_users(spec.command[1]) for spec in specs]

    first, second = asyncio.run(both())
    assert len(first) == len(second) == 1
    assert not first & second
    assert min(first | second) > 1_000_000


INOTIFY = "import ctypes, os\nlibc = ctypes.CDLL(None)\nmade = 0\nwhile made < 9999 and libc.inotify_init1(0) >= 0: made += 1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has users to spare")
def test_what_the_kernel_counts_for_each_user_cannot_be_used_up_for_others():
    """Inotify instances stand for all such counts: pipe pages, message queues, queued signals."""
    until_killed = "os.execvp('sleep', ['sleep', '93.125'])"  # with what it has made

    async def beside() -> str:
        greedy, modest = (
            spec_of("python3", "-c", INOTIFY + last, name=f"n{number}", requires=("python3",))
            for number, last in enumerate((until_killed, "print(made)"))
        )
        async with backend().open(greedy):
            while not real_users("93.125"):
                await asyncio.sleep(0.02)
            return (await life(modest)).output

    assert int(asyncio.run(beside())) > 10


TERMINALS = """
import os, pty
first, second = pty.openpty()
os.write(second, b'hello'); print(os.read(first, 5), os.path.basename(os.ttyname(second)).isdigit())
made = [first]
try:
    while len(made) < 999: made.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError as error: print(len(made), error.strerror)
"""


def test_a_sandbox_has_terminals_but_not_those_of_all():
    seen = python(TERMINALS)
    assert seen.output == "b'hello' True\n64 No space left on device\n"


def test_asynchronous_contexts_that_the_machine_counts_are_not_to_be_had():
    number = 206 if os.uname().machine == "x86_64" else 0
    found = results(f"attempt('io_setup', lambda: syscall({number}, 1, ctypes.byref(ctypes.c_ulong(0))))")
    assert found == {"io_setup": "ENOSYS"}


def test_terminal_input_cannot_be_injected():
    found = results(
        "import fcntl\nattempt('tiocsti', lambda: fcntl.ioctl(0, 0x5412, b'x'))\nattempt('tty', lambda: os.open('/dev/tty', os.O_RDWR))"
    )
    assert "ALLOWED" not in found.values()


@pytest.mark.parametrize("folder", ["/usr/src", "/usr/local/src"])
def test_places_for_projects_below_the_systems_folders_are_empty(folder, kind):
    """Images often have their project in /usr/src/app, and with it hidden tests and the store."""
    if kind == "container" or not Path(folder).is_dir():
        pytest.skip(f"{folder} of this machine is not shown")
    seen = shell(f"ls -A {folder}; stat -f -c %T {folder}; touch {folder}/x")
    assert seen.output.splitlines()[0] == "tmpfs"
    assert "Read-only" in seen.output
