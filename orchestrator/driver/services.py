"""The services of a run on one machine: gateway (also the relay) and grader, as child processes on unix sockets that only we may open."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from orchestrator.driver.child import Child
from orchestrator.driver.process import this_process
from orchestrator.errors import InfrastructureError, RefusedError
from orchestrator.settings import Settings
from orchestrator.storage.bundles import tree_bytes

LONGEST_PARENT = 50
"""Bytes: a socket's path has 107 in all, and sandboxes put folders of their own below ours."""
LONGEST_RAY_PARENT = 16
"""The same for the folder of a Ray cluster: Ray puts 90 bytes of its own below."""
_PREFIX, _OWNER = "orch-", "owner"


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

    @classmethod
    def read(cls, path: Path) -> Addresses | None:
        """Read them back; None on another machine. Raises RefusedError when the file is not for us."""
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            msg = f"the file {path} with the driver's services cannot be read: {error.strerror}; run Ray as the user who submits"
            raise RefusedError(msg) from error
        return cls(**found["at"]) if found["boot"] == this_process().boot else None


@dataclass(frozen=True)
class Services(Addresses):
    """The running services."""

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


def scratch_parent(settings: Settings, longest: int = LONGEST_PARENT) -> Path:
    """Return where scratch folders are made: the setting, or a temporary folder of the system where that path is too long for sockets."""
    parents = [*filter(None, [settings.scratch]), *_temporary_folders()]
    return next((parent for parent in parents if len(bytes(parent)) <= longest), parents[-1])


def _temporary_folders() -> list[Path]:
    return [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 - the shortest; folders of ours get random names there


def sweep_scratch(settings: Settings, *, dry: bool) -> tuple[int, int]:
    """Remove scratch folders of killed processes, wherever they may be; return their number and bytes. Raises OSError."""
    parents = {scratch_parent(settings, longest).resolve() for longest in (LONGEST_PARENT, LONGEST_RAY_PARENT)}
    swept = [_sweep(parent, dry=dry) for parent in sorted(parents)]
    return sum(count for count, _ in swept), sum(size for _, size in swept)


@contextlib.contextmanager
def scratch_folder(settings: Settings, longest_parent: int = LONGEST_PARENT) -> Iterator[Path]:
    """Make a folder for sockets and running sandboxes that only we may open, and remove it afterwards.

    Folders that killed processes left beside it are removed first.
    It lies below the setting ``scratch``, or below a temporary folder of the system where that path would leave no room for a socket's
    name: where it has more than ``longest_parent`` bytes.
    Raises InfrastructureError when it cannot be made.
    """
    parent = scratch_parent(settings, longest_parent)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))  # 0700
        owner = _own(folder)
    except OSError as error:
        msg = f"no folder for running sandboxes below {parent}: {error.strerror}; set ORCHESTRATE_SCRATCH to another place"
        raise InfrastructureError(msg, cause="scratch") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def _own(folder: Path) -> int:
    """Hold a lock in the folder for as long as this process lives. It gets its name when it is held, so nobody sees it free."""
    descriptor = os.open(folder / "owner.new", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (folder / "owner.new").rename(folder / _OWNER)
    return descriptor


def _sweep(parent: Path, *, dry: bool = False) -> tuple[int, int]:
    """Remove folders of ours whose process was killed: nobody holds their lock. Return their number and bytes."""
    count, size = 0, 0
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid():
                continue
            descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # of another user, just being made, or gone
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            count, size = count + 1, size + tree_bytes(folder)
            if not dry:
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
    return count, size


@contextlib.asynccontextmanager
async def local_services(
    settings: Settings, folder: Path, backend: str, *, concurrency: int
) -> AsyncIterator[Services]:
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
        yield Services(
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
        },
    }
