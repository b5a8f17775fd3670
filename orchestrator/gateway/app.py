"""The gateway process: two unix sockets, all launches, one event loop."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from orchestrator.errors import GatewayError
from orchestrator.gateway.admin import AdminSide
from orchestrator.gateway.config import GatewayConfig
from orchestrator.gateway.door import Door
from orchestrator.gateway.registry import Registry
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
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    # Agents may hold many connections each, and the usual soft limit of 1024 descriptors is soon used up for all.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
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
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        trust_env=False,
    ) as session:
        registry = Registry(config, trajectories, bundles, session)
        admin = AdminSide(registry, store, config.admin_token.get_secret_value())
        runner = web.AppRunner(admin.application(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        door: Door | None = None
        try:
            await web.SockSite(runner, _unix_socket(config.socket)).start()
            door = Door(_unix_socket(config.door), registry.opened)
            yield registry
        finally:
            if door is not None:
                await door.close()
            await _close_launches(registry)
            await runner.cleanup()
            _remove(config.socket, config.door)


async def _close_launches(registry: Registry) -> None:
    """Let nothing go on. The launches are lost: what is not sealed cannot be sealed by anybody."""
    for launch in registry.all():
        launch.stop_clock()
        for call in list(launch.calls):
            call.cancel()
        if launch.listener is not None and launch.seal is None:
            await launch.listener.close()


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
