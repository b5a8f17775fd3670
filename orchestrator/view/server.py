"""Serves the page on this machine's loopback interface until the process is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

from orchestrator.errors import SpecError
from orchestrator.view.guard import Guard, new_token
from orchestrator.view.site import Site

HOST = "127.0.0.1"
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def application(site: Site, guard: Guard) -> web.Application:
    """Return everything that is served: the page, its modules and its answers, below the token."""
    app = web.Application(middlewares=[guard.middleware()], client_max_size=1)
    app.add_routes(site.routes(f"/{guard.token}/api"))
    for name, file in _static().items():
        app.router.add_get(f"/{guard.token}/{'' if name == 'index.html' else name}", _file(file))
    return app


async def serve(site: Site, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` is told the address. ``port`` 0 is a free one. Raises SpecError when it is taken."""
    guard = Guard(new_token())
    runner = web.AppRunner(application(site, guard), access_log=None, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except OSError as error:
            msg = f"port {port} of {HOST} cannot be used: {error.strerror}; name another with --port, or none"
            raise SpecError(msg) from error
        ready(guard.listen_at(runner.addresses[0][1]))
        await _told_to_end()
    finally:
        await runner.cleanup()


async def _told_to_end() -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for kind in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(kind, told.set)
    try:
        await told.wait()
    finally:
        for kind in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(kind)


def _static() -> dict[str, Traversable]:
    """Return the files of the page by name; nothing else is ever read from the disk for an address."""
    folder = files("orchestrator.view").joinpath("static")
    return {file.name: file for file in folder.iterdir() if "." + file.name.rsplit(".", 1)[-1] in _KINDS}


def _file(file: Traversable) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    kind = _KINDS["." + file.name.rsplit(".", 1)[-1]]

    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=file.read_bytes(), content_type=kind, charset="utf-8", headers={"Cache-Control": "no-cache"}
        )

    return handler
