"""The chart as Helm renders it, without a cluster."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

CHART = Path(__file__).parents[2] / "charts" / "orchestrate"
SYSTEM = "orchestrate-system"
CONTROL = "registry.example/orchestrate-control@sha256:" + "c" * 64
POD = "registry.example/orchestrate-pod:1"

NEEDED: dict[str, Any] = {
    "images": {"control": CONTROL, "pod": POD},
    "store": {"url": "s3://bucket/prefix"},
    "apiServer": {"cidrs": ["198.18.0.1/32"]},
}
"""The least that has to be said."""

FULL: dict[str, Any] = {
    "images": {
        "control": CONTROL,
        "pod": POD,
        "task": "registry.example:5000/python:3.12",
        "prefixes": ["registry.example/tasks/"],
        "pullSecrets": ["pull"],
    },
    "namespaces": {"trials": {"shards": 2}, "trialsRoot": {"enabled": True, "runtimeClasses": ["gvisor"]}},
    "teams": [
        {
            "name": "search",
            "submitters": [{"kind": "Group", "name": "search", "apiGroup": "rbac.authorization.k8s.io"}],
        },
        {"name": "ads", "namespace": "ads-eval"},
    ],
    "store": {
        "bundled": {
            "enabled": True,
            "storage": {"type": "hostPath", "size": "5Gi", "path": "/srv/store", "node": "node-1"},
        }
    },
    "apiServer": {"cidrs": ["198.18.0.1/32", "198.18.0.2/32"], "port": 6443},
    "network": {"denied": ["203.0.113.1:443"]},
    "nodeSelector": {"pool": "services"},
    "tolerations": [{"key": "services", "operator": "Exists"}],
    "gateway": {
        "replicas": 3,
        "providers": {
            "openai": {"baseUrl": "https://api.openai.com/v1", "key": {"secret": "models", "key": "openai"}},
            "own_one": {
                "baseUrl": "http://llm.example:8000/v1",
                "headers": {"secret": "models", "key": "headers"},
                "timeoutSeconds": 60,
                "concurrency": 8,
                "query": {"api-version": "2024-10-21"},
                "endpoints": ["chat", "messages"],
            },
        },
        "limits": {"calls": 8},
        "storage": {"type": "hostPath", "size": "5Gi", "path": "/srv/gateways"},
    },
    "driver": {"settings": '[prices."openai/x"]\ninput = 1.0\noutput = 2.0\n'},
    "trials": {
        "runtimeClasses": {"gvisor": "gvisor", "vm": "kata"},
        "nodeSelector": {"pool": "agents"},
        "tolerations": [{"key": "agents", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
        "topologySpread": "kubernetes.io/hostname",
        "pullSecrets": ["pull"],
        "queue": "evals",
        "schedulerName": "volcano",
    },
    "admission": {"priorityClasses": ["low"]},
    "limitRange": {"max": {"memory": "8Gi"}},
}
"""Every value that adds something."""

MERGED: dict[str, Any] = {
    **NEEDED,
    "namespaces": {
        "create": False,
        "grader": SYSTEM,
        "grading": "eval-agents",
        "trials": {"names": ["eval-agents"]},
    },
    "teams": [{"name": "ours", "namespace": "eval-drivers"}],
    "admission": {"create": False},
    "priorityClasses": {"create": False},
}
"""The three namespaces of an admin."""

KINDS = {"needed": NEEDED, "full": FULL, "merged": MERGED}


@functools.cache
def helm() -> str:
    """The program, or a skip that says what is missing."""
    found = shutil.which("helm")
    if found is None:
        pytest.skip("helm is not on the PATH: the chart cannot be rendered")
    return found


def run_helm(values: dict[str, Any], *arguments: str, namespace: str = SYSTEM) -> subprocess.CompletedProcess[str]:
    """Render with these values, which go in as JSON, which is YAML."""
    return subprocess.run(
        [helm(), "template", "orchestrate", str(CHART), "--namespace", namespace, "--values", "-", *arguments],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )


@functools.cache
def _rendered(values: str, arguments: tuple[str, ...]) -> str:
    done = run_helm(json.loads(values), *arguments)
    assert done.returncode == 0, done.stderr
    return json.dumps([each for each in YAML(typ="safe", pure=False).load_all(done.stdout) if each])


def render(values: dict[str, Any], *arguments: str) -> list[dict[str, Any]]:
    """Return all objects, each time as fresh ones."""
    return json.loads(_rendered(json.dumps(values), arguments))


def of(
    objects: list[dict[str, Any]], kind: str, name: str | None = None, namespace: str | None = None
) -> list[dict[str, Any]]:
    """Return the objects of a kind, by name and namespace where given."""
    return [
        each
        for each in objects
        if each["kind"] == kind
        and name in (None, each["metadata"]["name"])
        and namespace in (None, each["metadata"].get("namespace"))
    ]


def only(
    objects: list[dict[str, Any]], kind: str, name: str | None = None, namespace: str | None = None
) -> dict[str, Any]:
    """Return the one object of that kind and name."""
    (found,) = of(objects, kind, name, namespace)
    return found


def jobs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the drivers' Jobs, which lie in ConfigMaps as text."""
    texts = [each["data"]["job.yaml"] for each in of(objects, "ConfigMap", "orchestrate-driver")]
    return [YAML(typ="safe").load(text) for text in texts]


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the pod specification of everything that makes pods, by kind and name."""
    found = {}
    for each in [*objects, *jobs(objects)]:
        spec = each if each["kind"] == "Pod" else each.get("spec", {}).get("template")
        if spec:
            found[f"{each['kind']} {each['metadata']['namespace']}/{each['metadata']['name']}"] = spec["spec"]
    return found


def namespaces(objects: list[dict[str, Any]]) -> set[str]:
    """Return every namespace that something of the release is in."""
    return {each["metadata"]["namespace"] for each in objects if "namespace" in each["metadata"]}
