"""What agents' pods reach, tried by pods from their first moment on, and what happens when the walls are gone."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import probe
import pytest
from installed_world import Release, agent_pod, ask, get, image, until

from orchestrator.interfaces import LaunchRequest, PodDoor, SandboxLimits, SandboxSpec
from orchestrator.records.ids import TrialId
from orchestrator.sandbox.kubernetes.render import Owner, render
from orchestrator.settings import Kubernetes
from orchestrator.spec.task import Budgets
from orchestrator.wiring import cluster_gateway

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

Targets = dict[str, tuple[str, int]]
METADATA = ("169.254.169.254", 80)
PROGRAM = Path(probe.__file__).read_text()


def _service(namespace: str, name: str) -> str:
    return str(get(f"/api/v1/namespaces/{namespace}/services/{name}")["spec"]["clusterIP"])


def _pod_ip(namespace: str, selector: str) -> str:
    (first, *_) = get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
    return str(first["status"]["podIP"])


def _node() -> str:
    (first, *_) = get("/api/v1/nodes")["items"]
    return next(str(each["address"]) for each in first["status"]["addresses"] if each["type"] == "InternalIP")


def _api_server() -> tuple[str, int]:
    endpoints = get("/api/v1/namespaces/default/endpoints/kubernetes")["subsets"][0]
    return str(endpoints["addresses"][0]["ip"]), int(endpoints["ports"][0]["port"])


@pytest.fixture(scope="module")
def other_agent(installed: Release) -> Iterator[str]:
    """The address of another agent's pod, which listens on 9000."""
    path = f"/api/v1/namespaces/{installed.trials}/pods"
    pod = agent_pod("other")
    pod["spec"]["containers"][0].update(image=image("pod"), command=["/opt/orchestrate/bin/canary"])
    assert ask("POST", path, pod).status == 201
    yield until(lambda: _address_of(f"{path}/other"), "the other agent runs")
    ask("DELETE", f"{path}/other", {"gracePeriodSeconds": 0})


def _address_of(path: str) -> str | None:
    status = get(path)["status"]
    return str(status["podIP"]) if status["phase"] == "Running" else None


@pytest.fixture(scope="module")
def denied(installed: Release, other_agent: str) -> Targets:
    """Everything that no agent may reach, by name. All of it listens, but for the metadata address, which this cluster has not."""
    installed.await_ready()
    system, grader = installed.system, installed.grader
    return {
        "API server": _api_server(),
        "API server's service": (_service("default", "kubernetes"), 443),
        "kubelet": (_node(), 10250),
        "metadata": METADATA,
        "name service": (_service("kube-system", "kube-dns"), 53),
        "name server": (_pod_ip("kube-system", "k8s-app=kube-dns"), 53),
        "another agent": (other_agent, 9000),
        "canary-a": (_service(system, "canary-a"), 9000),
        "canary-b": (_service(system, "canary-b"), 9000),
        "canary's pod": (_pod_ip(system, "app=canary,canary=a"), 9000),
        "store": (_service(system, "store"), 8333),
        "store's pod": (_pod_ip(system, "app=store"), 8333),
        "grader": (_service(grader, "grader"), 8080),
        "grader's port for grading": (_service(grader, "grader"), 8090),
        "grader's pod": (_pod_ip(grader, "app=grader"), 8080),
        "gateway's admin port": (_service(system, "gateway-0"), 8081),
        "gateway's admin port, at the pod": (_pod_ip(system, "app=gateway"), 8081),
    }


@pytest.fixture(scope="module")
def open_to_agents(installed: Release, denied: Targets) -> Targets:
    """What agents are there to reach."""
    return {
        "gateway": (_service(installed.system, "gateway-0"), 8080),
        "relay": (_service(installed.system, "relay"), 8080),
    }


def _silent(targets: Targets) -> list[str]:
    """Return which of them do not listen. This process is on the node, which no policy binds."""
    found = []
    for name, where in targets.items():
        if where != METADATA:
            try:
                socket.create_connection(where, timeout=3).close()
            except OSError:
                found.append(name)
    return found


def _order(targets: Targets, rounds: int) -> str:
    names = {name: where for name, where in targets.items() if where[1] == 53}
    udp = {f"{name} by UDP": where for name, where in names.items()}
    return json.dumps({"rounds": rounds, "seconds": 0.3, "tcp": targets, "udp": udp})


def _probing(name: str, targets: Targets, rounds: int, labels: dict[str, str]) -> dict[str, Any]:
    pod = agent_pod(name)
    pod["metadata"]["labels"].update(labels)
    command = ["python3", "-I", "-S", "-c", PROGRAM, _order(targets, rounds)]
    pod["spec"]["containers"][0]["command"] = command
    return pod


