"""A grading pod: pure, from pairs of sandboxes to the JSON that is sent to the API server.

Volumes are ``emptyDir``, filled by prepare:

``given-runner``, ``given-subject``  what is laid for all runners, or all subjects: read-only there, each input a folder of its own
``runner-N``, ``subject-N``          what one of them may write: workspace, output, temporary files, home
``line-N``                           the socket that joins a pair; the subject cannot write there
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader_service.checks.case import Pair
from grader_service.pod import wire
from grader_service.pod.prepare import GIVEN
from grader_service.settings import GradingPods
from orchestrator.interfaces import Input, SandboxSpec
from orchestrator.sandbox.inside import HOME
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.hardened import POD, container_security, from_annotation, pod_security

OWNER = f"{names.PREFIX}owner"
"""Label: the grader whose pod it is."""
GRADER = f"{names.PREFIX}grader"
"""Annotation: ``http://IP:PORT`` of the grader's port for grading pods."""
RUNNER_TOKEN = f"{names.PREFIX}runner-token"
"""Annotation: the runners' token."""
PREPARE_SECONDS = 120
_GRACE_SECONDS = 120
"""From the end of the tests to the delivery of their report."""
_OWN_BYTES = 48 << 20
"""Memory of our own program in a container."""
_AREAS = {"output": "/output", "tmp": "/tmp", "home": HOME}  # noqa: S108 - the pod's own
"""Folders that programs may write beside the workspace."""
_AREA_BYTES = 32 << 20
_SHARED_BYTES = 64 << 20
"""Of a container's shared memory, which counts as its memory; as much as it has without a volume."""
_LEAST_DISK = 32 << 20
_LITTLE = {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "32Mi"}


@dataclass(frozen=True, kw_only=True)
class PodOrder:
    """What one grading pod is made from."""

    name: str
    pairs: Sequence[Pair]
    image: str
    """The subjects' image."""
    runtime_class: str | None
    address: str
    """``http://IP:PORT`` of the grader, as pods reach it."""
    prepare_token: str
    runner_token: str
    notes: Mapping[str, str]
    """Further annotations, for people."""
    laid_bytes: int = 0
    """Size of all that is laid. Most of it is what an agent left, who decides how much that is: nodes have to know."""


@dataclass(frozen=True, kw_only=True)
class Laid:
    """One thing that prepare lays: a folder of this machine, or bytes."""

    path: str
    """Volume and path in it."""
    source: Path | bytes


def runner_name(index: int) -> str:
    """Return the container's name of a pair's runner."""
    return names.RUNNER if index == 0 else f"{names.RUNNER}-{index}"


def subject_name(index: int) -> str:
    """Return the container's name of a pair's subject."""
    return names.SUBJECT if index == 0 else f"{names.SUBJECT}-{index}"


def subject_volume(index: int) -> str:
    """Return the name of the volume that a pair's subject may fill."""
    return f"subject-{index}"


def shared_memory(role: str, index: int) -> str:
    """Return the name of the volume for what processes of one container share: what hidden tests have there is not for the agent's work."""
    return f"shm-{role}-{index}"


def inputs(pairs: Sequence[Pair], pull_seconds: int, line: str = wire.SOCKET) -> Iterator[Laid]:
    """Yield everything that is laid into the pod of some pairs, which join at ``line``."""
    join = Path(__file__).parent.parent / "pod" / "join.py"
    yield Laid(path=f"{GIVEN}/join.py", source=join.read_bytes())
    for role, specs in (("runner", [pair.runner for pair in pairs]), ("subject", [pair.subject for pair in pairs])):
        for number, source in enumerate(_given(specs)):
            yield Laid(path=f"given-{role}/{number}", source=source)
        for index, spec in enumerate(specs):
            plan = _run_plan(spec, index, pull_seconds, line)
            yield Laid(path=f"given-{role}/plan-{index}.json", source=json.dumps(plan).encode())
            for item in spec.inputs:
                if item.writable:
                    inside = os.path.relpath(item.target, spec.workdir)
                    yield Laid(path=os.path.normpath(f"{role}-{index}/workspace/{inside}"), source=item.source)


