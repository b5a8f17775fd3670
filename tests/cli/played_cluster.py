"""A played API server in a thread of its own, with a kubeconfig that leads to it, and whoever starts Jobs there."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

for name in ("kubernetes", "driver"):
    sys.path.insert(0, str(Path(__file__).parent.parent / name))

from driver_job_world import DRIVERS, TOML, install  # noqa: E402 - found by what is above
from fault_server import FaultServer  # noqa: E402

from orchestrator.sandbox.kubernetes.api import Api  # noqa: E402
from orchestrator.sandbox.kubernetes.resources import JOBS  # noqa: E402

Starter = Callable[[FaultServer, dict[str, Any]], Awaitable[None]]
IMAGE = f"image@sha256:{'1' * 64}"
_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: played
contexts: [{{name: played, context: {{cluster: played, user: me}}}}]
clusters: [{{name: played, cluster: {{server: "{url}"}}}}]
users: [{{name: me, user: {{}}}}]
"""


class PlayedCluster:
    """Use as a context manager; ``starter`` is called once with each new Job."""

    def __init__(self, folder: Path, starter: Starter, **data: str | None) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.jobs: list[dict[str, Any]] = []
        self._starter = starter
        self._data = {"orchestrate.toml": _toml(folder)} | data
        self._up, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(20)

    async def _serve(self) -> None:
        async with FaultServer(kubelet=False) as server, Api(server.connection) as api:
            await install(api, **self._data)
            self.kubeconfig.write_text(_KUBECONFIG.format(url=server.url))
            self._up.set()
            while not self._over.is_set():
                for job in await api.list(JOBS, DRIVERS):
                    if job["metadata"]["name"] not in {each["metadata"]["name"] for each in self.jobs}:
                        self.jobs.append(job)
                        await self._starter(server, job)
                await asyncio.sleep(0.02)


def _toml(folder: Path) -> str:
    text = TOML.replace("s3://theirs/runs", f"{folder}/store").replace("task@sha256:2", IMAGE)
    return text.replace("pod@sha256:1", IMAGE)
