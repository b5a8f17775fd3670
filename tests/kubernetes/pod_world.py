"""Launches to make pods of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.interfaces import BundledInput, BundleRef, Input, PodDoor, PodSink, SandboxLimits, SandboxSpec
from orchestrator.records.ids import launch_id
from orchestrator.sandbox.kubernetes.render import Owner
from orchestrator.settings import Kubernetes

RUN = "run-1"
DIGEST = "sha256:" + "1" * 64
OWNER = Owner(run=RUN, epoch=3)
LIMITS = SandboxLimits(cpu=0.5, memory_bytes=64 << 20, disk_bytes=8 << 20, processes=64, wall_seconds=60)
SETTINGS = Kubernetes(
    namespaces=("trials-0", "trials-1"),
    pod_image="registry.example/pod@" + DIGEST,
    task_image="registry.example/task@" + DIGEST,
)


def bundled(folder: str, target: str, *, writable: bool = False) -> BundledInput:
    bundle = BundleRef(audience="sandbox", digest=DIGEST, folder=folder)
    return BundledInput(bundle=bundle, target=target, writable=writable)


def door_of(launch: str, **fields: Any) -> PodDoor:
    made = {
        "address": "http://198.18.96.7:8080",
        "relay": "http://198.18.96.8:8080",
        "index": 0,
        "instance": "gateway-a",
        "agent_token": f"agent-{launch}",
        "prepare_token": f"prepare-{launch}",
        "token": f"freezer-{launch}",
    }
    return PodDoor(**(made | fields))


def spec_of(*command: str, trial: str = "t@a:1", launch: int = 1, **fields: Any) -> SandboxSpec:
    name = launch_id(RUN, trial, launch)
    door = fields.pop("door", None) or door_of(name)
    made = {
        "name": name,
        "command": command or ("true",),
        "limits": LIMITS,
        "env": {"ORCHESTRATE_GATEWAY": door.address, "ORCHESTRATE_TOKEN": door.agent_token},
        "bundled": (
            bundled("workspace", "/workspace", writable=True),
            bundled("task", "/task"),
            bundled("memory", "/memory"),
        ),
        "door": door,
        "sink": PodSink(launch=name, token=door.token),
        "notes": {"trial": trial, "launch": str(launch)},
    }
    return SandboxSpec(**(made | fields))


def react(path: Path = Path("/usr/lib/orchestrate/react")) -> Input:
    return Input(source=path, target="/agent")
