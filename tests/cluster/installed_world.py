"""A release of the chart on a real cluster, of its own name, and the API server as anybody sees it."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import urllib3

CHART = Path(__file__).parents[2] / "charts" / "orchestrate"
SMALL = CHART / "values-small.yaml"
UNREADY = 180.0
"""Seconds that the parts may take to become ready."""


def image(name: str) -> str:
    """Return the reference of an image that was built for these tests, or skip."""
    variable = f"ORCHESTRATE_TEST_{name.upper()}_IMAGE"
    found = os.environ.get(variable)
    if not found:
        pytest.skip(f"{variable} names no image")
    return found


def need_a_cluster() -> None:
    """Skip, with the reason, unless this is meant to run on a cluster."""
    if os.environ.get("ORCHESTRATE_TEST_CLUSTER") != "1":
        pytest.skip("no cluster: set ORCHESTRATE_TEST_CLUSTER=1 and KUBECONFIG where one may be used")
    for program in ("helm", "kubectl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on the PATH")


def until(condition: Callable[[], Any], what: str, seconds: float = UNREADY) -> Any:
    """Return the first answer that is true. The cluster is asked twice a second."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"after {seconds:.0f} s still not: {what}")
        time.sleep(0.5)  # there is nothing to wait on that outlives restarts of what is waited for


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    status: int
    body: dict[str, Any]

    @property
    def message(self) -> str:
        """The Status's text."""
        return str(self.body.get("message", ""))


@functools.cache
def _pool() -> tuple[Any, str]:
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.config import load_kube_config

    configuration = Configuration()
    load_kube_config(client_configuration=configuration)
    return ApiClient(configuration).rest_client.pool_manager, configuration.host


def ask(method: str, path: str, body: Any = None, *, user: str | None = None, kind: str = "application/json") -> Answer:
    """Send one request, as a user where named; impersonated service accounts get their groups from the server."""
    pool, host = _pool()
    headers = {"Content-Type": kind, "Accept": "application/json"}
    if user is not None:
        headers["Impersonate-User"] = user
    encoded = None if body is None else json.dumps(body).encode()
    # a server that was just killed is back in a moment; what changes something is not sent twice
    retries = urllib3.Retry(total=20, backoff_factor=0.5, backoff_max=3, status=0) if method == "GET" else False
    answer = pool.request(method, host + path, body=encoded, headers=headers, timeout=60, retries=retries)
    text = answer.data.decode()
    return Answer(answer.status, json.loads(text) if text.startswith("{") else {"message": text})


