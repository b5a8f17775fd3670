"""Waits for orders on its standard input, a socket, and forks a child for each launch: a process in a millisecond or two.

An order is one JSON object: ``{"start": N, …}`` with a socket beside it, on which the child of that number answers; ``{"end": N}`` kills
it. It ends when its gateway does, and its children with it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from orchestrator.sandbox import jail
from orchestrator.sandbox.keeper import linux
from orchestrator.sandbox.world import child

_ORDER_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Fork until standard input ends."""
    linux.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    jail.protect()
    control = socket.socket(fileno=os.dup(0))
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)
    children: dict[int, int] = {}
    while True:
        data, sockets, _, _ = socket.recv_fds(control, _ORDER_BYTES, 1)
        if not data:
            sys.exit(0)
        order = json.loads(data)
        if "end" in order:
            _end(children.pop(order["end"], None))
        else:
            children[order["start"]] = _start(control, sockets[0], order)
        _reap(children)


def _start(control: socket.socket, line: int, order: dict[str, object]) -> int:
    me = os.getpid()
    pid = os.fork()
    if pid:
        os.close(line)
        return pid
    status = 70
    try:
        linux.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == me:
            control.close()
            child.serve(socket.socket(fileno=line), order)
            status = 0
    finally:
        os._exit(status)


def _end(pid: int | None) -> None:
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _reap(children: dict[int, int]) -> None:
    for number, pid in list(children.items()):
        if os.waitpid(pid, os.WNOHANG)[0]:
            del children[number]
