"""Where frozen state goes: files in a folder, or the relay, wherever it is. Standard library only; part of the keeper."""

from __future__ import annotations

import os
import select

from orchestrator.sandbox.keeper.http import Reply, connect, head
from orchestrator.sandbox.keeper.small import new_sha256, read_json

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Blob = Callable[[], Iterator[bytes]]

STALL_SECONDS = 60.0
"""Longest time without progress on the relay's side."""
_TRIES = 3
_PIECE = 256 << 10
_STREAM = (("Content-Type", "application/octet-stream"), ("Transfer-Encoding", "chunked"))


class SinkError(Exception):
    """The state could not be delivered. The message says what answered how."""

    def __init__(self, message: str, store: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.store = store
        """The store's own word when it was the store."""
        self.status = status
        """What the relay answered, when trying again would change nothing; else 0."""


def to_folder(folder: str, name: str, blob: Blob) -> dict[str, Any]:
    """Write a blob to a new file; returns ``key`` (the file's name), ``sha256``, ``size``. Raises SinkError."""
    sha, size = new_sha256(), 0
    path = f"{folder}/{name}"
    try:
        writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            for piece in blob():
                sha.update(piece)
                size += len(piece)
                view = memoryview(piece)
                while view:
                    view = view[os.write(writer, view) :]
        finally:
            os.close(writer)
    except OSError as error:
        msg = f"cannot write the frozen state to {path}: {error.strerror}"
        raise SinkError(msg) from error
    return {"key": name, "sha256": sha.hexdigest(), "size": size}


def to_relay(
    place: str, token: str, name: str, blob: Blob, fields: Iterable[tuple[str, str]] = (), tries: int = _TRIES
) -> dict[str, Any]:
    """Stream a blob to ``PUT /launch/state/<name>``; returns the relay's ``key``, ``sha256``, ``size``. Raises SinkError.

    ``place`` is a unix socket or ``http://IP:PORT``, ``fields`` more lines of the request's head. A lost reply is repaired by sending
    again: the relay then answers 409 with what it committed before. What it says must be what was sent.
    """
    failure = store = ""
    refused = 0
    request = head("PUT", f"/launch/state/{name}", token, (*_STREAM, *fields))
    for _ in range(tries):
        try:
            status, body, sha, size = _put(place, request, blob)
        except OSError as error:
            failure = f"{error.strerror or error}"
            continue
        if status not in (200, 409):
            failure, store = f"HTTP {status}: {body[:300]!r}", _store_word(status, body)
            if status < 500:
                refused = status
                break
            continue
        return _verified(name, status, body, sha, size)
    msg = f"the relay at {place} did not take the frozen {name}: {failure}"
    raise SinkError(msg, store, refused)


def _store_word(status: int, body: str) -> str:
    """Return the cause that a relay gives when its store fails (503), else an empty word."""
    if status != 503:
        return ""
    try:
        return str(read_json(body)["error"]["type"])
    except (ValueError, KeyError, TypeError):
        return ""


def _verified(name: str, status: int, body: str, sha: str, size: int) -> dict[str, Any]:
    try:
        reply = read_json(body)
        key, said, length = str(reply["key"]), reply["sha256"], reply["size"]
    except (ValueError, KeyError, TypeError):
        msg = f"the relay answered {status} to the frozen {name} with something else than key, sha256 and size: {body[:300]!r}"
        raise SinkError(msg, status=status) from None
    if said != sha or length != size:
        msg = f"the relay holds other bytes of the frozen {name} than were sent: {said} ({length} bytes) for {sha} ({size} bytes)"
        raise SinkError(msg, status=status)
    return {"key": key, "sha256": sha, "size": size}


def _put(place: str, request: bytes, blob: Blob) -> tuple[int, str, str, int]:
    connection = connect(place, STALL_SECONDS)
    try:
        connection.sendall(request)
        sha, size = _send(connection, blob)
        reply = Reply(connection)
        return reply.status, reply.text(), sha, size
    finally:
        connection.close()


def _send(connection: _socket.socket, blob: Blob) -> tuple[str, int]:
    """Send the blob in chunks; returns digest and size of the whole, also when the relay stopped listening early."""
    sha, size = new_sha256(), 0
    waiting = bytearray()
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    listening = True
    for piece in blob():
        sha.update(piece)
        size += len(piece)
        waiting += piece
        if listening and len(waiting) >= _PIECE:
            listening = not poll.poll(0) and _chunk(connection, waiting)
        if len(waiting) >= _PIECE:
            waiting.clear()
    if listening and (not waiting or _chunk(connection, waiting)):
        _chunk(connection, bytearray())
    return sha.hexdigest(), size


def _chunk(connection: _socket.socket, data: bytearray) -> bool:
    try:
        connection.sendall(b"%x\r\n" % len(data) + data + b"\r\n")
    except (BrokenPipeError, ConnectionResetError):
        return False  # an early answer may wait to be read
    return True
