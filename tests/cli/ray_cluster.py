"""A Ray cluster whose nodes are on this machine: each further one has a name and folders of its own, as another machine would."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cli_world import clean_environment
from fire import descendants

_RAY = str(Path(sys.executable).parent / "ray")
_START_SECONDS = 150
_ELSEWHERE = 'hostname "$1"; shift; while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'
_SMALL = "--num-cpus=2 --object-store-memory=80000000 --min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0"


class Node:
    """A running node: ``ray start`` and its children."""

    def __init__(self, folder: Path, command: list[str], environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + _START_SECONDS
        while "Ray runtime started" not in (said := self._log.read_text()):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(said[-3000:])
            time.sleep(0.2)

    def services(self) -> list[str]:
        """Return the command lines of gateways and graders that run here."""
        found = []
        for pid in descendants(self._process.pid):
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return [line for line in found if " serve" in line]

    def kill(self) -> None:
        """End it as a power cut would."""
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


@dataclass(frozen=True)
class RayCluster:
    """A head on this machine, to which nodes are added."""

    folder: Path
    address: str
    variables: Mapping[str, str]
    """For everybody who speaks to it."""

    @contextlib.contextmanager
    def node(self, name: str, *hidden: Path, **variables: str) -> Iterator[Node]:
        """Add a node that finds empty folders where the hidden ones are; ``variables`` are those of its environment."""
        folder = self.folder / name
        folder.mkdir()
        start = [_RAY, "start", f"--address={self.address}", "--node-ip-address=127.0.0.1", *_SMALL.split(), "--block"]
        command = ["unshare", "-m", "-u", "sh", "-c", _ELSEWHERE, "sh", name, *map(str, hidden), "--", *start]
        node = Node(
            folder, [*command, f"--temp-dir={folder}/r"], {**clean_environment(), **self.variables, **variables}
        )
        try:
            yield node
        finally:
            node.kill()


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[RayCluster]:
    """A cluster of one node, with token authentication. The folder's path must be short."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    (folder / "head").mkdir()
    start = [_RAY, "start", "--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false"]
    command = [*start, *_SMALL.split(), "--block", f"--temp-dir={folder}/h"]
    head = Node(folder / "head", command, {**clean_environment(), **variables})
    try:
        yield RayCluster(folder, f"127.0.0.1:{port}", variables)
    finally:
        head.kill()
