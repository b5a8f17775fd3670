"""Where frozen state goes: files in a folder, or the relay behind a unix socket. Standard library only; part of the keeper."""

from __future__ import annotations

import _socket
import os
import select

from orchestrator.sandbox.keeper.small import new_sha256, read_json

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Blob = Callable[[], Iterator[bytes]]

STALL_SECONDS = 60.0
"""Longest time without progress on the relay's side."""
_TRIES = 3
_PIECE = 256 << 10


class SinkError(Exception):
    """The state could not be delivered. The message says what answered how; ``store`` is the store's own word when it was the store."""

    def __init__(self, message: str, store: str = "") -> None:
        super().__init__(message)
        self.store = store


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


def to_relay(socket: str, token: str, name: str, blob: Blob) -> dict[str, Any]:
    """Stream a blob to ``PUT /launch/state/<name>``; returns the relay's ``key``, ``sha256``, ``size``. Raises SinkError.

    A lost reply is repaired by sending again: the relay then answers 409 with what it committed before. What it says must be what was sent.
    """
    failure = store = ""
    for _ in range(_TRIES):
        try:
            status, body, sha, size = _put(socket, token, name, blob)
        except OSError as error:
            failure = f"{error.strerror or error}"
            continue
        if status not in (200, 409):
            failure, store = f"HTTP {status}: {body[:300]!r}", _store_word(status, body)
            if status < 500:
                break
            continue
        return _verified(name, status, body, sha, size)
    msg = f"the relay at {socket} did not take the frozen {name}: {failure}"
    raise SinkError(msg, store)


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
        raise SinkError(msg) from None
    if said != sha or length != size:
        msg = f"the relay holds other bytes of the frozen {name} than were sent: {said} ({length} bytes) for {sha} ({size} bytes)"
        raise SinkError(msg)
    return {"key": key, "sha256": sha, "size": size}


def _put(socket: str, token: str, name: str, blob: Blob) -> tuple[int, str, str, int]:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(STALL_SECONDS)
        connection.connect(socket)
        connection.sendall(
            f"PUT /launch/state/{name} HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
        )
        sha, size = _send(connection, blob)
        status, body = _reply(connection)
    finally:
        connection.close()
    return status, body, sha, size


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


def _reply(connection: _socket.socket) -> tuple[int, str]:
    data = b""
    while b"\r\n\r\n" not in data and len(data) < 64 << 10:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split()
    if len(words) < 2 or not words[1].isdigit():
        raise OSError(0, f"no HTTP answer: {lines[0][:100]!r}")
    fields = {name.strip().lower(): value.strip() for name, _, value in (text.partition(":") for text in lines[1:])}
    length = fields.get("content-length", "")
    wanted = min(int(length), 64 << 10) if length.isdigit() else 0
    while len(body) < wanted:
        body += _more(connection)
    return int(words[1]), body[:wanted].decode("utf-8", "replace")


def _more(connection: _socket.socket) -> bytes:
    data = connection.recv(16 << 10)
    if not data:
        raise OSError(0, "the connection ended before the answer")
    return data
