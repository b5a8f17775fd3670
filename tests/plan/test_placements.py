"""Agents that come in an image are refused where a backend cannot have them so, with a way out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.plan.refuse import refusals
from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend
from orchestrator.sandbox.kubernetes.backend import KubernetesBackend
from orchestrator.settings import Kubernetes
from orchestrator.spec.agent import Agent

PINNED = "registry.example/agent@sha256:" + "1" * 64
HERE = "sha256:" + "1" * 64
CLUSTER = KubernetesBackend(Kubernetes(task_image="registry.example/task:1"))
MOUNTING = KubernetesBackend(Kubernetes(task_image="registry.example/task:1", image_volumes=True))


def told(backend: Any, placement: str, image: str = PINNED) -> list[str]:
    fields = {"type": "command", "command": ["/run"], "placement": placement, "image": image}
    return refusals([], [("a", Agent.model_validate_json(json.dumps(fields)))], backend, lambda _agent: [])


@pytest.mark.parametrize(
    ("backend", "placement", "image", "says"),
    [
        (BubblewrapBackend(), "own", PINNED, "use --backend container or kubernetes"),
        (BubblewrapBackend(), "mounted", PINNED, "use --backend kubernetes, or 'bundle' in place of 'image'"),
        (CLUSTER, "mounted", PINNED, "have trials.imageVolumes set in the chart (kubernetes.image_volumes)"),
        (CLUSTER, "own", HERE, "it is known on one machine only"),
        (MOUNTING, "mounted", HERE, "it is known on one machine only"),
    ],
)
def test_what_cannot_be_had_is_refused(backend: Any, placement: str, image: str, says: str) -> None:
    [found] = told(backend, placement, image)
    assert found.startswith("agent a: ")
    assert says in found


def test_what_can_be_had_is_not() -> None:
    assert told(CLUSTER, "own") == []
    assert told(MOUNTING, "mounted") == []
