"""Proof that the pod's network is closed, before the agent may start. Standard library only.

Most addresses that must not answer prove nothing by their silence, since something else may keep them closed. So the chart has listeners
that are open to everybody but pods of trials: the canaries. The gateway says which of them it has reached within the last two seconds,
asked before and after this pod tries them. None may take a connection.
"""

from __future__ import annotations

import _socket
import _thread
import select
import time

from orchestrator.sandbox.pod.talk import Gateway, insist
from orchestrator.sandbox.pod.world import CANARY_DEAD, NETWORK_OPEN, PREPARE_FAILED, PodError, failure

ROUNDS = 2
ROUND_SECONDS = 0.3
CANARY_SECONDS = 15.0
"""How long canaries may be away: their pods move, too."""
_DNS_PORT = 53
_QUESTION = b"\0\1\1\0\0\1\0\0\0\0\0\0\0\0\2\0\1"  # DNS: who serves the root?


class Proof:
    """Tries everything that must not be reached, beside other work."""

    def __init__(self, gateway: Gateway, denied: list[str], seconds: float) -> None:
        """Take what must not be reached beside the canaries, as ``IP:PORT``, and how long the gateway may be away."""
        self._gateway = gateway
        self._denied = [_endpoint(each) for each in denied]
        self._seconds = seconds
        self._done = _thread.allocate_lock()
        self._error: PodError | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._done.acquire()
        _thread.start_new_thread(self._run, ())

    def finish(self) -> None:
        """Wait for the result. Raises PodError when the network is not proved closed."""
        with self._done:
            if self._error is not None:
                raise self._error

    def _run(self) -> None:
        try:
            self._prove()
        except PodError as error:
            self._error = error
        except OSError as error:
            self._error = failure(PREPARE_FAILED, f"the network could not be tried: {error}")
        finally:
            self._done.release()

    def _prove(self) -> None:
        canaries = self._canaries()
        targets = [*map(_endpoint, canaries), *self._denied]
        for _ in range(ROUNDS):
            opened = tried(targets, ROUND_SECONDS)
            if opened:
                message = f"this pod can reach {', '.join(opened)}: network policies are missing, not enforced, or something allows more"
                raise PodError(NETWORK_OPEN, "policy_not_enforced", message)
        if not set(canaries) & set(self._canaries()):
            message = f"{', '.join(canaries)} died while the network was tried, so that nothing is proved"
            raise PodError(CANARY_DEAD, "canary_dead", message)

    def _canaries(self) -> list[str]:
        """Return the canaries that are alive, at least one. Raises PodError."""
        end = time.monotonic() + CANARY_SECONDS
        while True:
            status, value = insist(self._gateway, "GET", "/launch/canaries", self._seconds)
            found = value.get("canaries") if status == 200 and isinstance(value, dict) else None
            if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
                message = f"the gateway answered HTTP {status} to the question for canaries: {value!r:.200}"
                raise failure(PREPARE_FAILED, message)
            if found:
                return found
            if time.monotonic() > end:
                message = "the gateway reaches no canary listener, so that closed policies cannot be proved; look at the pods canary-*"
                raise PodError(CANARY_DEAD, "canary_dead", message)
            time.sleep(0.5)


def tried(targets: list[tuple[str, int]], seconds: float) -> list[str]:
    """Return which of the targets took a connection, or answered a question for names, within the time. Raises OSError."""
    poll = select.poll()
    open_sockets: dict[int, tuple[_socket.socket, str, bool]] = {}
    opened: list[str] = []
    try:
        for host, port in targets:
            for kind in (_socket.SOCK_STREAM, _socket.SOCK_DGRAM) if port == _DNS_PORT else (_socket.SOCK_STREAM,):
                connection = _begin(host, port, kind)
                is_stream = kind == _socket.SOCK_STREAM
                open_sockets[connection.fileno()] = (
                    connection,
                    f"{host}:{port}" if is_stream else f"{host}:{port} (UDP)",
                    is_stream,
                )
                poll.register(connection.fileno(), select.POLLOUT if is_stream else select.POLLIN)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and open_sockets:
            for descriptor, _ in poll.poll(left * 1000):
                poll.unregister(descriptor)
                connection, name, is_stream = open_sockets.pop(descriptor)
                if _answered(connection, is_stream):
                    opened.append(name)
                connection.close()
    finally:
        for connection, _, _ in open_sockets.values():
            connection.close()
    return opened


def _begin(host: str, port: int, kind: int) -> _socket.socket:
    connection = _socket.socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET, kind | _socket.SOCK_CLOEXEC)
    connection.setblocking(False)
    connection.connect_ex((host, port))
    if kind == _socket.SOCK_DGRAM:
        try:
            connection.send(_QUESTION)
        except OSError:
            return connection  # refused on the spot
    return connection


def _answered(connection: _socket.socket, is_stream: bool) -> bool:
    if connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR) != 0:
        return False
    if is_stream:
        return True
    try:
        return bool(connection.recv(512))
    except OSError:
        return False


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise failure(PREPARE_FAILED, f"{text!r} is no IP:PORT that can be tried")
    return host.strip("[]"), int(port)
