"""What the services of this package share: sockets, sessions, the end of the process."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
from aiohttp import web

_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""What a container may use, by control groups of version 2 and 1."""
_NO_LIMIT = 1 << 50


def until_terminated(over: asyncio.Event) -> None:
    """Set the event on SIGTERM, and use every descriptor that this process may have."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    # Agents may hold many connections each, and the usual soft limit of 1024 descriptors is soon used up for all.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def room_for_requests() -> int:
    """Return how many bytes open requests may take: half of what this process may have, 2 GiB where there is no limit to be found."""
    for path in _MEMORY_LIMITS:
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):  # not this kind of control group, or "max"
            continue
        if limit < _NO_LIMIT:
            return limit // 2
    return 2 << 30


def provider_session() -> aiohttp.ClientSession:
    """Return the session for calls to model providers, to be opened as a context."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        trust_env=False,
        auto_decompress=False,
    )


@asynccontextmanager
async def in_background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Do work beside the body, and end it with the body."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def serving(app: web.Application, listening: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a listening socket while the context is open."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield
    finally:
        await runner.cleanup()
