"""A registry that serves one image over HTTP on loopback, from the folder that an engine saved it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    """An OCI layout."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        index = json.loads((self.folder / "index.json").read_bytes())["manifests"][0]
        kind, name = self.path.split("/")[-2:]
        digest = name if name.startswith("sha256:") else index["digest"]
        blob = self.folder / "blobs/sha256" / digest.removeprefix("sha256:")
        found = self.path == "/v2/" or (kind in {"manifests", "blobs"} and blob.is_file())
        data = blob.read_bytes() if found and self.path != "/v2/" else b"{}"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", index["mediaType"] if kind == "manifests" else "application/octet-stream")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Serve the image of a folder as long as the context is open; yields ``HOST:PORT``. Every name and tag is that image."""
    handler = type("Handler", (_Handler,), {"folder": folder})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
