"""A wire that breaks on purpose: stands between boto3 and the real S3, and fails the requests that a test names."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def summary(self) -> str:
        """Method and what is asked, without the key: ``PUT``, ``PUT part 2``, ``POST complete``."""
        if part := re.search(r"partNumber=(\d+)", self.path):
            return f"{self.method} part {part[1]}"
        for word, name in (("?uploads", "begin"), ("uploadId=", "complete"), ("list-type=", "list")):
            if word in self.path:
                return f"{self.method} {name}"
        return self.method


@dataclass(frozen=True)
class Lose:
    """S3 does what was asked, and its answer never arrives."""


@dataclass(frozen=True)
class Refuse:
    """The connection ends before S3 hears of the request."""


@dataclass(frozen=True)
class Half:
    """The connection ends after so many bytes of the request's body have reached S3."""

    sent: int


@dataclass(frozen=True)
class Answer:
    """Something else answers; S3 hears nothing."""

    status: int
    code: str = ""
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0
    """How late it comes."""


@dataclass(frozen=True)
class Cut:
    """The connection ends after so many bytes of the answer's body."""

    after: int


@dataclass(frozen=True)
class Late:
    """S3 does what was asked; its answer arrives so many seconds later."""

    seconds: float


Fault = Lose | Refuse | Half | Answer | Cut | Late
Rule = Callable[[Request], Fault | None]


class Wire:
    """The proxy. ``rule`` is asked about every request; None lets it pass."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.rule: Rule = lambda _request: None
        self.seen: list[Request] = []
        self.lock = threading.Lock()
        self.endpoint = ""

    def break_next(self, *faults: Fault | None, when: str | None = None) -> None:
        """Break the next requests (with that summary), one fault each in order; then let all pass."""
        left = list(faults)

        def rule(request: Request) -> Fault | None:
            return left.pop(0) if left and when in {None, request.summary} else None

        self.rule = rule

    def break_all(self, fault: Fault, when: str | None = None) -> None:
        self.rule = lambda request: fault if when in {None, request.summary} else None

    @property
    def summaries(self) -> list[str]:
        return [request.summary for request in self.seen]


@contextmanager
def wire_to(upstream: str) -> Iterator[Wire]:
    wire = Wire(upstream)

    class Handler(_Handler):
        pass

    Handler.wire = wire
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.request_queue_size = 128
    server.socket.listen(128)
    wire.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield wire
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    wire: Wire
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request = Request(self.command, self.path, dict(self.headers.items()), body)
        with self.wire.lock:
            self.wire.seen.append(request)
            fault = self.wire.rule(request)
        if isinstance(fault, Refuse):
            self._hang_up()
        elif isinstance(fault, Answer):
            text = fault.body if fault.body is not None else _error(fault.code)
            time.sleep(fault.seconds)
            self._reply(fault.status, {"Content-Type": "application/xml", **fault.headers}, text.encode())
        else:
            self._forward(request, fault)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - names of the standard library

    def handle_expect_100(self) -> bool:
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def _forward(self, request: Request, fault: Fault | None) -> None:
        connection = http.client.HTTPConnection(self.wire.upstream, timeout=30)
        try:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() != "expect":
                    connection.putheader(name, value)
            if isinstance(fault, Half):
                connection.endheaders(request.body[: fault.sent] or None)
                connection.sock.shutdown(socket.SHUT_WR)
                connection.sock.recv(1)  # S3 has decided
                self._hang_up()
                return
            connection.endheaders(request.body or None)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if isinstance(fault, Lose):
            self._hang_up()
            return
        if isinstance(fault, Late):
            time.sleep(fault.seconds)
        self._reply(answer.status, dict(answer.getheaders()), data, fault.after if isinstance(fault, Cut) else None)

    def _reply(self, status: int, headers: dict[str, str], data: bytes, after: int | None = None) -> None:
        try:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[:after])
            self.wfile.flush()
        except OSError:
            self.close_connection = True  # the client did not want to wait
        if after is not None:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        return


def _error(code: str) -> str:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>made by the test</Message></Error>"
