"""Requests of a pod's programs to their gateway, each with the token of its container. Standard library only."""

from __future__ import annotations

import time

from orchestrator.sandbox.keeper.http import Reply, connect, head
from orchestrator.sandbox.keeper.small import read_json, write_json
from orchestrator.sandbox.pod.world import GATEWAY_AWAY, UNKNOWN_LAUNCH, PodError

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    import _socket
    from typing import Any

STALL_SECONDS = 30.0
"""Longest silence of a gateway that is not asked to wait."""
UNKNOWN_TRIES = 3
"""A gateway that does not know a token is asked again: something else may have its address while it starts."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class Gateway:
    """The launch's gateway, for one role."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._token = token

    def ask(
        self, method: str, path: str, body: object = None, fields: tuple[tuple[str, str], ...] = ()
    ) -> tuple[int, Any]:
        """Return status and JSON value (None when there is none) of one request. Raises OSError."""
        data = b"" if body is None else write_json(body).encode()
        connection = connect(self.address, STALL_SECONDS)
        try:
            length = (
                () if method == "GET" else (("Content-Type", "application/json"), ("Content-Length", str(len(data))))
            )
            connection.sendall(head(method, path, self._token, (*length, *fields)) + data)
            reply = Reply(connection)
            return reply.status, _value(reply.text(1 << 20))
        finally:
            connection.close()

    def begin(self, path: str) -> _socket.socket:
        """Send a GET and return its connection, for who looks at other things until there is an answer. Raises OSError."""
        connection = connect(self.address, STALL_SECONDS)
        try:
            connection.sendall(head("GET", path, self._token))
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def finish(connection: _socket.socket) -> tuple[int, Any]:
        """Return the answer to what was begun; the connection is closed. Raises OSError."""
        try:
            reply = Reply(connection)
            return reply.status, _value(reply.text())
        finally:
            connection.close()


def _value(text: str) -> Any:
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return None


class Patience:
    """Pauses between tries, growing, until there is no time left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE
        self._unknown = 0
        self.failure = "nothing was tried"
        """What came of the last try."""

    def wait(self, failure: str) -> bool:
        """Note a failure and sleep. False: the time is over."""
        self.failure = failure
        if time.monotonic() + self._pause > self._end:
            return False
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return True

    def unknown(self, place: str, code: int = UNKNOWN_LAUNCH) -> None:
        """Count an answer 401. Raises PodError when it has been given often enough."""
        self._unknown += 1
        if self._unknown >= UNKNOWN_TRIES:
            message = f"the gateway {place} does not know this launch: it was started anew, or the launch is over"
            raise PodError(code, "gateway_restarted", message)


def insist(
    gateway: Gateway,
    method: str,
    path: str,
    seconds: float,
    body: object = None,
    fields: tuple[tuple[str, str], ...] = (),
    *,
    unknown: int = UNKNOWN_LAUNCH,
) -> tuple[int, Any]:
    """Ask until there is an answer that is no failure of the gateway, and return it.

    Raises PodError, with the exit code ``unknown`` when the gateway does not know the token.
    """
    patience = Patience(seconds)
    while True:
        try:
            status, value = gateway.ask(method, path, body, fields)
        except OSError as error:
            failure = str(error.strerror or error)
        else:
            if status < 500 and status not in (401, 408, 429):
                return status, value
            failure = f"HTTP {status}: {value!r:.300}"
            if status == 401:
                patience.unknown(gateway.address, unknown)
        if not patience.wait(failure):
            message = (
                f"the gateway {gateway.address} did not answer {method} {path} for {seconds:g} s: {patience.failure}"
            )
            raise PodError(GATEWAY_AWAY, "gateway_unreachable", message)
