"""The only way out of a sandbox: a listening socket in its network namespace, handed to the gateway. Standard library only."""

from __future__ import annotations

import _socket
import _thread
import os
import sys

from orchestrator.sandbox.keeper import linux
from orchestrator.sandbox.keeper.program import KeeperError
from orchestrator.sandbox.keeper.small import read_json, write_json

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

DOOR_SECONDS = 30.0
"""Longest time until the gateway has taken the listening socket."""


def open_door(door: dict[str, Any], pid: int) -> None:
    """Listen on the loopback of a process's network namespace and hand the socket to the gateway. Raises KeeperError and OSError."""
    hand_over(door, listener(pid, door["port"]))


def hand_over(door: dict[str, Any], listener: _socket.socket) -> None:
    """Give a listening socket to the gateway. Raises KeeperError."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(DOOR_SECONDS)
        connection.connect(door["socket"])
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.fileno().to_bytes(4, sys.byteorder))
        connection.sendmsg([(write_json({"token": door["token"]}) + "\n").encode()], [rights])
        reply = b""
        while not reply.endswith(b"\n") and len(reply) < 4096:
            chunk = connection.recv(4096)
            if not chunk:
                break
            reply += chunk
        answer = read_json(reply.decode().strip())
        if answer.get("ok") is not True:
            msg = f"the gateway did not take the sandbox's socket: {answer.get('error', reply)!s:.300}"
            raise KeeperError(msg, "gateway_door")
    except (OSError, ValueError, AttributeError) as error:
        msg = f"the gateway at {door['socket']} did not take the sandbox's socket: {getattr(error, 'strerror', None) or error}"
        raise KeeperError(msg, "gateway_door") from error
    finally:
        connection.close()
        listener.close()


def listener(pid: int, port: int) -> _socket.socket:
    """Return a socket that listens on the loopback of a process's network namespace. Raises OSError."""
    made: list[_socket.socket | OSError] = []
    entered = _thread.allocate_lock()

    def enter() -> None:
        try:
            linux.setns(theirs, linux.CLONE_NEWNET)
            made.append(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC))
        except OSError as error:
            made.append(error)
        finally:
            entered.release()

    theirs = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A thread enters alone and ends there: the way back is closed to an ordinary user, who owns no network but the sandbox's.
        entered.acquire()
        _thread.start_new_thread(enter, ())
        entered.acquire()
    finally:
        os.close(theirs)
    found = made[0]
    if isinstance(found, OSError):
        raise found
    # A socket belongs to the namespace that it was made in.
    found.bind(("127.0.0.1", port))
    found.listen(128)
    return found
