"""Grading pods on the real cluster: a namespace of its own with the chart's kind of policies, and a grader in this process.

The grader runs on the node (``enter``), so its pods reach it at the node's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "service"))

from grader_world import RUN, TRIAL, GraderWorld

from grader_service.checks.case import Tools
from grader_service.cluster.door import Door
from grader_service.cluster.pods import PodPairs
from grader_service.cluster.render import OWNER
from grader_service.grade import Grading, grade
from grader_service.settings import GradingPods
from orchestrator.records.verdict import Verdict
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.connect import connect
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.reflector import Reflector
from orchestrator.sandbox.kubernetes.resources import PODS, Resource

NODE = "198.18.0.1"

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
IMAGE = "ORCHESTRATE_TEST_CONTROL_IMAGE"


def need_the_cluster() -> None:
    if not os.environ.get("ORCHESTRATE_TEST_CLUSTER") or not os.environ.get(IMAGE):
        pytest.skip(f"needs the test cluster: ORCHESTRATE_TEST_CLUSTER=1 and {IMAGE}, beside it")


class GradingCluster:
    """A namespace for grading, and graders for it."""

    def __init__(self, api: Api, namespace: str, port: int) -> None:
        self.api = api
        self.namespace = namespace
        self.port = port

    def settings(self, **fields: Any) -> GradingPods:
        return GradingPods(
            namespace=self.namespace,
            runner_image=os.environ[IMAGE],
            task_image=os.environ[IMAGE],  # with a Python, and none of ours is looked at there
            address=f"http://{NODE}:{self.port}",
            **fields,
        )

    @contextlib.asynccontextmanager
    async def pairs(self, **fields: Any) -> AsyncIterator[PodPairs]:
        settings = self.settings(**fields)
        door = Door()
        server = await door.listen("0.0.0.0", self.port)
        try:
            async with (
                Reflector(self.api, self.namespace, marks=(OWNER,)) as pods,
                PodPairs(settings, door, Creator(self.api, Limiter(5)), pods) as pairs,
            ):
                yield pairs
        finally:
            server.close()

    async def pods(self) -> list[dict[str, Any]]:
        return await self.api.list(PODS, self.namespace)

    async def grade(self, world: GraderWorld, **fields: Any) -> Verdict:
        async with self.pairs(**fields) as pairs:
            return await grade(grading(world, pairs), RUN, TRIAL)


def grading(world: GraderWorld, pairs: PodPairs) -> Grading:
    own = world.grading()
    tools = Tools(limited=own.tools.limited, pairs=pairs, programs=own.tools.programs, settings=own.tools.settings)
    return Grading(store=own.store, bundles=own.bundles, tools=tools, folder=own.folder, version=own.version)


def run(scene: Callable[[GradingCluster], Any]) -> Any:
    """Run a scene in a fresh namespace, which is deleted afterwards."""

    async def go() -> Any:
        async with Api(await connect()) as api, _namespace(api) as cluster:
            return await scene(cluster)

    return asyncio.run(go())


@contextlib.asynccontextmanager
async def _namespace(api: Api) -> AsyncIterator[GradingCluster]:
    name = f"grader-test-{secrets.token_hex(3)}"
    with socket.create_server((NODE, 0)) as free:
        port = free.getsockname()[1]
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await api.create(
        NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    try:
        for policy in _policies(port):
            await api.create(POLICIES, name, policy)
        await _with_account(api, name)
        yield GradingCluster(api, name, port)
    finally:
        await api.delete(NAMESPACES, "", name)


async def _with_account(api: Api, namespace: str) -> None:
    """Wait for the account that every pod has to name."""
    accounts = Resource("", "v1", "serviceaccounts", "ServiceAccount")
    for _ in range(100):
        with contextlib.suppress(ApiError):
            await api.get(accounts, namespace, "default")
            return
        await asyncio.sleep(0.1)
    pytest.fail("the namespace has no default account")


def _policies(port: int) -> Sequence[dict[str, Any]]:
    def policy(name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}

    grader = {"to": [{"ipBlock": {"cidr": f"{NODE}/32"}}], "ports": [{"protocol": "TCP", "port": port}]}
    none = {"matchLabels": {"orchestrate/net-class": "none"}}
    return [
        policy("deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        policy("grader", {"podSelector": none, "policyTypes": ["Egress"], "egress": [grader]}),
    ]
