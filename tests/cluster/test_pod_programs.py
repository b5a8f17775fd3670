"""prepare, supervisor and freezer in real pods under Pod Security ``restricted``, whatever ends the pod.

Gateway and relay are played by this process, which runs beside the cluster (on its node), so that pods reach it at the node's address.
"""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from installed_world import image, need_a_cluster

sys.path.insert(0, str(Path(__file__).parent.parent / "pod"))

from pod_double import TOKEN, Double

from orchestrator.gateway.wire import FreezeReport
from orchestrator.interfaces import BundledInput, BundleRef, PodDoor, SandboxLimits, SandboxSpec
from orchestrator.records.state import Entry
from orchestrator.sandbox.kubernetes.names import POD_UID
from orchestrator.sandbox.kubernetes.render import Owner, render
from orchestrator.settings import Kubernetes
from orchestrator.settings.kubernetes import RuntimeClasses
from orchestrator.spec.bundle import Bundle, Item

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NODE = "198.18.0.1"
BUNDLE = Bundle.of(
    [
        Item("task/instruction.md", data=b"do it\n"),
        Item("workspace/kept", data=b"kept"),
        Item("workspace/changed", data=b"old"),
        Item("workspace/dir/removed", data=b"gone"),
    ]
)
CHANGE = "echo new > changed; rm dir/removed; mkdir made; echo before; "
WORDS = {
    "workspace/changed": "changed",
    "workspace/dir": "pristine",
    "workspace/dir/removed": "removed",
    "workspace/kept": "pristine",
    "workspace/made": "added",
}


def kubectl(*words: str, given: Any = None, check: bool = True) -> str:
    text = None if given is None else json.dumps(given)
    done = subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True, check=False, timeout=60)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if done.returncode == 0 else ""


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A namespace like the chart's: restricted, closed but for one port of the node."""
    need_a_cluster()
    for each in ("pod", "control"):
        image(each)
    name = f"pod-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl(
        "create",
        "-f",
        "-",
        given={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
    )
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


class Cluster:
    """The namespace, its one open port, and gateway and relay behind it."""

    def __init__(self, namespace: str, double: Double, port: int) -> None:
        self.namespace, self.double, self.port = namespace, double, port
        self.isolation: Literal["container", "gvisor"] = "container"

    def spec(self, script: str, **limits: Any) -> SandboxSpec:
        address = f"http://{NODE}:{self.port}"
        door = PodDoor(
            address=address, relay=address, index=0, instance="i", agent_token="agent", prepare_token=TOKEN, token=TOKEN
        )
        digest = self.double.add(BUNDLE)
        fields = {
            "cpu": 1,
            "memory_bytes": 64 << 20,
            "disk_bytes": 64 << 20,
            "processes": 64,
            "wall_seconds": 100,
        } | limits
        return SandboxSpec(
            name=uuid.uuid4().hex[:24],
            command=("sh", "-c", script),
            limits=SandboxLimits(**fields),
            isolation=self.isolation,
            bundled=tuple(
                BundledInput(
                    bundle=BundleRef(audience="sandbox", digest=digest, folder=folder), target=target, writable=writable
                )
                for folder, target, writable in (("workspace", "/workspace", True), ("task", "/task", False))
            ),
            door=door,
        )

    def start(self, script: str, *, change: Any = None, **limits: Any) -> RealPod:
        settings = Kubernetes(
            pod_image=image("pod"),
            task_image=image("control"),
            cpu_request_share=0.02,
            freeze_seconds=30,
            runtime_classes=RuntimeClasses(gvisor="gvisor"),
        )
        pod = render(self.spec(script, **limits), Owner(run="r", epoch=1), settings)
        if change is not None:
            change(pod["spec"])
        kubectl("-n", self.namespace, "create", "-f", "-", given=pod)
        return RealPod(self, pod["metadata"]["name"])


