"""What a task's launches reach of a team's own servers, by name: addresses and keys are the gateway's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp
import orjson
from pydantic import JsonValue, ValidationError

from orchestrator.gateway.bundled import unusable
from orchestrator.gateway.config import ProviderConfig
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.toolbox import Tool
from orchestrator.gateway.wire import LaunchBody
from orchestrator.gateway.worlds.api import api_tool
from orchestrator.gateway.worlds.mcp_upstream import McpCatalogue, mcp_tools
from orchestrator.gateway.worlds.replay import Recording
from orchestrator.interfaces import BundleSource
from orchestrator.spec.task import Upstream

_REPLAYED = ProviderConfig(type="http", base_url="http://replayed.invalid")
"""Stands for a server of which every call is answered from a recording."""


class Upstreams:
    """The servers of one gateway."""

    def __init__(
        self, providers: Mapping[str, ProviderConfig], bundles: BundleSource, session: aiohttp.ClientSession
    ) -> None:
        self._servers = {name: each for name, each in providers.items() if each.type in {"http", "mcp"}}
        self._bundles = bundles
        self._session = session
        self._catalogue = McpCatalogue(session)

    async def tools(self, launch: Launch, body: LaunchBody, recording: Recording | None) -> list[Tool]:
        """Return the tools of a launch's upstreams. Raises Refusal, and StoreError when a server cannot say what tools it has."""
        if body.world is None:
            return []
        folder = await self._bundles.fetch("world", body.world)
        found: list[Tool] = []
        for upstream in await asyncio.to_thread(_read, folder, body.task):
            found += await self._of(launch, body.task, upstream, recording)
        return found

    async def _of(self, launch: Launch, task: str, upstream: Upstream, recording: Recording | None) -> Sequence[Tool]:
        name = upstream.name
        if upstream.http is not None:
            is_replayed = recording is not None and recording.covers(name)
            launch.apis |= {name}
            server = _REPLAYED if is_replayed else self._server(task, name, "http")
            return [api_tool(launch, name, upstream.http, server, self._session)]
        if upstream.mcp is None or (recording is not None and recording.brings(f"{name}_")):
            return []  # the recording has its tools
        server = self._server(task, name, "mcp")
        offered = await self._catalogue.tools(name, server)
        found = mcp_tools(launch, name, upstream.mcp, offered, (server, self._session))
        told: list[dict[str, JsonValue]] = [
            {"name": tool.name, "description": tool.description, "arguments": tool.schema} for tool in found
        ]
        launch.brought += tuple(told)
        return found

    def _server(self, task: str, name: str, kind: str) -> ProviderConfig:
        found = self._servers.get(name)
        if found is None or found.type != kind:
            there = ", ".join(sorted(self._servers)) or "none"
            msg = f"task {task} needs upstream {name!r} of type {kind}, and there are: {there}; configure it as a provider of that type"
            raise Refusal(400, "unknown_upstream", msg)
        return found


def _read(folder: Path, task: str) -> list[Upstream]:
    try:
        said = orjson.loads((folder / "task.json").read_bytes()).get("upstream") or []
        return [Upstream.model_validate_json(orjson.dumps(each)) for each in said]
    except FileNotFoundError:
        return []
    except ValidationError as error:
        raise unusable("upstream_unusable", f"the upstreams of task {task} are", error) from None
