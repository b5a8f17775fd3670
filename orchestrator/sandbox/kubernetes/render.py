"""A launch as a pod. Pure: from what a sandbox is made from and the settings to the JSON that is sent to the API server.

Pods of one class (task, agent, run) are equal but for name and annotations, so that a scheduler can place them alike: whatever differs
between launches is an annotation, and containers get it by the downward API.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SandboxError
from orchestrator.interfaces import BundledInput, Input, PodDoor, SandboxSpec
from orchestrator.sandbox.inside import HOME
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.hardened import POD, container_security, from_annotation, pod_security
from orchestrator.sandbox.pod.usage import SMALL_BYTES
from orchestrator.settings import Kubernetes
from orchestrator.spec.base import digest

PREPARE_SECONDS = 120
"""How long ``prepare`` may take."""
CTL_BYTES = 256 << 20
"""Size of ``/ctl``, where a line for each path of the workspace is; only our own programs write there."""
METADATA_TARGET = "169.254.169.254:80"
"""Where clouds tell pods about their node; never to be reached."""
TAKEN = ("/ctl", "/log", "/output", "/task", "/memory", "/agent", "/solution", "/tmp", HOME, "/proc", "/sys", "/dev")  # noqa: S108 - the pod's own
"""Places of the agent's container that no workspace can have."""

AGENT_FILES = "/agent"
"""Where an agent finds its own files."""