class RealPod:
    """A pod by name."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def read(self) -> dict[str, Any]:
        text = kubectl("-n", self.cluster.namespace, "get", "pod", self.name, "-o", "json", check=False)
        return json.loads(text) if text else {}

    def terminated(self, container: str) -> dict[str, Any] | None:
        status = self.read().get("status", {})
        for each in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
            if each["name"] == container:
                return each["state"].get("terminated")
        return None

    def ended(self, container: str) -> dict[str, Any]:
        return until(lambda: self.terminated(container))


def until(condition: Any, seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.fixture
def cluster(namespace: str) -> Iterator[Cluster]:
    with Double("0.0.0.0") as double, socket.create_server(("0.0.0.0", 0)) as canary:
        port = int(double.address.rpartition(":")[2])
        double.canaries = [f"{NODE}:{canary.getsockname()[1]}"]
        policy = {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": f"{NODE}/32"}}], "ports": [{"protocol": "TCP", "port": port}]}],
        }
        kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"}}
        kubectl("-n", namespace, "apply", "-f", "-", given=kind | {"spec": policy})
        time.sleep(1)  # policies are programmed by watch
        yield Cluster(namespace, double, port)
        kubectl("-n", namespace, "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")


def delivered(cluster: Cluster, seconds: float = 60) -> FreezeReport:
    until(lambda: cluster.double.reports, seconds)
    return FreezeReport.model_validate_json(json.dumps(cluster.double.reports[0]))


def origins(cluster: Cluster) -> dict[str | None, str]:
    found = [Entry.model_validate_json(line) for line in cluster.double.parts["entries"].splitlines()]
    return {entry.path: entry.origin for entry in found}


def begun(cluster: Cluster, pod: RealPod) -> None:
    """Wait until the agent has printed something, by the marker that it leaves."""
    until(lambda: cluster.double.count("GET /launch/stop?started=1") > 0)
    time.sleep(0.5)
    assert pod.terminated("agent") is None


def test_a_life_in_order(cluster: Cluster) -> None:
    pod = cluster.start(CHANGE + "cat /task/instruction.md; id -u; exit 3")
    agent = pod.ended("agent")
    assert agent["exitCode"] == 3
    assert json.loads(agent["message"])["cause"] == "exited"
    cluster.double.tell(sealed=True)
    assert pod.ended("freezer")["exitCode"] == 0
    report = delivered(cluster)
    assert report.exit is not None
    assert report.exit.code == 3
    assert origins(cluster) == WORDS
    assert cluster.double.parts["output"] == b"before\ndo it\n%d\n" % POD_UID
    with tarfile.open(fileobj=io.BytesIO(cluster.double.parts["changes"])) as tar:
        assert tar.extractfile("workspace/changed").read() == b"new\n"  # type: ignore[union-attr]


def test_prepare_is_refused_where_the_network_is_open(cluster: Cluster) -> None:
    kubectl("-n", cluster.namespace, "delete", "networkpolicy", "closed")
    time.sleep(1)
    ended = cluster.start("true").ended("prepare")
    assert ended["exitCode"] == 41
    assert json.loads(ended["message"])["cause"] == "policy_not_enforced"
    assert cluster.double.begun == []


@pytest.mark.parametrize("how", ["delete", "evict"])
def test_a_pod_that_is_ended_delivers(cluster: Cluster, how: str) -> None:
    pod = cluster.start(CHANGE + "trap '' TERM; sleep 1000")
    begun(cluster, pod)
    asked = time.monotonic()
    if how == "delete":
        kubectl("-n", cluster.namespace, "delete", "pod", pod.name, "--wait=false")
    else:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": cluster.namespace},
        }
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod.name}/eviction"
        kubectl("create", "--raw", path, "-f", "-", given=eviction)
    report = delivered(cluster)
    print(f"{how}: delivered after {time.monotonic() - asked:.2f} s")
    assert report.interrupted
    assert origins(cluster) == WORDS
    assert cluster.double.dead == 1


def test_the_pods_own_deadline(cluster: Cluster) -> None:
    pod = cluster.start(CHANGE + "sleep 1000", change=lambda spec: spec.update(activeDeadlineSeconds=8))
    report = delivered(cluster)
    assert report.interrupted
    assert origins(cluster) == WORDS
    assert until(lambda: pod.read()["status"].get("reason")) == "DeadlineExceeded"


def test_the_hard_deadline(cluster: Cluster) -> None:
    pod = cluster.start(CHANGE + "sleep 1000", wall_seconds=2)
    assert pod.ended("agent")["exitCode"] == 124


def test_an_operators_stop(cluster: Cluster) -> None:
    pod = cluster.start(CHANGE + "trap '' TERM; sleep 1000")
    begun(cluster, pod)
    cluster.double.tell(stopped="cancelled")
    assert pod.ended("agent")["exitCode"] == 125
    cluster.double.tell(sealed=True)
    assert delivered(cluster).interrupted is False


def test_a_child_that_is_killed_for_memory(cluster: Cluster) -> None:
    hog = "python3 -c 'x = bytearray(500 << 20)'"
    pod = cluster.start(CHANGE + f"{hog}; echo survived; sleep 1000")
    agent = pod.ended("agent")
    print(agent)
    assert agent["exitCode"] in (122, 137)  # 137: where a control group dies as a whole
    cluster.double.tell(sealed=True)
    assert delivered(cluster).lost is None
    assert origins(cluster) == WORDS


def test_a_workspace_that_overflows_ends_before_its_pod_is_evicted(cluster: Cluster) -> None:
    pod = cluster.start(CHANGE + "dd if=/dev/zero of=big bs=1M count=300 2>/dev/null; sleep 1000")
    assert pod.ended("agent")["exitCode"] == 119
    cluster.double.tell(sealed=True)
    report = delivered(cluster, 150)
    print(report.findings, report.disk_bytes)
    assert (report.over_disk, report.interrupted) == (True, False)
    assert (report.disk_bytes or 0) > 64 << 20
    assert origins(cluster) == WORDS | {"workspace/big": "added"}


ATTACKS = """
import ctypes, os, time
libc = ctypes.CDLL(None)
for n in [*range(1, 32), *range(34, 65)]: assert libc.kill(1, n) == -1
assert libc.prlimit(1, 0, bytes(16), None) == -1 and libc.syscall(56, 0x8000 | 19, 0, 0, 0, 0) == -1
assert libc.ptrace(16, 1, 0, 0) == -1
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0"):
    try: open(path, "rb").read(1); os._exit(9)
    except OSError: pass
