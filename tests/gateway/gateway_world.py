"""A real gateway for tests: real unix sockets, a real store, and sandboxes played by a listening TCP socket of this process."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from orchestrator.gateway.app import running_gateway
from orchestrator.gateway.client import machine_gateway
from orchestrator.gateway.config import GatewayConfig
from orchestrator.interfaces import LaunchRequest, Registration
from orchestrator.records.ids import TrialId
from orchestrator.settings import Price
from orchestrator.spec.scripts import Script
from orchestrator.spec.task import Budgets
from orchestrator.storage.file import FileStore
from orchestrator.trace.write import TrajectoryFolder

ADMIN = "admin-token-of-this-test"
PRICE = Price(input=1.0, output=2.0)
ENDLESS = {
    "conversations": [{"turns": [{"text": f"answer {n}", "usage": {"input": 10, "output": 5}} for n in range(60)]}]
}


class Scripts:
    """Bundles of the audience ``world``: one folder per digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def fetch(self, audience: str, digest: str) -> Path:
        assert audience == "world"
        return self._folder / digest

    def add(self, digest: str, task: str, script: dict[str, Any]) -> None:
        folder = self._folder / digest
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{task}.json").write_bytes(Script.model_validate_json(json.dumps(script)).model_dump_json().encode())


class World:
    """One gateway and what a test needs around it."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        self.store = FileStore(folder / "store")
        self.scripts = Scripts(folder / "scripts")
        line = {
            "socket": str(folder / "g.sock"),
            "door": str(folder / "d.sock"),
            "admin_token": ADMIN,
            "folder": str(folder / "trajectories"),
            "grace_seconds": 0.2,
            "settle_seconds": 0.2,
            **config,
        }
        self.line = json.dumps(line).encode()
        self.config = GatewayConfig.from_json_line(self.line)
        self.client = machine_gateway(self.config.socket, self.config.door, ADMIN)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        trajectories = TrajectoryFolder(self.config.folder)
        async with running_gateway(self.config, self.store, trajectories, self.scripts) as registry, self.client:
            self.registry = registry
            yield self

    def request(self, sample: int = 1, script: dict[str, Any] | None = None, **change: Any) -> LaunchRequest:
        self.scripts.add("scripts-1", "task-1", script or ENDLESS)
        budgets = change.pop("budgets", {})
        values: dict[str, Any] = {
            "run": "run-1",
            "trial": TrialId("task-1", "careful", sample),
            "launch": 1,
            "epoch": 1,
            "budgets": Budgets.model_validate_json(json.dumps(budgets)),
            "models": {"main": "scripted/careful"},
            "prices": {"scripted/careful": PRICE},
            "seed": 7,
            "task": "task-1",
            "scripts": "scripts-1",
        }
        return LaunchRequest(**{**values, **change})

    async def launch(self, sample: int = 1, script: dict[str, Any] | None = None, **change: Any) -> Inside:
        """Register a launch and hand over a listening socket, as a sandbox does."""
        registration = await self.client.register(self.request(sample, script, **change))
        port = await hand_over(registration)
        return Inside(registration, port)

    async def put(self, registration: Registration, part: str, data: bytes) -> tuple[int, Any]:
        """Deliver a part as the launch's freezer does."""
        return await put_state(registration, part, data)


class Inside:
    """What a program inside of the sandbox can do."""

    def __init__(self, registration: Registration, port: int) -> None:
        self.registration = registration
        self.launch = registration.launch
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any, dict[str, str]]:
        shown = {
            "Authorization": f"Bearer {self.registration.agent_token if token is None else token}",
            **(headers or {}),
        }
        async with aiohttp.ClientSession(connector=self.connector) as session:
            kind = "data" if isinstance(body, bytes) else "json"
            async with session.request(method, self.url + path, headers=shown, **{kind: body}) as response:
                data = await response.read()
                return response.status, json.loads(data) if data else None, dict(response.headers)

    async def chat(self, messages: list[dict[str, Any]] | None = None, **body: Any) -> tuple[int, Any, dict[str, str]]:
        content = messages or [{"role": "user", "content": "go"}]
        return await self.ask("POST", "/v1/chat/completions", {"model": "main", "messages": content, **body})

    def raw(self, data: bytes) -> socket.socket:
        """Send bytes on a connection of its own."""
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.sendall(data)
        return connection


async def hand_over(registration: Registration, line: bytes | None = None) -> int:
    """Make a listening socket, hand it through the door and forget it. Returns its port. Raises RuntimeError with the door's answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        answer = await through_door(registration, [listening], line)
        if answer != {"ok": True}:
            raise RuntimeError(answer["error"])
        return int(listening.getsockname()[1])


async def through_door(
    registration: Registration, sockets: list[socket.socket], line: bytes | None = None
) -> dict[str, Any]:
    said = line if line is not None else json.dumps({"token": registration.door.token}).encode() + b"\n"
    return await asyncio.to_thread(_through_door, registration.door.socket, said, sockets)


def _through_door(path: str, line: bytes, sockets: list[socket.socket]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(10)
        door.connect(path)
        if sockets:
            socket.send_fds(door, [line], [found.fileno() for found in sockets])
        else:
            door.sendall(line)
        with door.makefile("rb") as answer:
            found: dict[str, Any] = json.loads(answer.readline())
            return found


def put_state(registration: Registration, part: str, data: bytes) -> Any:
    """The request that a freezer sends, to be awaited."""

    async def send() -> tuple[int, Any]:
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(registration.sink.socket)) as session:
            headers = {"Authorization": f"Bearer {registration.sink.token}"}
            async with session.put(
                f"http://relay/launch/state/{part}", data=_chunks(data), headers=headers
            ) as response:
                return response.status, await response.json()

    return send()


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 1000):
        yield data[start : start + 1000]