def laid_bytes(pairs: Sequence[Pair]) -> int:
    """Return the size of all files that are laid into the pod of some pairs. Raises OSError."""
    found = (item.source for item in inputs(pairs, 0))
    return sum(len(each) if isinstance(each, bytes) else _size(each) for each in found)


def _size(source: Path) -> int:
    places = [source, *source.rglob("*")] if source.is_dir() else [source]
    return sum(place.lstat().st_size for place in places)


def render(order: PodOrder, settings: GradingPods) -> dict[str, Any]:
    """Return the pod, without its namespace."""
    pairs = list(enumerate(order.pairs))
    wall = max(pair.runner.limits.wall_seconds for pair in order.pairs)
    runners, subjects = _given([p.runner for p in order.pairs]), _given([p.subject for p in order.pairs])
    found: dict[str, Any] = {
        **POD,
        "hostname": "grading",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": settings.pull_seconds + PREPARE_SECONDS + math.ceil(wall) + _GRACE_SECONDS,
        "securityContext": pod_security(names.POD_UID),
        "initContainers": [_prepare(order, settings)],
        "containers": [
            *(_runner(pair.runner, index, runners, settings) for index, pair in pairs),
            *(_subject(pair.subject, index, subjects, order, settings) for index, pair in pairs),
        ],
        "volumes": _volumes(order.pairs),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": order.name, "labels": _labels(settings), "annotations": _annotations(order)},
        "spec": found | _placement(order, settings),
    }


def _labels(settings: GradingPods) -> dict[str, str]:
    return {
        names.MANAGED_BY: names.OURS,
        names.COMPONENT: "grading",
        names.NET_CLASS: "none",
        OWNER: settings.owner,
    }


def _annotations(order: PodOrder) -> dict[str, str]:
    return {
        **order.notes,
        GRADER: order.address,
        names.PREPARE_TOKEN: order.prepare_token,
        RUNNER_TOKEN: order.runner_token,
    }


def _placement(order: PodOrder, settings: GradingPods) -> dict[str, Any]:
    found: dict[str, Any] = {
        "runtimeClassName": order.runtime_class,
        "priorityClassName": settings.priority_class,
        "nodeSelector": settings.node_selector,
        "tolerations": list(settings.tolerations),
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
    }
    return {key: value for key, value in found.items() if value}


_SECURITY = container_security(names.POD_UID)


def _prepare(order: PodOrder, settings: GradingPods) -> dict[str, Any]:
    plan = {"denied": list(settings.denied), "areas": _areas(order.pairs)}
    return {
        "name": names.PREPARE,
        "image": settings.runner_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-m", "grader_service.pod.prepare"],
        "env": [
            from_annotation(wire.TOKEN, names.PREPARE_TOKEN),
            from_annotation(wire.GRADER, GRADER),
            {"name": wire.PLAN, "value": json.dumps(plan)},
        ],
        "resources": {"requests": _LITTLE, "limits": {"cpu": "1", "memory": "256Mi"}},
        "securityContext": _SECURITY,
        "volumeMounts": [
            {"name": volume["name"], "mountPath": f"{wire.VOLUMES}/{volume['name']}"}
            for volume in _volumes(order.pairs)
        ],
    }


def _runner(spec: SandboxSpec, index: int, given: Sequence[Path], settings: GradingPods) -> dict[str, Any]:
    mounts = _mounts(spec, "runner", index, given)
    return {
        "name": runner_name(index),
        "image": settings.runner_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-m", "grader_service.pod.runner"],
        "env": [from_annotation(wire.TOKEN, RUNNER_TOKEN), from_annotation(wire.GRADER, GRADER)],
        "resources": _resources(spec, settings),
        "securityContext": _SECURITY,
        "volumeMounts": [*mounts, {"name": f"line-{index}", "mountPath": wire.LINE}],
    }


def _subject(
    spec: SandboxSpec, index: int, given: Sequence[Path], order: PodOrder, settings: GradingPods
) -> dict[str, Any]:
    own = [
        {"name": GIVEN, "mountPath": place, "subPath": os.path.basename(place), "readOnly": True}  # noqa: PTH119
        for place in (wire.JOIN, wire.GUARD)
    ]
    mounts = _mounts(spec, "subject", index, given)
    return {
        "name": subject_name(index),
        "image": order.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-S", wire.JOIN],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [{"name": name, "value": value} for name, value in _OWN_ENV.items()],
        "resources": _resources(spec, settings, disk=order.laid_bytes),
        "securityContext": _SECURITY,
        "volumeMounts": [*mounts, *own, {"name": f"line-{index}", "mountPath": wire.LINE, "readOnly": True}],
    }


