"""Just enough HTTP/1.1 for the programs that freeze: one request for each connection. Standard library only; part of the keeper.

``http.client`` takes 40 ms to load. The servers are ours, so what is odd ends the exchange with OSError instead of being understood.
"""

from __future__ import annotations

import _socket

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CONNECT_SECONDS = 5.0
"""Longest time until a server has taken a connection. A network policy drops packets without a word."""
_HEAD_BYTES = 64 << 10
_PIECE = 256 << 10


def connect(place: str, stall: float) -> _socket.socket:
    """Return a connection to ``http://IP:PORT`` or to the unix socket of that path. Raises OSError.

    ``stall``: seconds without progress after which reading and writing raise.
    """
    if place.startswith("http://"):
        host, _, port = place.removeprefix("http://").rstrip("/").rpartition(":")
        host = host.strip("[]")
        family = _socket.AF_INET6 if ":" in host else _socket.AF_INET
        address: tuple[str, int] | str = (host, int(port))
    else:
        family, address = _socket.AF_UNIX, place
    connection = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(address)
        connection.settimeout(stall)
    except BaseException:
        connection.close()
        raise
    return connection


def head(method: str, path: str, token: str, fields: Iterable[tuple[str, str]] = ()) -> bytes:
    """Return the first part of a request, the empty line included."""
    lines = [f"{method} {path} HTTP/1.1", "Host: orchestrate", f"Authorization: Bearer {token}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in fields]
    return "\r\n".join([*lines, "", ""]).encode()


class Reply:
    """An answer: status and fields, then its body piece by piece. Making and reading it raises OSError."""

    def __init__(self, connection: _socket.socket) -> None:
        self._connection = connection
        self._data = b""
        words = self._line().split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise OSError(0, f"no HTTP answer: {b' '.join(words)[:100]!r}")
        self.status = int(words[1])
        self._fields: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(":")
            self._fields[name.strip().lower()] = value.strip()

    def pieces(self) -> Iterator[bytes]:
        """Yield the body, once."""
        if "chunked" in self._fields.get("transfer-encoding", "").lower():
            while size := self._chunk_size():
                yield from self._exactly(size)
                self._line()
            return
        length = self._fields.get("content-length", "")
        if not length.isdigit():
            raise OSError(0, "an HTTP answer without a length")
        yield from self._exactly(int(length))

    def text(self, most: int = 64 << 10) -> str:
        """Return the body, or its first ``most`` bytes."""
        data = b""
        for piece in self.pieces():
            data += piece
            if len(data) >= most:
                break
        return data[:most].decode("utf-8", "replace")

    def _line(self) -> bytes:
        while b"\n" not in self._data:
            if len(self._data) > _HEAD_BYTES:
                raise OSError(0, "the head of an HTTP answer is too long")
            self._more()
        line, _, self._data = self._data.partition(b"\n")
        return line.rstrip(b"\r")

    def _chunk_size(self) -> int:
        text = self._line().partition(b";")[0].strip()
        try:
            return int(text, 16)
        except ValueError:
            raise OSError(0, f"no size of a chunk: {text[:20]!r}") from None

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size > 0:
            if not self._data:
                self._more()
            piece, self._data = self._data[:size], self._data[size:]
            size -= len(piece)
            yield piece

    def _more(self) -> None:
        data = self._connection.recv(_PIECE)
        if not data:
            raise OSError(0, "the connection ended before the answer")
        self._data = self._data + data if self._data else data