def get(path: str) -> dict[str, Any]:
    """Return an object that is there."""
    answer = ask("GET", path)
    assert answer.status == 200, (path, answer)
    return answer.body


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base with values of the other laid over it."""
    found = copy.deepcopy(dict(base))
    for key, value in over.items():
        old = found.get(key)
        found[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return found


@dataclass
class Release:
    """One installation. All its namespaces and cluster-wide objects begin with its prefix."""

    prefix: str
    values: dict[str, Any]
    folder: Path | None = None
    """Folder of the node for the bundled store, where it is to survive."""
    name: str = field(default="orchestrate", init=False)

    @property
    def system(self) -> str:
        return f"{self.prefix}-system"

    @property
    def trials(self) -> str:
        return f"{self.prefix}-trials-0"

    @property
    def root(self) -> str:
        return f"{self.prefix}-trials-root"

    @property
    def grading(self) -> str:
        return f"{self.prefix}-grading"

    @property
    def grader(self) -> str:
        return f"{self.prefix}-grader"

    @property
    def drivers(self) -> str:
        return f"{self.prefix}-drivers-default"

    @property
    def namespaces(self) -> list[str]:
        return [self.system, self.grader, self.drivers, self.trials, self.root, self.grading]

    def account(self, name: str) -> str:
        """Return the user that a service account of the release is, or the person who may submit."""
        if name == "person":
            return f"{self.prefix}-person"
        where = {"grader": self.grader, "driver": self.drivers, "agent": self.trials, "grading": self.grading}
        account = name if name in ("gateway", "relay", "reaper", "grader", "driver") else "default"
        return f"system:serviceaccount:{where.get(name, self.system)}:{account}"

    def helm(self, *arguments: str, over: Mapping[str, Any] | None = None) -> str:
        """Run helm on the release; where values matter, with its own and these."""
        if not self.values:
            pytest.skip("a release that was there before is not changed")
        command = ["helm", arguments[0], self.name, "--namespace", self.system, *arguments[1:]]
        text = None
        if arguments[0] in ("install", "upgrade"):
            command[3:3] = [str(CHART)]
            command += ["--values", str(SMALL), "--values", "-"]
            text = json.dumps(merged(self.values, over or {}))
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def make_namespace(self) -> None:
        """Make the services' own namespace, as the documents say."""
        labels = {"orchestrate/role": "system", "pod-security.kubernetes.io/enforce": "restricted"}
        body = {"metadata": {"name": self.system, "labels": labels}}
        assert ask("POST", "/api/v1/namespaces", body).status == 201

    def pods(self, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the pods of a namespace."""
        return list(get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"])

    def unready(self) -> list[str]:
        """Return the pods that are not ready, with what the cluster says of them."""
        found = []
        for namespace in (self.system, self.grader):
            pods = self.pods(namespace)
            if not pods:
                found.append(f"{namespace}: none")
            for pod in pods:
                conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
                if conditions.get("Ready") != "True":
                    states = [each.get("state") for each in pod["status"].get("containerStatuses", [])]
                    found.append(f"{namespace}/{pod['metadata']['name']}: {states}")
        return found

    def await_ready(self, *, seconds: float = UNREADY) -> None:
        """Wait until every pod of the services is ready."""
        deadline = time.monotonic() + seconds
        while (unready := self.unready()) and time.monotonic() < deadline:
            time.sleep(0.5)  # pods come and go under their controllers
        assert not unready, unready

    def remove(self) -> None:
        """Remove the release and everything that it leaves on purpose."""
        subprocess.run(
            ["helm", "uninstall", self.name, "--namespace", self.system, "--ignore-not-found"],
            capture_output=True,
            check=False,
        )
        for namespace in self.namespaces:
            ask("DELETE", f"/api/v1/namespaces/{namespace}", {"propagationPolicy": "Background"})
        for volume in get("/api/v1/persistentvolumes")["items"]:
            if volume["metadata"]["name"].startswith(f"{self.system}-"):
                ask("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


def values_of(prefix: str, folder: Path) -> dict[str, Any]:
    """Return what a release of the tests says beside ``values-small.yaml``."""
    return {
        "images": {"control": image("control"), "pod": image("pod"), "prefixes": ["localhost/"]},
        "namespaces": {"prefix": prefix, "trialsRoot": {"enabled": True}},
        "gateway": {"taskEgress": {"enabled": True, "allowed": ["198.18.0.0/15"], "denied": []}},
        "teams": [{"name": "default", "submitters": [{"kind": "User", "name": f"{prefix}-person"}]}],
        "store": {
            "bundled": {
                "enabled": True,
                "image": image("store"),
                "command": "/weed",
                "storage": {"type": "hostPath", "size": "1Gi", "path": str(folder)},
            }
        },
    }


@contextlib.contextmanager
def release(prefix: str | None = None) -> Iterator[Release]:
    """Install a release of that prefix with an S3 that survives its pod; remove all of it afterwards.

    A release that ``ORCHESTRATE_TEST_RELEASE`` names is used as it is, and stays.
    """
    need_a_cluster()
    if prefix is None and (prefix := os.environ.get("ORCHESTRATE_TEST_RELEASE")):
        yield Release(prefix, {})
        return
    folder = Path(tempfile.mkdtemp(prefix="orchestrate-store-", dir="/var/tmp"))
    os.chown(folder, 64001, 64001)
    prefix = prefix or f"t{uuid.uuid4().hex[:6]}"
    made = Release(prefix, values_of(prefix, folder), folder)
    try:
        made.make_namespace()
        made.helm("install")
        yield made
    finally:
        made.remove()
        shutil.rmtree(folder, ignore_errors=True)


def agent_pod(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod as an agent's is, in what admission looks at, that sleeps. ``spec`` is laid over its specification."""
    hardened = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"orchestrate/net-class": "gateway", "app.kubernetes.io/component": "trial"},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["127.0.0.1"]},
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 64000,
                "runAsGroup": 64000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "agent",
                    "image": image("control"),
                    "command": ["sleep", "3600"],
                    "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
                    "securityContext": hardened,
                }
            ],
            **spec,
        },
    }
