"""The filter, interpreted as the kernel would, for every machine it is made for; real sandboxes prove it for this machine."""

from __future__ import annotations

import struct

import pytest

from orchestrator.sandbox import seccomp

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": {
        "read": 0,
        "socket": 41,
        "socketpair": 53,
        "clone": 56,
        "ptrace": 101,
        "bpf": 321,
        "mount": 165,
        "keyctl": 250,
    },
    "aarch64": {
        "read": 63,
        "socket": 198,
        "socketpair": 199,
        "clone": 220,
        "ptrace": 117,
        "bpf": 280,
        "mount": 40,
        "keyctl": 219,
    },
}


def decide(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    return decided_by(seccomp.program(machine), machine, number, *arguments, arch=arch)


def decided_by(code: bytes, machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    lines = [struct.unpack("=HBBI", code[at : at + 8]) for at in range(0, len(code), 8)]
    data = struct.pack(
        "=IIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *(*arguments, *[0] * (6 - len(arguments)))
    )
    value, at = 0, 0
    while True:
        op, true, false, k = lines[at]
        at += 1
        match op:
            case 0x20:
                value = struct.unpack_from("=I", data, k)[0]
            case 0x06:
                return k
            case 0x15:
                at += true if value == k else false
            case 0x35:
                at += true if value >= k else false
            case 0x45:
                at += true if value & k else false
            case _:
                raise AssertionError(op)


@pytest.mark.parametrize("machine", seccomp.machines())
def test_ordinary_calls_pass_and_dangerous_ones_are_refused(machine):
    numbers = NUMBERS[machine]
    assert decide(machine, numbers["read"]) == ALLOW
    assert decide(machine, numbers["ptrace"]) == ALLOW
    for name in ("bpf", "mount", "keyctl"):
        assert decide(machine, numbers[name]) == ERRNO | 1
    assert decide(machine, 425) == ERRNO | 1  # io_uring_setup
    assert decide(machine, 435) == ERRNO | 38  # clone3


@pytest.mark.parametrize("machine", seccomp.machines())
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_socket_families(machine, call):
    number = NUMBERS[machine][call]
    allowed = {family for family in range(64) if decide(machine, number, family) == ALLOW}
    assert allowed == {1, 2, 10}
    assert decide(machine, number, 16) == ERRNO | 97


@pytest.mark.parametrize("machine", seccomp.machines())
def test_threads_and_forks_pass_and_namespaces_do_not(machine):
    number = NUMBERS[machine]["clone"]
    assert decide(machine, number, 17) == ALLOW
    assert decide(machine, number, 0x3D0F00) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(machine, number, flag | 17) == ERRNO | 1


@pytest.mark.parametrize("machine", seccomp.machines())
def test_other_architectures_are_killed(machine):
    assert decide(machine, 0, arch=0x40000003) == KILL


def test_x32_is_killed():
    assert decide("x86_64", 0x40000000) == KILL


@pytest.mark.parametrize("machine", seccomp.machines())
def test_calls_that_write_by_a_path_are_shown_and_no_others(machine):
    watched = seccomp.watched(machine)
    numbers = {name: number for number, (name, _, _) in watched.calls.items()}

    def shown(number: int, *arguments: int) -> bool:
        found = decided_by(watched.code, machine, number, *arguments)
        assert found in {ALLOW, 0x7FC00000}
        return found != ALLOW

    assert all(shown(numbers[name]) for name in ("openat2", "mkdirat", "unlinkat", "renameat2", "linkat", "utimensat"))
    assert not any(shown(NUMBERS[machine][name]) for name in ("read", "clone", "mount"))
    flags = {0: False, 0o1: True, 0o2: True, 0o100: True, 0o1000: True, 0o2000000: False}
    assert {each: shown(numbers["openat"], 0, 0, each) for each in flags} == flags
    assert {number for number in range(512) if shown(number, *[0o3] * 6)} == set(watched.calls)
