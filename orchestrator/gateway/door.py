"""The door: a unix socket that takes the listening socket of a sandbox.

Whoever hands it over shows the launch's freezer token, which the agent never sees. From then on the gateway accepts on that
socket, so every connection is known to come from that sandbox, and no program inside has to forward anything.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable

_MOST_BYTES = 4096
_MOST_DESCRIPTORS = 4
_SECONDS = 10.0

Open = Callable[[str, socket.socket], None]
"""Takes token and listening socket; raises DoorError."""


class DoorError(Exception):
    """The hand-over was refused. The socket is closed by the door."""


class Door:
    """Serves the door socket until closed."""

    def __init__(self, listening: socket.socket, opened: Open) -> None:
        self._socket = listening
        self._opened = opened
        self._visits: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """End all visits and close the socket."""
        tasks = {self._task, *self._visits}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:
                await asyncio.sleep(0.2)
                continue
            visit = asyncio.create_task(self._visit(connection))
            self._visits.add(visit)
            visit.add_done_callback(self._visits.discard)

    async def _visit(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connection:
            connection.setblocking(False)
            try:
                async with asyncio.timeout(_SECONDS):
                    line, sockets = await _receive(connection)
                    answer = self._hand_over(line, sockets)
                    await loop.sock_sendall(connection, json.dumps(answer).encode() + b"\n")
            except (TimeoutError, OSError):
                return

    def _hand_over(self, line: bytes, sockets: list[socket.socket]) -> dict[str, object]:
        try:
            token = _token(line)
            if len(sockets) != 1:
                msg = f"one descriptor is needed, {len(sockets)} came"
                raise DoorError(msg)
            _check(sockets[0])
            self._opened(token, sockets[0])
        except DoorError as error:
            for extra in sockets:
                extra.close()
            return {"error": str(error)}
        return {"ok": True}


async def _receive(connection: socket.socket) -> tuple[bytes, list[socket.socket]]:
    """Return the first line and every socket that came with it. Sockets are closed when this fails."""
    data = b""
    sockets: list[socket.socket] = []
    try:
        while b"\n" not in data and len(data) < _MOST_BYTES:
            await _readable(connection)
            part, descriptors, _, _ = socket.recv_fds(
                connection, _MOST_BYTES, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
            )
            sockets.extend(found for fd in descriptors if (found := _as_socket(fd)) is not None)
            if not part:
                break
            data += part
    except BaseException:
        for found in sockets:
            found.close()
        raise
    return data, sockets


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(connection, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(connection)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _as_socket(descriptor: int) -> socket.socket | None:
    try:
        return socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        return None


def _token(line: bytes) -> str:
    try:
        token = json.loads(line)["token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        token = None
    if not isinstance(token, str):
        msg = 'one JSON line {"token": …} is needed'
        raise DoorError(msg)
    return token


def _check(found: socket.socket) -> None:
    if found.family not in {socket.AF_INET, socket.AF_INET6} or found.type != socket.SOCK_STREAM:
        msg = "the descriptor is no TCP socket"
        raise DoorError(msg)
    if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        msg = "the socket is not listening"
        raise DoorError(msg)
    found.setblocking(False)
