"""A listener that no pod of a trial may reach. It takes every connection and closes it. Standard library only."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` builds enumerations that nobody needs here
import _socket
import os
import sys

PORT = 9000


def main(arguments: list[str]) -> int:
    """Listen on the port that is given, for ever; SIGTERM ends it."""
    port = int(arguments[0]) if arguments else PORT
    _signal.signal(_signal.SIGTERM, lambda *_: os._exit(0))
    listening = listen(port)
    sys.stderr.write(f"canary on port {port}\n")
    while True:
        try:
            descriptor, _ = listening._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - what ``socket.accept`` calls
        except OSError:
            continue  # the peer was quicker, or there is no descriptor for a moment
        os.close(descriptor)


def listen(port: int) -> _socket.socket:
    """Return a listening socket on all addresses of both families, where there are both. Raises OSError."""
    try:
        listening = _socket.socket(_socket.AF_INET6, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        listening.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 0)
        host = "::"
    except OSError:
        listening = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        host = "0.0.0.0"  # noqa: S104 - to be reached is its purpose
    listening.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(128)
    return listening
