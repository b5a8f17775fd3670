"""The gateway on a real network: tokens are bound to pods by the addresses that it sees, and one pod's flood is nobody else's."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from installed_world import Release, agent_pod, ask, get, until

from orchestrator.interfaces import LaunchRequest, PodDoor
from orchestrator.records.ids import TrialId
from orchestrator.settings import Kubernetes
from orchestrator.spec.task import Budgets
from orchestrator.wiring import cluster_gateway

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ASKS = """
import json, sys, urllib.error, urllib.request
found = []
for method, url, headers in json.loads(sys.argv[1]):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=20) as answer:
            found.append(answer.status)
    except urllib.error.HTTPError as error:
        found.append([error.code, json.load(error)["error"]["type"]])
print(json.dumps(found))
"""
FLOODS = """
import socket, sys, time
host, seconds = sys.argv[1], float(sys.argv[2])
end, count, kept = time.time() + seconds, 0, []
while time.time() < end:
    try:
        made = socket.create_connection((host, 8080), timeout=1)
        made.sendall(b"GET /tools HTTP/1.1\\r\\nX-A: ")
        kept = [*kept[-200:], made]
        count += 1
    except OSError:
        pass
print(count)
"""


@pytest.fixture
def doors(ready: Release) -> list[PodDoor]:
    """Two launches that no pod has begun."""
    secret = get(f"/api/v1/namespaces/{ready.system}/secrets/orchestrate-gateway-tokens")["data"]["driver"]
    at = {
        name: get(f"/api/v1/namespaces/{ready.system}/services/{name}")["spec"]["clusterIP"]
        for name in ("gateway-0", "relay")
    }
    settings = Kubernetes(
        gateways=(f"http://{at['gateway-0']}:8081",),
        agent_gateways=(f"{at['gateway-0']}:8080",),
        relay=f"http://{at['relay']}:8080",
    )
    run = f"tokens-{time.time_ns()}"

    async def register() -> list[PodDoor]:
        async with cluster_gateway(settings, base64.b64decode(secret).decode()) as gateway:
            made = [await gateway.register(_request(run, sample)) for sample in (1, 2)]
            return [each.door for each in made if isinstance(each.door, PodDoor)]

    return asyncio.run(register())


def _request(run: str, sample: int) -> LaunchRequest:
    return LaunchRequest(
        run=run,
        trial=TrialId("task", "agent", sample),
        launch=1,
        epoch=1,
        budgets=Budgets(),
        models={},
        prices={},
        seed=1,
        task="task",
    )


def _call(method: str, door: PodDoor, path: str, token: str) -> list[Any]:
    headers = {"Authorization": f"Bearer {token}", "X-Orchestrate-Pod": f"uid-{door.index}-{door.token[-8:]}"}
    return [method, f"{door.address}{path}", headers]


@contextmanager
def _running(namespace: str, name: str, *command: str) -> Iterator[str]:
    """Make a pod with this command, as an agent's is; gives its path."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = agent_pod(name)
    pod["spec"]["containers"][0]["command"] = ["python3", "-I", "-S", "-c", *command]
    answer = ask("POST", path, pod)
    assert answer.status == 201, answer
    try:
        yield f"{path}/{name}"
    finally:
        ask("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})


def _asked(namespace: str, name: str, calls: list[list[Any]]) -> list[Any]:
    """Ask from a pod of its own; returns statuses, or statuses and types of refusals."""
    with _running(namespace, name, ASKS, json.dumps(calls)) as path:
        until(lambda: get(path)["status"]["phase"] in {"Succeeded", "Failed"}, f"{name} is through", 120)
        said = ask("GET", f"{path}/log")
        return list(json.loads(said.message)) if said.message else [said.body]


def _from_the_node(method: str, url: str, headers: dict[str, str]) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=20) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, str(json.load(error)["error"]["type"])


def test_tokens_are_good_from_the_pod_that_has_begun_and_from_nowhere_else(
    ready: Release, doors: list[PodDoor]
) -> None:
    mine, other = doors
    begin = [
        _call("POST", mine, "/launch/prepared", mine.prepare_token),
        _call("GET", mine, "/tools", mine.agent_token),
    ]
    assert _asked(ready.trials, "owner", begin) == [200, 200]
    assert _from_the_node(*_call("GET", mine, "/tools", mine.agent_token)) == (403, "wrong_token")
    thief = [
        _call("POST", other, "/launch/prepared", other.prepare_token),
        _call("GET", other, "/tools", other.agent_token),
        _call("GET", mine, "/tools", mine.agent_token),
        _call("GET", mine, "/launch/stop", mine.token),
        _call("POST", mine, "/launch/dead", mine.token),
        _call("GET", other, "/launch/stop", other.agent_token),
    ]
    refused = [403, "wrong_token"]
    assert _asked(ready.trials, "thief", thief) == [200, 200, refused, refused, refused, refused]


def test_a_pod_that_floods_the_gateway_takes_it_from_nobody(ready: Release, doors: list[PodDoor]) -> None:
    host = doors[0].address.removeprefix("http://").partition(":")[0]
    before = _gateways(ready)
    with _running(ready.trials, "flood", FLOODS, host, "60") as flood:
        until(lambda: get(flood)["status"]["phase"] == "Running", "the flood runs")
        statuses = {_from_the_node("GET", f"{doors[1].address}/healthz", {})[0] for _ in range(50)}
        assert get(flood)["status"]["phase"] == "Running"
    assert (statuses, _gateways(ready)) == ({200}, before)


def _gateways(release: Release) -> list[tuple[str, int]]:
    """Return each gateway's pod and how often it was started again."""
    pods = release.pods(release.system, "app=gateway")
    return [
        (pod["metadata"]["uid"], each["restartCount"]) for pod in pods for each in pod["status"]["containerStatuses"]
    ]
