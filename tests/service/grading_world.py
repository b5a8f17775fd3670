"""Grading pods on the API server that fails: pods are played, what they say over the network is real."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
from fault_kubelet import Behaviour, End, Play, Script
from fault_server import FaultServer

from grader_service.checks.case import Pair
from grader_service.cluster.door import Door
from grader_service.cluster.pods import PodPairs
from grader_service.cluster.render import GRADER, OWNER, RUNNER_TOKEN
from grader_service.settings import GradingPods
from orchestrator.interfaces import Input, SandboxLimits, SandboxSpec
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.reflector import Pace, Reflector
from orchestrator.spec.task import Environment

NAMESPACE = "grading"
RESULT: dict[str, Any] = {
    "code": 0, "signal": None, "cause": "exited", "started": 1.0, "ended": 2.0,
    "output": base64.b64encode(b"said").decode(), "final": None, "subject_gone": False,
}  # fmt: skip
PLANNED: Any = SimpleNamespace(id="work", environment=Environment())
LIMITS = SandboxLimits(cpu=1, memory_bytes=64 << 20, disk_bytes=1 << 20, processes=16, wall_seconds=30)


def settings(port: int = 1, **fields: Any) -> GradingPods:
    known = {"namespace": NAMESPACE, "runner_image": "control@sha256:0", "task_image": "task@sha256:0", "owner": "me"}
    return GradingPods(address=f"http://127.0.0.1:{port}", **{**known, "creates_per_second": 100, **fields})


def pair(folder: Path, name: str = "a") -> Pair:
    """Two sandboxes: hidden files for the one, a state for the other."""
    hidden, state, programs = folder / f"hidden-{name}", folder / "state", folder / "programs"
    for place in (hidden, state, programs):
        place.mkdir(exist_ok=True)
    (hidden / "test.py").write_text("hidden")
    (state / "changes.tar").write_bytes(b"what was left")
    (programs / "p.py").write_text("ours")
    runner = SandboxSpec(
        name=f"{name}-runner", command=("sh", "-c", "true"), limits=LIMITS,
        inputs=(Input(source=programs, target="/grader/runner"), Input(source=hidden, target="/workspace/hidden", writable=True)),
    )  # fmt: skip
    subject = SandboxSpec(
        name=f"{name}-subject", command=("python3", "x"), limits=LIMITS, stdin=b"{}", workdir="/testbed",
        inputs=(Input(source=state, target="/grader/state"),),
    )  # fmt: skip
    return Pair(runner=runner, subject=subject)


async def told(play: Play, method: str, path: str, token: str, **more: Any) -> int:
    """Ask the grader as a container of the pod does and return the status."""
    headers = {"Authorization": f"Bearer {play.annotation(token)}"}
    url = f"{play.annotation(GRADER)}{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers, **more) as answer:
        await answer.read()
        return answer.status


async def prepares(play: Play, name: str) -> End:
    assert await told(play, "GET", "/grading/inputs", names.PREPARE_TOKEN) == 200
    assert await told(play, "POST", "/grading/prepared", names.PREPARE_TOKEN) == 204
    return End()


def reports(index: int = 0, *, after: float = 0.0, **changed: Any) -> Behaviour:
    async def behave(play: Play, name: str) -> End:
        await asyncio.sleep(after)
        status = await told(play, "PUT", f"/grading/results/{index}", RUNNER_TOKEN, json={**RESULT, **changed})
        return End(0 if status == 204 else 45)

    return behave


def script(**behaviours: Behaviour) -> Script:
    return Script({"prepare": prepares, **{name.replace("_", "-"): each for name, each in behaviours.items()}})


@contextlib.asynccontextmanager
async def grading_pods(server: FaultServer, port: int = 0, **fields: Any) -> AsyncIterator[PodPairs]:
    """A grader's pairs on the server while the context is open; ``port`` is where pods reach the grader, any when 0."""
    door = Door()
    listening = await door.listen("127.0.0.1", port)
    wanted = settings(listening.sockets[0].getsockname()[1], **fields)
    try:
        async with (
            Api(server.connection) as api,
            Reflector(api, NAMESPACE, marks=(OWNER,), pace=Pace(first=0.01, most=0.05)) as pods,
            PodPairs(wanted, door, Creator(api, Limiter(100)), pods) as pairs,
        ):
            yield pairs
    finally:
        listening.close()
