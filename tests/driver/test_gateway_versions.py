"""A driver and its gateways are of one version: an upgrade of the chart restarts no gateway, and what pods say is not for older ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from orchestrator import __version__
from orchestrator.driver.kubernetes.services import cluster_services
from orchestrator.errors import RefusedError
from orchestrator.settings import Kubernetes, Settings


@contextlib.asynccontextmanager
async def saying(health: dict[str, Any]) -> AsyncIterator[str]:
    async def healthz(_: web.Request) -> web.Response:
        return web.json_response(health)

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def driven_with(folder: Path, *versions: str) -> str:
    """Return what the grader says of itself to a driver with gateways of these versions."""

    async def scene() -> str:
        async with contextlib.AsyncExitStack() as stack:
            gateways = [
                await stack.enter_async_context(saying({"ok": True, **({"version": each} if each else {})}))
                for each in versions
            ]
            grader = await stack.enter_async_context(saying({"ok": True, "version": "9.9+abc"}))
            (folder / "token").write_text("secret")
            table = Kubernetes(
                driver="here", namespaces=("t",), pod_image="p@sha256:0", gateways=tuple(gateways),
                agent_gateways=tuple(each.removeprefix("http://") for each in gateways), relay=grader, grader=grader,
                gateway_token_file=folder / "token", grader_token_file=folder / "token",
            )  # fmt: skip
            return (await cluster_services(Settings(kubernetes=table), patience=5)).grader_version

    return asyncio.run(scene())


def test_equal_versions_and_those_that_are_not_said_are_driven(tmp_path: Path) -> None:
    assert driven_with(tmp_path, __version__, "") == "9.9+abc"


def test_a_gateway_of_before_an_upgrade_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"gateway 1 is of version 0\.0\.9, .* delete pod -l app=gateway"):
        driven_with(tmp_path, __version__, "0.0.9")
