"""New connections until their first bytes are there: who shows a token of our own programs does not queue with the agent beside it.

A pod has one address for all its containers, and any of its ports and connections is as good as another, so only what is said tells them
apart. It is looked at where it lies, before anything is set up. Whoever says nothing at once, or something else, goes to the lane of its
address.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

SILENT = 64
"""Connections of one address whose first bytes are awaited; our own programs send theirs with the connection."""
SILENT_SECONDS = 1.0
_HEAD_BYTES = 2048
_FIELD, _END = b"\r\nAuthorization: Bearer ", b"\r\n"
"""As our own programs write it."""

Take = Callable[[str | None, socket.socket], None]
"""Takes the address that a connection comes from, and the connection."""


class Greeting:
    """Hands each connection on, once it is known whose it is."""

    def __init__(self, is_own: Callable[[str], bool], own: Take, others: Take, silent: int = SILENT) -> None:
        """``is_own`` knows the tokens of our own programs; ``own`` takes their connections, ``others`` the rest."""
        self._is_own = is_own
        self._own = own
        self._others = others
        self._most = silent
        self._silent: dict[str | None, dict[socket.socket, float]] = {}
        """By address, with the time of their coming: the oldest first."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(SILENT_SECONDS, self._sweep)

    def put(self, peer: str | None, connection: socket.socket) -> None:
        """Take a new connection."""
        if self._sort(peer, connection):
            return
        silent = self._silent.setdefault(peer, {})
        silent[connection] = time.monotonic()
        self._loop.add_reader(connection, self._heard, peer, connection)
        if len(silent) > self._most:
            self._give_to_others(peer, next(iter(silent)))

    def close(self) -> None:
        """Close all that wait."""
        self._timer.cancel()
        for silent in self._silent.values():
            for connection in silent:
                self._loop.remove_reader(connection)
                connection.close()
        self._silent.clear()

    def _heard(self, peer: str | None, connection: socket.socket) -> None:
        self._forget(peer, connection)
        if not self._sort(peer, connection):
            self._others(peer, connection)

    def _sort(self, peer: str | None, connection: socket.socket) -> bool:
        """Hand a connection on by what it has said. False: nothing yet."""
        try:
            said = connection.recv(_HEAD_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            connection.close()
            return True
        _, found, rest = said.partition(_FIELD)
        token, ended, _ = rest.partition(_END)
        if found and ended and self._is_own(token.decode("latin-1")):
            self._own(peer, connection)
        elif said:
            self._others(peer, connection)
        else:
            connection.close()
        return True

    def _give_to_others(self, peer: str | None, connection: socket.socket) -> None:
        self._forget(peer, connection)
        self._others(peer, connection)

    def _forget(self, peer: str | None, connection: socket.socket) -> None:
        self._loop.remove_reader(connection)
        silent = self._silent[peer]
        del silent[connection]
        if not silent:
            del self._silent[peer]

    def _sweep(self) -> None:
        """Let nobody be silent here for long."""
        before = time.monotonic() - SILENT_SECONDS
        for peer, silent in list(self._silent.items()):
            for connection in [each for each, since in silent.items() if since < before]:
                self._give_to_others(peer, connection)
        self._timer = self._loop.call_later(SILENT_SECONDS, self._sweep)