for path in ("/ctl/stop", "/ctl/alive", "/task/instruction.md", "/etc/x", "/opt/x"):
    try: open(path, "w"); os._exit(8)
    except OSError: pass
print("held", flush=True)
time.sleep(1000)
"""


def test_an_agent_against_its_supervisor(cluster: Cluster) -> None:
    pod = cluster.start(f"python3 -c '{ATTACKS}'")
    begun(cluster, pod)
    time.sleep(1)
    cluster.double.tell(stopped="cancelled")
    assert pod.ended("agent")["exitCode"] == 125
    cluster.double.tell(sealed=True)
    delivered(cluster)
    assert cluster.double.parts["output"] == b"held\n"


def test_many_files_in_a_small_freezer(cluster: Cluster) -> None:
    def small(spec: dict[str, Any]) -> None:
        (freezer,) = (each for each in spec["containers"] if each["name"] == "freezer")
        for each in freezer["resources"].values():
            each["memory"] = "32Mi"

    make = 'import os\nfor n in range(20000): os.makedirs(f"many{n % 50}", exist_ok=True); open(f"many{n % 50}/{n}", "w").write(str(n))'
    pod = cluster.start(f"python3 -c '{make}'", change=small, disk_bytes=512 << 20)
    assert pod.ended("agent")["exitCode"] == 0
    cluster.double.tell(sealed=True)
    assert pod.ended("freezer")["exitCode"] == 0
    assert delivered(cluster).lost is None
    assert len(origins(cluster)) == 20000 + 50 + 4


@pytest.fixture
def gvisor(cluster: Cluster) -> Cluster:
    """The cluster, where it has gVisor and its pods run under it."""
    if "runtimeclass.node.k8s.io/gvisor" not in kubectl("get", "runtimeclass", "-o", "name"):
        pytest.skip("the cluster has no RuntimeClass gvisor")
    cluster.isolation = "gvisor"
    return cluster


def test_a_life_under_gvisor(gvisor: Cluster) -> None:
    pod = gvisor.start("sleep 4; " + CHANGE + "ls /proc/self/fd | wc -l; exit 3", memory_bytes=256 << 20)
    assert pod.ended("agent")["exitCode"] == 3
    gvisor.double.tell(sealed=True)
    assert pod.ended("freezer")["exitCode"] == 0
    assert delivered(gvisor).findings == ()
    assert origins(gvisor) == WORDS


def test_an_end_under_gvisor(gvisor: Cluster) -> None:
    pod = gvisor.start(CHANGE + "trap '' TERM; sleep 1000", memory_bytes=256 << 20)
    begun(gvisor, pod)
    time.sleep(2)  # longer than a freezer needs that takes a living agent for dead
    assert not gvisor.double.reports
    kubectl("-n", gvisor.namespace, "delete", "pod", pod.name, "--wait=false")
    assert delivered(gvisor).interrupted
    assert origins(gvisor) == WORDS


def test_under_gvisor_an_agent_against_its_supervisor(gvisor: Cluster) -> None:
    pod = gvisor.start(f"python3 -c '{ATTACKS}'", memory_bytes=256 << 20)
    begun(gvisor, pod)
    gvisor.double.tell(stopped="cancelled")
    assert pod.ended("agent")["exitCode"] == 125
    gvisor.double.tell(sealed=True)
    assert delivered(gvisor).interrupted is False
    assert gvisor.double.parts["output"] == b"held\n"
