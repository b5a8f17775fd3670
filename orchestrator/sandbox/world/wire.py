"""Messages between a gateway and a world's process: four bytes of length, then JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

MOST_BYTES = 8 << 20
"""Of one message."""


def send(line: socket.socket, message: dict[str, Any]) -> None:
    """Send one message. Raises OSError."""
    data = json.dumps(message, separators=(",", ":")).encode()
    line.sendall(struct.pack("!I", len(data)) + data)


def receive(line: socket.socket) -> dict[str, Any] | None:
    """Return the next message; None at the end. Raises OSError, and ValueError for what is none."""
    head = _exactly(line, 4)
    if head is None:
        return None
    (size,) = struct.unpack("!I", head)
    if size > MOST_BYTES:
        msg = f"a message of {size} bytes is too long"
        raise ValueError(msg)
    data = _exactly(line, size)
    return None if data is None else dict(json.loads(data))


def _exactly(line: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = line.recv(min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return data