def _counts(namespace: str, pods: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Make these pods at once, and return the sums of what they print."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    sums: dict[str, list[int]] = {}
    names = [pod["metadata"]["name"] for pod in pods]
    try:
        for pod in pods:
            answer = ask("POST", path, pod)
            assert answer.status == 201, answer
        for name in names:
            until(lambda name=name: get(f"{path}/{name}")["status"]["phase"] == "Succeeded", f"{name} is through", 120)
            printed = ask("GET", f"{path}/{name}/log").body
            for target, counts in printed.items():
                sums[target] = [a + b for a, b in zip(sums.get(target, [0, 0, 0]), counts, strict=True)]
    finally:
        for name in names:
            ask("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
    return sums


@pytest.mark.parametrize("net_class", ["gateway", "none"])
def test_a_thousand_tries_of_agents_meet_nothing(
    installed: Release, denied: Targets, open_to_agents: Targets, net_class: str
) -> None:
    assert not _silent({**denied, **open_to_agents})
    pods = [
        _probing(f"probe-{n}", {**denied, **open_to_agents}, 10, {"orchestrate/net-class": net_class}) for n in range(6)
    ]
    counts = _counts(installed.trials, pods)
    assert not _silent({**denied, **open_to_agents})
    allowed = {name: counts.pop(name) for name in open_to_agents}
    assert sum(tries for tries, _, _ in counts.values()) >= 1000
    assert {name: found for name, found in counts.items() if found[1] or found[2]} == {}
    if net_class == "gateway":
        # Whoever tries so well meets what is open, though a busy node makes some wait for longer than a round.
        assert all(3 * successes > tries for tries, successes, _ in allowed.values()), allowed
    else:
        assert all(found[1:] == [0, 0] for found in allowed.values()), allowed


def test_hidden_tests_reach_one_port_of_the_grader(
    installed: Release, denied: Targets, open_to_agents: Targets
) -> None:
    labels = {"orchestrate/net-class": "none", "app.kubernetes.io/component": "grading"}
    counts = _counts(installed.grading, [_probing("probe", {**denied, **open_to_agents}, 5, labels)])
    tries, successes, _ = counts.pop("grader's port for grading")
    assert 0 < successes <= tries
    assert {name: found for name, found in counts.items() if found[1] or found[2]} == {}


def test_drivers_reach_what_they_need_and_no_agent(
    installed: Release, denied: Targets, open_to_agents: Targets
) -> None:
    """Also proves that what the others did not reach can be reached."""
    counts = _counts(installed.drivers, [_probing("probe", {**denied, **open_to_agents}, 10, {})])
    assert {name for name, found in counts.items() if found[1]} == {
        "API server",
        "API server's service",
        "name service",
        "name service by UDP",
        "name server",
        "name server by UDP",
        "store",
        "store's pod",
        "grader",
        "grader's pod",
        "gateway's admin port",
        "gateway's admin port, at the pod",
    }


def _token(installed: Release) -> str:
    data = get(f"/api/v1/namespaces/{installed.drivers}/secrets/orchestrate-driver-tokens")["data"]
    return base64.b64decode(data["gateway"]).decode()


def _settings(installed: Release) -> Kubernetes:
    system = installed.system
    return Kubernetes(
        namespaces=(installed.trials,),
        pod_image=image("pod"),
        task_image=image("pod"),
        gateways=(f"http://gateway-0.{system}.svc:8081",),
        agent_gateways=(f"gateway-0.{system}.svc:8080",),
        relay=f"http://relay.{system}.svc:8080",
        denied=(":".join(map(str, _api_server())),),
        cpu_request_share=0.02,
        pull_seconds=60,
        absence_seconds=60,
    )


def _launched(installed: Release, launch: int) -> dict[str, Any]:
    """Register a launch with the real gateway and return the pod that a driver makes of it."""

    async def register() -> dict[str, Any]:
        settings = _settings(installed)
        async with cluster_gateway(settings, _token(installed)) as gateway:
            made = await gateway.register(
                LaunchRequest(
                    run=f"walls-{installed.prefix}",
                    trial=TrialId("walls", "nop", 1),
                    launch=launch,
                    epoch=1,
                    budgets=Budgets(),
                    models={},
                    prices={},
                    seed=1,
                    task="walls",
                )
            )
        assert isinstance(made.door, PodDoor)
        limits = SandboxLimits(cpu=0.5, memory_bytes=64 << 20, disk_bytes=8 << 20, processes=64, wall_seconds=60)
        spec = SandboxSpec(
            name=made.launch, command=("true",), limits=limits, door=made.door, sink=made.sink, notes={"trial": "walls"}
        )
        return render(spec, Owner(run=f"walls-{installed.prefix}", epoch=1), settings)

    return asyncio.run(register())


def _prepared(installed: Release, launch: int) -> tuple[int, dict[str, Any]]:
    """Return how ``prepare`` ended, and what it said."""
    pod = _launched(installed, launch)
    path = f"/api/v1/namespaces/{installed.trials}/pods"
    answer = ask("POST", path, pod, user=installed.account("driver"))
    assert answer.status == 201, answer
    here = f"{path}/{pod['metadata']['name']}"
    try:
        ended = until(lambda: _ending(here), "prepare has ended", 60)
    finally:
        ask("DELETE", here, {"gracePeriodSeconds": 0})
    said = ended.get("message") or "{}"
    return int(ended["exitCode"]), json.loads(said)


def _ending(path: str) -> dict[str, Any] | None:
    for each in get(path)["status"].get("initContainerStatuses", []):
        found = each["state"].get("terminated")
        if found:
            return dict(found)
    return None


def _policies(installed: Release) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/{installed.trials}/networkpolicies"


@contextmanager
def _opened(installed: Release) -> Iterator[None]:
    """Somebody adds a policy that allows everything: policies only ever add up."""
    body = {
        "metadata": {"name": "somebody-else-s"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}]},
    }
    assert ask("POST", _policies(installed), body).status == 201
    try:
        yield
    finally:
        ask("DELETE", f"{_policies(installed)}/somebody-else-s")


