"""Gateway and relay as a pod sees them, at the wire; and the programs of a pod, run as processes in folders of a test."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from supervised_world import supervisor

from orchestrator.spec.bundle import Bundle, Item
from orchestrator.spec.bundle_tar import tar_of

ROOT = Path(__file__).parents[2]
TOKEN = "token-of-the-container"
DROP = "drop"
"""In a script: the connection ends without an answer, after whatever was asked has been done."""
TORN = "torn"
"""In a script: half of a bundle, then nothing."""


class Double:
    """One server that is gateway and relay. Answers beside the plain ones come from ``script``, by ``METHOD /path``, in order."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.script: dict[str, deque[Any]] = {}
        self.asked: list[str] = []
        self.asked_fully: list[str] = []
        self.canaries: list[str] = []
        self.bundles: dict[str, bytes] = {}
        self.orders: deque[dict[str, Any]] = deque()
        self.begun: list[str] = []
        self.parts: dict[str, bytes] = {}
        self.indexes: set[str] = set()
        self.reports: list[dict[str, Any]] = []
        self.dead = 0
        self.changed = threading.Condition()
        handler = type("Handler", (_Handler,), {"double": self})
        self._server = ThreadingHTTPServer((host, 0), handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Double:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.tell()  # nobody is left waiting
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answers(self, what: str, *answers: Any) -> None:
        """Give these answers to the next requests: a status, a status with a value, or a word."""
        self.script.setdefault(what, deque()).extend(answers)

    def tell(self, **orders: Any) -> None:
        """Answer the freezer's long poll."""
        with self.changed:
            self.orders.append(orders)
            self.changed.notify_all()

    def add(self, bundle: Bundle, audience: str = "sandbox") -> str:
        """Serve a bundle and return its digest."""
        self.bundles[f"/launch/bundle/{audience}/{bundle.digest}"] = b"".join(tar_of(bundle))
        return bundle.digest

    def count(self, what: str) -> int:
        return (self.asked_fully if "?" in what else self.asked).count(what)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: Double

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_GET  # noqa: N815 - the base class calls them so

    def _serve(self) -> None:
        path, _, _ = self.path.partition("?")
        what = f"{self.command} {path}"
        self.double.asked.append(what)
        self.double.asked_fully.append(f"{self.command} {self.path}")
        body = self._body()
        self.close_connection = True
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._say(401, {"error": "no such token"})
        script = self.double.script.get(what)
        scripted = script.popleft() if script else None
        if isinstance(scripted, int | tuple):
            status, value = scripted if isinstance(scripted, tuple) else (scripted, {})
            return self._say(status, value)
        if path in self.double.bundles:
            return self._stream(self.double.bundles[path], torn=scripted == TORN)
        status, value = self._do(what, body)
        if scripted != DROP:
            self._say(status, value)
        return None

    def _do(self, what: str, body: bytes) -> tuple[int, Any]:
        double = self.double
        if what == "GET /launch/canaries":
            return 200, {"canaries": double.canaries}
        if what == "POST /launch/prepared":
            double.begun.append(self.headers["X-Orchestrate-Pod"])
            return 200, {"launch": "abc"}
        if what == "GET /launch/stop":
            return self._poll()
        if what == "POST /launch/dead":
            double.dead += 1
            return 200, {"sealed": True}
        if what == "POST /launch/frozen":
            double.reports.append(json.loads(body))
            return 200, {"sealed": True}
        if what.startswith("PUT /launch/state/"):
            return self._part(what.rpartition("/")[2], body)
        return 404, {"error": f"nothing is at {what}"}

    def _poll(self) -> tuple[int, Any]:
        with self.double.changed:
            self.double.changed.wait_for(lambda: self.double.orders, timeout=2)
            if not self.double.orders:
                return 200, {}
            said = self.double.orders[0]
            return 200, said if said.get("sealed") else self.double.orders.popleft()  # a seal stays

    def _part(self, part: str, body: bytes) -> tuple[int, Any]:
        self.double.indexes.add(self.headers["X-Orchestrate-Gateway"])
        status = 409 if part in self.double.parts else 200
        kept = self.double.parts.setdefault(part, body)
        return status, {"key": f"blobs/{part}", "sha256": hashlib.sha256(kept).hexdigest(), "size": len(kept)}

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline() or b"-1", 16):
            if size < 0:
                raise ConnectionResetError
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _say(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, data: bytes, *, torn: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        data = data[: len(data) // 2] if torn else data
        for at in range(0, len(data), 70_001):
            piece = data[at : at + 70_001]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if not torn:
            self.wfile.write(b"0\r\n\r\n")


@contextlib.contextmanager
def listening() -> Iterator[str]:
    """A canary that can be reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def closed_port() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


class PodFolders:
    """The volumes of one pod, and its programs."""

    def __init__(self, root: Path, double: Double) -> None:
        self.root, self.double = root, double
        for name in ("ctl", "log", "inputs", "areas/workspace", "areas/output", "areas/tmp", "areas/home", "dev"):
            (root / name).mkdir(parents=True)
        (root / "areas/workspace").chmod(0o2777)  # as a volume with an fsGroup is
        programs = root / "opt/orchestrate"
        (programs / "agents/react").mkdir(parents=True)
        (programs / "agents/react/react.py").write_text("loop")
        (programs / "bin").mkdir()
        (programs / "bin/supervisor").symlink_to(supervisor())
        self.plan: dict[str, Any] = {
            "version": 1,
            "workdir": "/workspace",
            "inputs": [],
            "own": [],
            "stdin_b64": base64.b64encode(b"in\0put").decode(),
            "exclude": [],
            "disk_bytes": 64 << 20,
            "processes": 64,
            "wall_seconds": 20,
            "output_bytes": 4096,
            "denied": [],
        }
        self.env = {
            "ORCHESTRATE_TOKEN": TOKEN,
            "ORCHESTRATE_GATEWAY": double.address,
            "ORCHESTRATE_POD_UID": "uid-1",
            "ORCHESTRATE_RELAY": double.address,
            "ORCHESTRATE_GATEWAY_INDEX": "3",
        }

    def path(self, name: str) -> Path:
        return self.root / name

    def start(self, program: str, *, settings: str = "", before: str = "") -> subprocess.Popen[bytes]:
        """Start ``prepare.prepare``, ``prepare.listing`` or ``freezer.freezer`` as the image does, with these folders."""
        module, name = program.split(".")
        code = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
            "from orchestrator.sandbox.pod import fetch, orders, prepare, proof, talk, world, freezer\n"
            "from orchestrator.sandbox.keeper import http, sinks\n"
            f"{settings}\n"
            f"places = world.Places({str(self.root)!r})\n"
            f"failed = {49 if module == 'prepare' else 59}\n{before}\n"
            f"sys.exit(world.run(lambda: {module}.{name}(places, world.own_environment(failed)), places, failed))"
        )
        env = self.env | {"ORCHESTRATE_PLAN": json.dumps(self.plan)}
        command = [sys.executable, "-I", "-S", "-c", code]
        return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, umask=0o022)

    def run(self, program: str, **more: Any) -> int:
        process = self.start(program, **more)
        try:
            self.stderr = process.communicate(timeout=50)[1].decode()
        finally:
            process.kill()
        return process.returncode

    def told(self) -> dict[str, Any]:
        """The termination message."""
        return json.loads((self.root / "dev/termination-log").read_text())


def until(condition, seconds: float = 20) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def sandbox_bundle() -> Bundle:
    """A task's bundle with everything that one can hold."""
    long = "deep/" * 30 + "x" * 120
    return Bundle.of(
        [
            Item("memory/notes.md", data=b"remember\n"),
            Item("task/instruction.md", data=b"do it\n"),
            Item("workspace/a-b", data=b"1"),
            Item("workspace/a/b.py", data=b"b = 1\n" * 40_000),
            Item("workspace/a/up", "symlink", 0o777, b"../a-b"),
            Item("workspace/empty", "dir", 0o755),
            Item(f"workspace/{long}", data=b"deep"),
            Item("workspace/run.sh", mode=0o755, data=b"#!/bin/sh\n"),
            Item("workspace/ümläut/日本", data="ü".encode()),
        ]
    )
