"""The services of a run: gateway (also the relay) and grader; on one machine child processes on unix sockets that only we may open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, Self

from orchestrator import wiring
from orchestrator.driver.child import Child
from orchestrator.driver.process import this_process
from orchestrator.errors import GatewayError, InfrastructureError, RefusedError
from orchestrator.interfaces import Gateway, Grader
from orchestrator.settings import Settings

_LISTEN_SECONDS = 45.0
"""For services that are being started again."""


@dataclass(frozen=True)
class Addresses:
    """Where the running services are, with the tokens that open them: a secret."""

    gateway_socket: str
    door_socket: str
    gateway_token: str
    grader_socket: str
    grader_token: str

    def write(self, path: Path) -> None:
        """Write them for other processes of this user on this machine."""
        path.touch(0o600, exist_ok=False)
        at = {field.name: getattr(self, field.name) for field in fields(Addresses)}
        path.write_text(json.dumps({"boot": this_process().boot, "at": at}))

    def open_gateway(self) -> AbstractAsyncContextManager[Gateway]:
        """Return the driver's side of the gateway, to be opened."""
        return wiring.gateway_client(self.gateway_socket, self.door_socket, self.gateway_token)

    def open_grader(self) -> AbstractAsyncContextManager[Grader]:
        """Return the driver's side of the grader, to be opened."""
        return wiring.grader_client(self.grader_socket, self.grader_token)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read them back; None on another machine. Raises RefusedError when the file is not for us."""
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            msg = f"the file {path} with the driver's services cannot be read: {error.strerror}; run Ray as the user who submits"
            raise RefusedError(msg) from error
        return cls(**found["at"]) if found["boot"] == this_process().boot else None


class Reachable(Protocol):
    """Gateway and grader, wherever they are."""

    def open_gateway(self) -> AbstractAsyncContextManager[Gateway]:
        """Return the driver's side of the gateway, to be opened."""
        ...

    def open_grader(self) -> AbstractAsyncContextManager[Grader]:
        """Return the driver's side of the grader, to be opened."""
        ...

    async def ready(self) -> None:
        """Wait until both can be asked. Raises InfrastructureError when one never will."""
        ...


class Services(Reachable, Protocol):
    """The same, for who begins a run."""

    @property
    def grader_version(self) -> str:
        """What the grader says of itself."""
        ...


@dataclass(frozen=True)
class SharedServices(Addresses):
    """Those of a driver on the same machine, which starts them again when they die. Implements Reachable."""

    async def ready(self) -> None:
        """Wait until both take connections. Raises GatewayError when one does not for a long time."""
        until = time.monotonic() + _LISTEN_SECONDS
        for name, path in (("gateway", self.gateway_socket), ("grader", self.grader_socket)):
            while not await _listens(path):
                if time.monotonic() > until:
                    msg = f"the {name} at {path} takes no connection for {_LISTEN_SECONDS:.0f} s; see its log"
                    raise GatewayError(msg, cause=f"{name}_gone")
                await asyncio.sleep(0.2)


async def _listens(path: str) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


@dataclass(frozen=True)
class LocalServices(Addresses):
    """Children of this process. Implements Services."""

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
async def local_services(
    settings: Settings, folder: Path, backend: str, *, concurrency: int
) -> AsyncIterator[LocalServices]:
    """Start gateway and grader and end them afterwards. Raises InfrastructureError with the end of a log when one does not start."""
    gateway_token, grader_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    logs = settings.logs
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"no folder for logs at {logs}: {error.strerror}; free space or set ORCHESTRATE_LOGS to another place"
        raise InfrastructureError(msg, cause="logs") from error
    gateway = Child(
        "gateway",
        ("-m", "orchestrator", "serve", "gateway"),
        _gateway(settings, folder, gateway_token),
        logs / "gateway.log",
    )
    grader_config = {
        "socket": str(folder / "r.sock"),
        "store": settings.store,
        "token": grader_token,
        "folder": str(folder / "grading"),
        "concurrency": concurrency,
        "backend": backend,
        "container_engine": settings.container_engine,
    }
    grader = Child("grader", ("-m", "grader_service", "serve"), grader_config, logs / "grader.log")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(gateway.end)
        stack.push_async_callback(grader.end)
        await _both(asyncio.ensure_future(gateway.start()), asyncio.ensure_future(grader.start()))
        yield LocalServices(
            gateway_socket=str(folder / "g.sock"),
            door_socket=str(folder / "d.sock"),
            gateway_token=gateway_token,
            grader_socket=str(folder / "r.sock"),
            grader_token=grader_token,
            gateway=gateway,
            grader=grader,
        )


async def _both(*starts: asyncio.Future[None]) -> None:
    """Wait for both; when one fails or the caller leaves, the other has ended too, so that nothing starts after the end."""
    try:
        await asyncio.gather(*starts)
    finally:
        for start in starts:
            start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)


def _gateway(settings: Settings, folder: Path, token: str) -> dict[str, Any]:
    return {
        "store": settings.store,
        "cache": str(settings.cache),
        "gateway": {
            "socket": str(folder / "g.sock"),
            "door": str(folder / "d.sock"),
            "admin_token": token,
            "folder": str(folder / "trajectories"),
            "providers": settings.provider_secrets(),
            "egress": settings.egress.model_dump(mode="json"),
        },
    }
