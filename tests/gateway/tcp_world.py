"""A gateway and a relay that serve pods, over real TCP on a loopback address of their own; a pod is one more loopback address."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from gateway_world import Inside, World

from orchestrator.gateway.client import GatewayClient, PodEntrance
from orchestrator.gateway.cluster import running_cluster_gateway
from orchestrator.gateway.line import Line
from orchestrator.gateway.relay_service import running_relay
from orchestrator.gateway.service_file import read_gateway_file, read_relay_file
from orchestrator.interfaces import Registration
from orchestrator.trace.write import TrajectoryFolder

TOKENS = {role: f"token-of-the-{role}-in-this-test" for role in ("driver", "relay", "reaper")}
_pods = itertools.count(1)


def own_address() -> str:
    """Return a loopback address that nobody else uses, so that every world can have the same ports."""
    return f"127.{random.randint(1, 99)}.{random.randint(0, 255)}.{random.randint(1, 254)}"


class PodWorld(World):
    """What ``World`` is for one machine, with pods."""

    def __init__(
        self, folder: Path, store: Any = None, *, providers: Any = None, patience_s: float = 0, **config: Any
    ) -> None:
        super().__init__(folder)
        self.store = store or self.store
        self.address = own_address()
        for role, token in TOKENS.items():
            (folder / role).write_text(f"{token}\n")
        self.gateway_file = folder / "gateway.json"
        self.relay_file = folder / "relay.json"
        self.agent_url, self.admin_url = f"http://{self.address}:8080", f"http://{self.address}:8081"
        self.relay_url = f"http://{self.address}:8082"
        limits = config.pop("max_state_bytes", None)
        said = {
            "store": str(folder / "store"),
            "cache": str(folder / "cache"),
            "folder": str(folder / "trajectories"),
            "agent": f"{self.address}:8080",
            "admin": f"{self.address}:8081",
            "tokens": {role: str(folder / role) for role in TOKENS},
            "providers": {name: self._provider(name, each) for name, each in (providers or {}).items()},
            "grace_seconds": 0.2,
            "settle_seconds": 0.2,
            **({} if limits is None else {"max_state_bytes": limits}),
            **config,
        }
        self.gateway_file.write_text(json.dumps(said))
        relay = {
            "store": said["store"],
            "listen": f"{self.address}:8082",
            "gateways": [self.admin_url],
            "token": str(folder / "relay"),
        }
        self.relay_file.write_text(json.dumps(relay))
        self.client = GatewayClient(
            [Line(self.admin_url, TOKENS["driver"], patience_s=patience_s)],
            PodEntrance([f"{self.address}:8080"], self.relay_url),
        )

    def _provider(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        key = self.folder / f"key-{name}"
        key.write_text(given["key"])
        return {"base_url": given["base_url"], "key_file": str(key)}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[PodWorld]:
        async with AsyncExitStack() as stack:
            _, config = read_gateway_file(self.gateway_file)
            trajectories = TrajectoryFolder(config.folder)
            running = await stack.enter_async_context(
                running_cluster_gateway(config, self.store, trajectories, self.scripts)
            )
            await stack.enter_async_context(running_relay(read_relay_file(self.relay_file)[1], self.store))
            await stack.enter_async_context(self.client)
            self.registry = running.registry
            yield self

    def lose_volume(self) -> None:
        """Between two gateways: have the one that comes find nothing of the one before."""
        shutil.rmtree(self.folder / "trajectories")

    async def launch(self, sample: int = 1, script: dict[str, Any] | None = None, **change: Any) -> Pod:
        """Register a launch and begin it from a pod, as its prepare does."""
        pod = Pod(await self.client.register(self.request(sample, script, **change)))
        await pod.begin()
        return pod

    async def put(self, registration: Registration, part: str, data: bytes) -> tuple[int, Any]:
        pod = Pod(registration, f"127.201.0.{registration.launch.encode()[0]}")
        await pod.begin()
        return await pod.put(part, data)

    async def admin(self, role: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask on the admin port with the token of a role."""
        headers = {"Authorization": f"Bearer {TOKENS[role]}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, self.admin_url + path, json=body) as response,
        ):
            return response.status, await response.json(content_type=None)


class Pod(Inside):
    """What is inside of a pod: an agent, and our own programs with their tokens."""

    def __init__(self, registration: Registration, address: str | None = None) -> None:
        super().__init__(registration, 8080)
        number = next(_pods)
        self.address = address or f"127.200.{number // 250 % 256}.{number % 250 + 1}"
        self.url = registration.door.address
        self.host = self.url.removeprefix("http://").partition(":")[0]

    @property
    def connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(local_addr=(self.address, 0))

    def raw(self, data: bytes) -> socket.socket:
        connection = socket.create_connection((self.host, 8080), source_address=(self.address, 0))
        connection.sendall(data)
        return connection

    async def as_prepare(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        status, answer, _ = await self.ask(
            method, path, body, token=self.registration.door.prepare_token, headers=headers
        )
        return status, answer

    async def as_freezer(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, answer, _ = await self.ask(method, path, body, token=self.registration.door.token)
        return status, answer

    async def fetch(self, path: str) -> tuple[int, bytes]:
        """Fetch bytes as prepare does. Raises aiohttp.ClientError when they break off."""
        headers = {"Authorization": f"Bearer {self.registration.door.prepare_token}"}
        async with (
            aiohttp.ClientSession(connector=self.connector, headers=headers) as session,
            session.get(self.url + path) as response,
        ):
            return response.status, await response.read()

    async def begin(self, uid: str | None = None) -> tuple[int, Any]:
        uid = uid or f"uid-of-{self.launch}"
        return await self.as_prepare("POST", "/launch/prepared", **{"X-Orchestrate-Pod": uid})

    async def put(self, part: str, data: bytes, **change: Any) -> tuple[int, Any]:
        """Deliver a part as the freezer does."""
        token = change.get("token", self.registration.door.token)
        headers = {"Authorization": f"Bearer {token}", "X-Orchestrate-Gateway": str(change.get("index", 0))}
        async with (
            aiohttp.ClientSession(connector=self.connector) as session,
            session.put(f"{self.registration.door.relay}/launch/state/{part}", data=data, headers=headers) as answer,
        ):
            return answer.status, await answer.json()

    async def deliver(self, **report: Any) -> tuple[int, Any]:
        """Deliver a whole state and report."""
        for part in ("output", "entries", "changes"):
            await self.put(part, part.encode())
        return await self.as_freezer("POST", "/launch/frozen", report)
