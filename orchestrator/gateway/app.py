"""The gateway process: two unix sockets, all launches, one event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from orchestrator.errors import GatewayError
from orchestrator.gateway.admin import AdminSide, FreezerSide
from orchestrator.gateway.config import GatewayConfig
from orchestrator.gateway.door import Door
from orchestrator.gateway.registry import Registry
from orchestrator.gateway.segments import SegmentSender
from orchestrator.gateway.serving import in_background, provider_session, serving, until_terminated
from orchestrator.interfaces import BundleSource, ObjectStore, TrajectoryFactory

_BACKLOG = 512
_LONGEST_PATH = 107


async def serve_gateway(
    config: GatewayConfig, store: ObjectStore, trajectories: TrajectoryFactory, bundles: BundleSource
) -> None:
    """Serve until standard input ends or SIGTERM comes; say ``{"ready": true}`` on standard output when listening.

    Raises GatewayError when a socket cannot be made.
    """
    over = asyncio.Event()
    until_terminated(over)
    _watch_stdin(over)
    async with running_gateway(config, store, trajectories, bundles):
        sys.stdout.write('{"ready": true}\n')
        sys.stdout.flush()
        await over.wait()


@asynccontextmanager
async def running_gateway(
    config: GatewayConfig, store: ObjectStore, trajectories: TrajectoryFactory, bundles: BundleSource
) -> AsyncIterator[Registry]:
    """Serve while the context is open. Raises GatewayError when a socket cannot be made."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(provider_session())
        registry = Registry(config, store, trajectories, bundles, session)
        app = AdminSide(registry, store, {"driver": config.admin_token}).application()
        FreezerSide(registry, store).add_to(app)
        await stack.enter_async_context(in_background(SegmentSender(store, registry.unsealed).run()))
        stack.callback(_remove, config.socket, config.door)
        await stack.enter_async_context(serving(app, _unix_socket(config.socket)))
        stack.push_async_callback(registry.abandon)
        door = Door(_unix_socket(config.door), registry.opened)
        stack.push_async_callback(door.close)
        yield registry


def _unix_socket(path: str) -> socket.socket:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        msg = f"the socket path {path} has more than {_LONGEST_PATH} bytes; choose a shorter folder"
        raise GatewayError(msg, cause="gateway_socket")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        Path(path).unlink(missing_ok=True)
        listening.bind(path)
        Path(path).chmod(0o600)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        msg = f"the socket {path} cannot be made: {error.strerror}"
        raise GatewayError(msg, cause="gateway_socket") from error
    return listening


def _remove(*paths: str) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)


def _watch_stdin(over: asyncio.Event) -> None:
    """Set the event when standard input ends. A file or /dev/null cannot be watched, and then only SIGTERM ends us."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            over.set()

    try:
        loop.add_reader(descriptor, readable)
    except PermissionError:
        return
