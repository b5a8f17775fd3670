"""The services of a run on one machine: gateway (also the relay) and grader, as child processes on unix sockets that only we may open."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.driver.child import Child
from orchestrator.settings import Settings


@dataclass(frozen=True)
class Services:
    """Where the running services are."""

    gateway_socket: str
    door_socket: str
    gateway_token: str
    grader_socket: str
    grader_token: str
    gateway: Child
    grader: Child

    @property
    def grader_version(self) -> str:
        """What the grader says of itself."""
        return str(self.grader.greeting.get("version", ""))

    async def ready(self) -> None:
        """Wait until both listen. Raises InfrastructureError when one of them keeps dying."""
        await self.gateway.ready()
        await self.grader.ready()


@contextlib.asynccontextmanager
async def local_services(settings: Settings, *, concurrency: int) -> AsyncIterator[Services]:
    """Start gateway and grader and end them afterwards. Raises InfrastructureError with the end of a log when one does not start."""
    folder = Path(tempfile.mkdtemp(prefix="orch-", dir="/tmp"))  # noqa: S108 - 0700 by mkdtemp; a short path, since sockets allow 107 bytes
    logs = settings.logs_folder
    logs.mkdir(parents=True, exist_ok=True)
    try:
        gateway_token, grader_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        gateway = Child(
            "gateway",
            ("-m", "orchestrator", "serve", "gateway"),
            {
                "store": settings.store,
                "cache": str(settings.cache),
                "gateway": {
                    "socket": str(folder / "g.sock"),
                    "door": str(folder / "d.sock"),
                    "admin_token": gateway_token,
                    "folder": str(folder / "t"),
                    "providers": providers(settings),
                },
            },
            logs / "gateway.log",
        )
        grader = Child(
            "grader",
            ("-m", "grader_service", "serve"),
            {
                "socket": str(folder / "r.sock"),
                "store": settings.store,
                "token": grader_token,
                "folder": str(folder / "grading"),
                "concurrency": concurrency,
            },
            logs / "grader.log",
        )
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(gateway)
            await stack.enter_async_context(grader)
            yield Services(
                str(folder / "g.sock"),
                str(folder / "d.sock"),
                gateway_token,
                str(folder / "r.sock"),
                grader_token,
                gateway,
                grader,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
