"""Pods that ``orchestrate doctor`` makes, or only asks the cluster about: one as a trial's, and the same with one thing forbidden."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.sandbox.kubernetes import names
from orchestrator.settings import Kubernetes

DOCTOR = "doctor"
"""Component of these pods: drivers leave them alone, and the reaper removes what a doctor that died has left."""
_SURVEY = "/opt/orchestrate/bin/survey"
"""A program of the pod image: ``sandbox/pod/survey.py``."""
THREADS = 4200
"""Above what providers set as ``podPidsLimit``."""
FILLED_MEGABYTES = 96
_ROOM = "32Mi"
_DEADLINE_SECONDS = 170
Body = dict[str, Any]


def plain_pod(table: Kubernetes, command: Sequence[str] = (_SURVEY,)) -> Body:
    """Return a pod that trials' namespaces take: restricted, without a token, of a class that policies know."""
    pod: Body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"doctor-{uuid.uuid4().hex[:10]}",
            "labels": {names.MANAGED_BY: names.OURS, names.COMPONENT: DOCTOR, names.NET_CLASS: "gateway"},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["127.0.0.1"]},
            "activeDeadlineSeconds": _DEADLINE_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": names.POD_UID,
                "runAsGroup": names.POD_UID,
                "fsGroup": names.POD_UID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container(DOCTOR, table.pod_image or "", command)],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": _ROOM}}],
        },
    }
    return _placed(pod, table)


def container(name: str, image: str, command: Sequence[str]) -> Body:
    """Return a hardened container."""
    return {
        "name": name,
        "image": image,
        "command": list(command),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "32Mi"},
            "limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "1Gi"},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }


def _placed(pod: Body, table: Kubernetes) -> Body:
    """Place a pod where trials' pods go."""
    spec = pod["spec"]
    if table.node_selector:
        spec["nodeSelector"] = dict(table.node_selector)
    if table.tolerations:
        spec["tolerations"] = [each.model_dump(exclude_none=True) for each in table.tolerations]
    if table.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in table.pull_secrets]
    if table.priority_class:
        spec["priorityClassName"] = table.priority_class
    return pod


def looking_pod(table: Kubernetes, targets: Sequence[str]) -> Body:
    """Return the pod that looks around; a container beside it shows whether the image of tasks can be had, not whether it runs."""
    asked = json.dumps({"targets": list(targets), "threads": THREADS})
    pod = plain_pod(table, (_SURVEY, "look", asked))
    if table.task_image:
        pod["spec"]["containers"].append(
            container("task", table.task_image, ["/no-such-program-of-orchestrate-doctor"])
        )
    return pod


def filling_pod(table: Kubernetes) -> Body:
    """Return the pod that writes more into a volume than it may hold."""
    return plain_pod(table, (_SURVEY, "fill", "/scratch", str(FILLED_MEGABYTES)))


Change = Callable[[Body], None]


def forbidden(table: Kubernetes) -> list[tuple[str, Body]]:
    """Return pods that nobody may make in trials' namespaces, each with what is wrong with it."""
    plain = plain_pod(table)
    secret = {"name": "s", "secret": {"secretName": "s"}}
    from_secret = {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "s"}}}
    changes: list[tuple[str, Change]] = [
        ("no network class", lambda pod: pod["metadata"]["labels"].pop(names.NET_CLASS)),
        ("the node's network", lambda pod: pod["spec"].update(hostNetwork=True)),
        ("a shared process namespace", lambda pod: pod["spec"].update(shareProcessNamespace=True)),
        ("a service account's token", lambda pod: pod["spec"].update(automountServiceAccountToken=True)),
        ("a Secret as a volume", lambda pod: pod["spec"]["volumes"].append(secret)),
        ("a Secret as a variable", lambda pod: pod["spec"]["containers"][0].update(env=[from_secret])),
        ("a node of its choice", lambda pod: pod["spec"].update(nodeName="node")),
        ("a foreign image", lambda pod: pod["spec"]["containers"][0].update(image="foreign.invalid/image:1")),
    ]
    return [(what, _changed(plain, change)) for what, change in changes]


def privileged(table: Kubernetes) -> Body:
    """Return a pod that Pod Security must refuse."""

    def change(pod: Body) -> None:
        pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}

    return _changed(plain_pod(table), change)


def _changed(plain: Body, change: Change) -> Body:
    pod = copy.deepcopy(plain)
    change(pod)
    return pod