@contextmanager
def _deleted(installed: Release) -> Iterator[None]:
    """Somebody deletes every policy of the namespace. An upgrade brings them back."""
    kept = get(_policies(installed))["items"]
    assert ask("DELETE", _policies(installed)).status == 200
    try:
        yield
    finally:
        for policy in kept:
            for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
                policy["metadata"].pop(field, None)
            assert ask("POST", _policies(installed), policy).status == 201


def test_a_pod_is_prepared_behind_walls(ready: Release) -> None:
    code, said = _prepared(ready, 1)
    assert code == 0, said


@pytest.mark.parametrize(
    ("without", "launch"), [(_opened, 10), (_deleted, 20)], ids=["allow-all added", "policies deleted"]
)
def test_no_trial_starts_without_walls(ready: Release, without: Any, launch: int) -> None:
    with without(ready):
        met = [_prepared(ready, launch + n) for n in range(5)]
    assert [(code, said["cause"]) for code, said in met] == [(41, "policy_not_enforced")] * 5
    code, said = until(lambda: (got := _prepared(ready, launch + 9)) and got[0] == 0 and got, "the walls are back", 60)
    assert code == 0, said


AGENTS = "/apis/apps/v1/namespaces/kube-system/daemonsets/policy-agent"


@contextmanager
def _without_enforcement() -> Iterator[None]:
    """Nobody enforces policies on new pods, for a while."""

    def select(node: str | None) -> None:
        patch = {"spec": {"template": {"spec": {"nodeSelector": {"no-such-node": node}}}}}
        assert ask("PATCH", AGENTS, patch, kind="application/merge-patch+json").status == 200

    select("anywhere")
    try:
        until(lambda: get(AGENTS)["status"]["currentNumberScheduled"] == 0, "no node has its agent", 60)
        until(
            lambda: not get("/api/v1/namespaces/kube-system/pods?labelSelector=app=policy-agent")["items"],
            "none runs",
            60,
        )
        yield
    finally:
        select(None)
        until(lambda: get(AGENTS)["status"].get("numberReady"), "policies are enforced again", 120)


@pytest.mark.slow
def test_no_agent_starts_while_nobody_enforces_policies(ready: Release) -> None:
    if ask("GET", AGENTS).status != 200:
        pytest.skip("how this cluster enforces policies is not known here")
    path = f"/api/v1/namespaces/{ready.trials}/pods"
    pod = _launched(ready, 50)
    here = f"{path}/{pod['metadata']['name']}"
    with _without_enforcement():
        assert ask("POST", path, pod, user=ready.account("driver")).status == 201
        time.sleep(15)  # far longer than a pod needs
        status = get(here)["status"]
        met = _ending(here)
    try:
        states = [each["state"] for each in status.get("containerStatuses", [])]
        assert not [each for each in states if "running" in each or "terminated" in each], status
        assert met is None or json.loads(met["message"])["cause"] in ("policy_not_enforced", "gateway_unreachable")
        ended = until(lambda: _ending(here), "prepare ends once policies are enforced again", 60)
        assert ended["exitCode"] == 0, ended
    finally:
        ask("DELETE", here, {"gracePeriodSeconds": 0})