_PLAN_BYTES = 120 << 10
"""A variable of a process holds no more."""
_OWN_PROGRAMS = ("react", "http")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INPUT_TARGET = re.compile(r"/[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_ROOT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What root has in a pod of its own user namespace; none of it reaches beyond the pod's files and processes."""
_LITTLE = {"cpu": "10m", "ephemeral-storage": "32Mi"}
FREEZER_BYTES = 128 << 20
"""Memory of the freezer, which asks for all of it: a node that runs out of memory ends whoever takes the most beyond what it asked for, and
agents may be given more than they ask for.
"""
PREPARE_BYTES = 256 << 20
"""Most memory of ``prepare``, which asks for what its pod's other containers have later anyway: so it costs no room on a node."""
_FOLDERS_BYTES = 32 << 20
"""Room for folders and the ends of blocks of an agent's own files, beside an eighth of their bytes."""
_LEAST_MEMORY = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose pod it is."""

    run: str
    epoch: int


def render(spec: SandboxSpec, owner: Owner, settings: Kubernetes) -> dict[str, Any]:
    """Return the pod of a launch, without its namespace. Raises SandboxError, cause ``sandbox_spec``, for what no pod can be made from."""
    door = _door(spec)
    check(spec)
    labels, shape = _labels(owner, settings), _pod_spec(spec, door, settings)
    annotations = _annotations(spec, door, owner, settings)
    annotations[names.SPEC_SHA256] = digest({"labels": labels, "spec": shape})
    metadata = {"name": names.pod_name(spec.name), "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": shape}


def deadline_seconds(spec: SandboxSpec, settings: Kubernetes) -> int:
    """Return the seconds after which the cluster ends a pod in any case, counted from when a node took it."""
    wall = math.ceil(spec.limits.wall_seconds)
    return settings.pull_seconds + PREPARE_SECONDS + wall + settings.freeze_seconds + settings.absence_seconds


def check(spec: SandboxSpec) -> None:
    """Raise SandboxError for what cannot work in any pod."""
    problems = []
    if not _NAME.fullmatch(spec.name):
        problems.append("its name must be lower-case letters, digits and dashes")
    if not spec.command or not spec.command[0]:
        problems.append("there is no command to run")
    problems += [f"variable {name!r} has no valid name" for name in spec.env if not _ENV_NAME.fullmatch(name)]
    if any("\0" in word for word in [*spec.command, *spec.env.values(), spec.workdir]):
        problems.append("a zero byte in command, environment or workdir")
    problems += [f"input {item.source} is on this machine, and pods fetch theirs" for item in _strangers(spec)]
    problems += [f"input target {item.target!r} is not a folder directly below /" for item in _misplaced(spec)]
    if spec.mounted is not None and AGENT_FILES in _input_targets(spec):
        problems.append(f"files and the image {spec.mounted} for {AGENT_FILES}")
    if spec.packages or spec.channel is not None:
        problems.append("packages and channel are for sandboxes of this machine")
    if problems:
        msg = f"sandbox {spec.name}: " + "; ".join(problems)
        raise SandboxError(msg, cause="sandbox_spec")


def _door(spec: SandboxSpec) -> PodDoor:
    if not isinstance(spec.door, PodDoor):
        msg = f"sandbox {spec.name}: a pod of a trial needs the door of a pod"
        raise SandboxError(msg, cause="sandbox_spec")
    return spec.door


def _strangers(spec: SandboxSpec) -> list[Input]:
    return [item for item in spec.inputs if item.source.name not in _OWN_PROGRAMS]


def _misplaced(spec: SandboxSpec) -> list[Input | BundledInput]:
    return [item for item in _read_only(spec) if not _INPUT_TARGET.fullmatch(item.target)]


def _read_only(spec: SandboxSpec) -> list[Input | BundledInput]:
    found: list[Input | BundledInput] = [*spec.bundled, *spec.inputs]
    return [item for item in found if not item.writable]


# --- labels and annotations --------------------------------------------------------------------------------------------------------------


def _labels(owner: Owner, settings: Kubernetes) -> dict[str, str]:
    labels = {
        names.MANAGED_BY: names.OURS,
        names.COMPONENT: "trial",
        names.RUN_LABEL: names.run_hash(owner.run),
        names.NET_CLASS: "gateway",
    }
    return labels if settings.queue is None else labels | {names.QUEUE: settings.queue}


def _annotations(spec: SandboxSpec, door: PodDoor, owner: Owner, settings: Kubernetes) -> dict[str, str]:
    plan = json.dumps(_plan(spec, settings), separators=(",", ":"))
    if len(plan) > _PLAN_BYTES:
        msg = (
            f"sandbox {spec.name}: what its pod has to be told is {len(plan):,} bytes, and at most {_PLAN_BYTES:,} can be; "
            "shorten the agent's prompt and parameters"
        )
        raise SandboxError(msg, cause="sandbox_spec")
    return {
        names.RUN: owner.run,
        names.TRIAL: spec.notes.get("trial", ""),
        names.LAUNCH: spec.notes.get("launch", ""),
        names.LAUNCH_ID: spec.name,
        names.EPOCH: str(owner.epoch),
        names.GATEWAY: door.address,
        names.GATEWAY_INDEX: str(door.index),
        names.GATEWAY_INSTANCE: door.instance,
        names.RELAY: door.relay,
        names.AGENT_TOKEN: door.agent_token,
        names.PREPARE_TOKEN: door.prepare_token,
        names.FREEZER_TOKEN: door.token,
        names.PLAN: plan,
        names.SAFE_TO_EVICT: "false",
        names.DO_NOT_DISRUPT: "true",
    }


def _plan(spec: SandboxSpec, settings: Kubernetes) -> dict[str, Any]:
    return {
        "version": 1,
        "workdir": os.path.normpath(spec.workdir),
        "inputs": [
            {
                "audience": item.bundle.audience,
                "digest": item.bundle.digest,
                "folder": item.bundle.folder,
                "target": os.path.normpath(item.target),
                "writable": item.writable,
            }
            for item in spec.bundled
        ],
        "own": [{"program": item.source.name, "target": item.target} for item in spec.inputs],
        "stdin_b64": base64.b64encode(spec.stdin).decode(),
        "exclude": list(spec.exclude),
        "disk_bytes": spec.limits.disk_bytes,
        "processes": spec.limits.processes,
        "wall_seconds": spec.limits.wall_seconds,
        "output_bytes": spec.limits.output_bytes,
        "shared_lock": spec.isolation == "container",
        "denied": [*settings.denied, METADATA_TARGET],
    }


# --- the pod -----------------------------------------------------------------------------------------------------------------------------


def _pod_spec(spec: SandboxSpec, door: PodDoor, settings: Kubernetes) -> dict[str, Any]:
    found: dict[str, Any] = {
        **POD,
        "hostname": "sandbox",
        "terminationGracePeriodSeconds": settings.freeze_seconds,
        "activeDeadlineSeconds": deadline_seconds(spec, settings),
        "securityContext": pod_security(_user(spec)),
        "initContainers": [_prepare(spec, settings)],
        "containers": [_agent(spec, door, settings), _freezer(spec, settings)],
        "volumes": _volumes(spec),
    }
    return found | _placement(spec, settings)


def _placement(spec: SandboxSpec, settings: Kubernetes) -> dict[str, Any]:
    """Return what only some clusters have or want."""
    found: dict[str, Any] = {
        "runtimeClassName": runtime_class(spec.isolation, settings),
        "schedulerName": settings.scheduler_name,
        "priorityClassName": settings.priority_class,
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in settings.tolerations],
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
        "topologySpreadConstraints": _spread(settings),
    }
    if spec.user == "root" and spec.isolation == "container":
        found["hostUsers"] = False
    return {key: value for key, value in found.items() if value not in (None, [], {})}


def runtime_class(isolation: str, settings: Kubernetes) -> str | None:
    """Return the RuntimeClass that gives an isolation; None for ``container``, and for one that the cluster is not said to have."""
    return {"gvisor": settings.runtime_classes.gvisor, "vm": settings.runtime_classes.vm}.get(isolation)


def _spread(settings: Kubernetes) -> list[dict[str, Any]]:
    if settings.topology_spread is None:
        return []
    return [
        {
            "maxSkew": 1,
            "topologyKey": settings.topology_spread,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {names.MANAGED_BY: names.OURS, names.COMPONENT: "trial"}},
        }
    ]


def _user(spec: SandboxSpec) -> int:
    return 0 if spec.user == "root" else names.POD_UID


def _container_security(spec: SandboxSpec, *, writable_root: bool = False) -> dict[str, Any]:
    capabilities = tuple(_ROOT_CAPABILITIES) if spec.user == "root" else ()
    return container_security(_user(spec), writable_root=writable_root, capabilities=capabilities)


def _prepare(spec: SandboxSpec, settings: Kubernetes) -> dict[str, Any]:
    return {
        "name": names.PREPARE,
        "image": settings.pod_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/orchestrate/bin/prepare"],
        "env": [
            from_annotation("ORCHESTRATE_TOKEN", names.PREPARE_TOKEN),
            from_annotation("ORCHESTRATE_GATEWAY", names.GATEWAY),
            from_annotation("ORCHESTRATE_PLAN", names.PLAN),
            {"name": "ORCHESTRATE_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        "resources": {
            "requests": {**_LITTLE, "memory": str(min(PREPARE_BYTES, _agent_request(spec, settings) + FREEZER_BYTES))},
            "limits": {**_LITTLE, "cpu": "1", "memory": str(PREPARE_BYTES)},
        },
        "securityContext": _container_security(spec),
        "volumeMounts": [
            _mount("ctl", "/ctl"),
            _mount("log", "/log"),
            _mount("inputs", "/inputs"),
            _mount("workspace", "/areas/workspace"),
        ],
    }


def _freezer(spec: SandboxSpec, settings: Kubernetes) -> dict[str, Any]:
    return {
        "name": names.FREEZER,
        "image": settings.pod_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/orchestrate/bin/freezer"],
        "env": [
            from_annotation("ORCHESTRATE_TOKEN", names.FREEZER_TOKEN),
            from_annotation("ORCHESTRATE_GATEWAY", names.GATEWAY),
            from_annotation("ORCHESTRATE_GATEWAY_INDEX", names.GATEWAY_INDEX),
            from_annotation("ORCHESTRATE_RELAY", names.RELAY),
            from_annotation("ORCHESTRATE_PLAN", names.PLAN),
        ],
        "resources": {
            "requests": {**_LITTLE, "memory": str(FREEZER_BYTES)},
            "limits": {**_LITTLE, "cpu": "1", "memory": str(FREEZER_BYTES)},
        },
        "securityContext": _container_security(spec),
        "volumeMounts": [
            _mount("ctl", "/ctl"),
            _mount("log", "/log", read_only=True),
            *(_mount(area, f"/areas/{area}", read_only=True) for area in ("workspace", "output", "tmp", "home")),
        ],
    }


def _agent(spec: SandboxSpec, door: PodDoor, settings: Kubernetes) -> dict[str, Any]:
    image = spec.image or settings.task_image
    if image is None:
        msg = f"sandbox {spec.name}: its task names no image, and there is no kubernetes.task_image for such tasks"
        raise SandboxError(msg, cause="sandbox_spec")
    return {
        "name": names.AGENT,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/ctl/supervisor", "run", "--", *(_expandable(word, door) for word in spec.command)],
        "workingDir": os.path.normpath(spec.workdir),
        "env": _agent_env(spec, door),
        "resources": _agent_resources(spec, settings),
        "securityContext": _container_security(spec, writable_root=spec.user == "root"),
        "volumeMounts": [
            _mount("ctl", "/ctl", read_only=True),
            _mount("log", "/log"),
            *(_mount("inputs", target, read_only=True, sub_path=target[1:]) for target in _input_targets(spec)),
            *([] if spec.mounted is None else [_mount(names.IMAGE_VOLUME, AGENT_FILES, read_only=True)]),
            _mount("workspace", os.path.normpath(spec.workdir)),
            _mount("output", "/output"),
            _mount("tmp", "/tmp"),  # noqa: S108 - the pod's own
            _mount("home", HOME),
        ],
    }


def _input_targets(spec: SandboxSpec) -> list[str]:
    return list(dict.fromkeys(item.target for item in _read_only(spec)))


def _agent_env(spec: SandboxSpec, door: PodDoor) -> list[dict[str, Any]]:
    """Return the agent's variables. What differs between launches of a class comes from annotations, also within a text."""
    ours = {"ORCHESTRATE_TOKEN": names.AGENT_TOKEN, "ORCHESTRATE_GATEWAY": names.GATEWAY}
    env = {"HOME": HOME, "LANG": "C.UTF-8", "TMPDIR": "/tmp", **spec.env}  # noqa: S108 - the pod's own
    found = [from_annotation(name, annotation) for name, annotation in ours.items()]
    for name in sorted(env.keys() - ours.keys()):
        value = env[name]
        if value == door.agent_token:
            found.append(from_annotation(name, names.AGENT_TOKEN))
        else:
            found.append({"name": name, "value": _expandable(value, door)})
    return found


def _expandable(text: str, door: PodDoor) -> str:
    """Return a text that the kubelet expands to the given one: its own ``$`` doubled, address and token by their variables."""
    text = text.replace("$", "$$")
    for value, variable in ((door.agent_token, "ORCHESTRATE_TOKEN"), (door.address, "ORCHESTRATE_GATEWAY")):
        if value:
            text = text.replace(value.replace("$", "$$"), f"$({variable})")
    return text


def _agent_resources(spec: SandboxSpec, settings: Kubernetes) -> dict[str, Any]:
    limits = spec.limits
    disk, extra = limits.disk_bytes, _extra_bytes(spec)
    return {
        "requests": {
            "cpu": _milli(limits.cpu * settings.cpu_request_share),
            "memory": str(_agent_request(spec, settings)),
            "ephemeral-storage": str(disk + extra),
        },
        "limits": {
            "cpu": _milli(limits.cpu),
            "memory": str(max(_LEAST_MEMORY, limits.memory_bytes)),
            "ephemeral-storage": str(
                2 * disk + extra + CTL_BYTES + 2 * SMALL_BYTES
            ),  # what it writes, and what was laid for it
        },
    }


def _agent_request(spec: SandboxSpec, settings: Kubernetes) -> int:
    """Return the bytes of memory that the agent's container asks for."""
    return max(_LEAST_MEMORY, math.ceil(spec.limits.memory_bytes * settings.memory_request_share))


def _extra_bytes(spec: SandboxSpec) -> int:
    """Return the bytes of what is laid beside the task's disk, rounded up to what a file system takes for it."""
    extra = sum(item.extra_bytes for item in spec.bundled)
    return extra + extra // 8 + _FOLDERS_BYTES if extra else 0


def _volumes(spec: SandboxSpec) -> list[dict[str, Any]]:
    disk = str(spec.limits.disk_bytes)
    sizes = {
        "ctl": str(CTL_BYTES),
        "log": str(SMALL_BYTES),
        "inputs": str(spec.limits.disk_bytes + _extra_bytes(spec)),
        "workspace": disk,
        "output": str(SMALL_BYTES),
        "tmp": disk,
        "home": disk,
    }
    found: list[dict[str, Any]] = [{"name": name, "emptyDir": {"sizeLimit": size}} for name, size in sizes.items()]
    if spec.mounted is not None:
        found.append({"name": names.IMAGE_VOLUME, "image": {"reference": spec.mounted, "pullPolicy": "IfNotPresent"}})
    return found


def _mount(volume: str, path: str, *, read_only: bool = False, sub_path: str | None = None) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": volume, "mountPath": path}
    if read_only:
        mount["readOnly"] = True
    if sub_path is not None:
        mount["subPath"] = sub_path
    return mount


def _milli(processors: float) -> str:
    return f"{max(1, math.ceil(processors * 1000))}m"