_OWN_ENV = {"HOME": HOME, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108 - the pod's own


def _mounts(spec: SandboxSpec, role: str, index: int, given: Sequence[Path]) -> list[dict[str, Any]]:
    own, common = f"{role}-{index}", f"given-{role}"
    areas = {"workspace": os.path.normpath(spec.workdir), **_AREAS}
    plan = {"name": common, "mountPath": wire.RUN_PLAN, "subPath": f"plan-{index}.json", "readOnly": True}
    return [
        *({"name": own, "mountPath": target, "subPath": area} for area, target in areas.items()),
        {"name": shared_memory(role, index), "mountPath": "/dev/shm"},  # noqa: S108 - else it is the pod's, all containers write to it
        plan,
        *(
            {"name": common, "mountPath": item.target, "subPath": str(given.index(item.source)), "readOnly": True}
            for item in _read_only(spec)
        ),
    ]


def _read_only(spec: SandboxSpec) -> list[Input]:
    return [item for item in spec.inputs if not item.writable]


def _given(specs: Sequence[SandboxSpec]) -> list[Path]:
    """Return each folder once that some of them see read-only."""
    return list(dict.fromkeys(item.source for spec in specs for item in _read_only(spec)))


def _areas(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    places = ["given-runner", "given-subject", *(f"line-{n}" for n in range(len(pairs)))]
    found: dict[str, list[str]] = {name: [] for name in places}
    return found | {f"{role}-{n}": ["workspace", *_AREAS] for role in ("runner", "subject") for n in range(len(pairs))}


def _volumes(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    sizes: dict[str, int | None] = {"given-runner": None, "given-subject": None}
    for index, pair in enumerate(pairs):
        sizes[f"runner-{index}"] = pair.runner.limits.disk_bytes + _AREA_BYTES
        sizes[subject_volume(index)] = pair.subject.limits.disk_bytes + _AREA_BYTES
        sizes[f"line-{index}"] = 1 << 20
    found = [
        {"name": name, "emptyDir": {} if size is None else {"sizeLimit": str(size)}} for name, size in sizes.items()
    ]
    memory = {"medium": "Memory", "sizeLimit": str(_SHARED_BYTES)}
    places = [shared_memory(role, index) for index in range(len(pairs)) for role in ("runner", "subject")]
    return [*found, *({"name": name, "emptyDir": memory} for name in places)]


def _resources(spec: SandboxSpec, settings: GradingPods, disk: int = 0) -> dict[str, Any]:
    """Return requests and limits. Of a node's disk no more is asked for than for the agent's own pod, so that there is a node for it."""
    limits, memory = spec.limits, spec.limits.memory_bytes + _OWN_BYTES
    return {
        "requests": {
            "cpu": f"{max(1, math.ceil(limits.cpu * settings.cpu_request_share * 1000))}m",
            "memory": str(max(16 << 20, math.ceil(memory * settings.memory_request_share))),
            "ephemeral-storage": str(max(_LEAST_DISK, min(disk, limits.disk_bytes // 2))),
        },
        "limits": {"cpu": f"{math.ceil(limits.cpu * 1000)}m", "memory": str(memory)},
    }


def _run_plan(spec: SandboxSpec, index: int, ready_seconds: int, line: str) -> dict[str, Any]:
    return {
        "index": index,
        "areas": [os.path.normpath(spec.workdir), *_AREAS.values()],
        "disk_bytes": spec.limits.disk_bytes + _AREA_BYTES,
        "command": list(spec.command),
        "env": dict(spec.env),
        "stdin_b64": base64.b64encode(spec.stdin).decode(),
        "workdir": os.path.normpath(spec.workdir),
        "wall_seconds": spec.limits.wall_seconds,
        "output_bytes": spec.limits.output_bytes,
        "memory_bytes": spec.limits.memory_bytes,
        "processes": spec.limits.processes,
        "line": line,
        "ready_seconds": ready_seconds,  # a runner of another version, which does not wait for a subject's words, stops at the new name
    }
