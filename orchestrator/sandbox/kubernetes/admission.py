"""Whether a cluster would take the pods of tasks, asked without making any: so a policy is heard of before anything was run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from orchestrator.errors import FOR_A_PERSON
from orchestrator.interfaces import PodDoor, PodSink, SandboxLimits, SandboxSpec
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.render import Owner, render
from orchestrator.sandbox.kubernetes.resources import PODS
from orchestrator.settings import Kubernetes
from orchestrator.spec.base import digest
from orchestrator.spec.task import Environment

_AT_ONE_TIME = 16
_NOWHERE = "http://127.0.0.1:1"


async def refused(
    api: Api, environments: Iterable[Environment], mounted: Iterable[str], settings: Kubernetes
) -> list[str]:
    """Return the cluster's sentence for each kind of pod that it refuses, each once; ``mounted``: images that are volumes of pods.

    What only says that nobody can tell now, such as a full quota or a server that is away, is no refusal: launches meet and tell it.
    """
    places = asyncio.Semaphore(_AT_ONE_TIME)
    kinds = {_kind(each): each for each in environments}
    asked: list[tuple[Environment, str | None]] = [(each, None) for each in kinds.values()]
    # What a cluster says of a volume does not depend on the rest of the pod.
    asked += [(each, image) for image in dict.fromkeys(mounted) for each in list(kinds.values())[:1]]

    async def ask(environment: Environment, image: str | None) -> str | None:
        async with places:
            return await _refusal(api, environment, image, settings)

    said = await asyncio.gather(*(ask(*each) for each in asked))
    return list(dict.fromkeys(each for each in said if each is not None))


async def _refusal(api: Api, environment: Environment, mounted: str | None, settings: Kubernetes) -> str | None:
    namespaces = settings.root_namespaces if environment.user == "root" else settings.namespaces
    if not namespaces:  # `refusals` says so
        return None
    try:
        made = await api.create(PODS, namespaces[0], sample(environment, settings, mounted), dry_run=True)
    except ApiError as error:
        if error.cause not in FOR_A_PERSON:
            return None
        if mounted is not None:
            return f"image {mounted}, which is to be mounted: {error}"
        image = environment.image or settings.task_image
        return f"image {image}, user {environment.user}, isolation {environment.isolation}: {error}"
    if mounted is not None and not any("image" in volume for volume in made["spec"].get("volumes", [])):
        # A server that does not know the field drops it, and gives an empty folder in its place.
        return f"image {mounted}: this cluster mounts no images; use 'bundle' in place of 'image' (chart: trials.imageVolumes false)"
    return None


def sample(environment: Environment, settings: Kubernetes, mounted: str | None = None) -> dict[str, Any]:
    """Return a pod as a launch with this environment has it, but for what the agent is. Pure."""
    name = f"asked-{digest(_kind(environment)).rpartition(':')[2][:16]}"
    resources = environment.resources
    limits = SandboxLimits(
        cpu=resources.cpu,
        memory_bytes=resources.memory,
        disk_bytes=resources.disk,
        processes=resources.processes,
        wall_seconds=1,
    )
    door = PodDoor(address=_NOWHERE, relay=_NOWHERE, index=0, instance="", agent_token="", prepare_token="", token="")
    spec = SandboxSpec(
        name=name,
        command=("true",),
        limits=limits,
        workdir=environment.workdir,
        image=environment.image,
        mounted=mounted,
        door=door,
        sink=PodSink(launch=name, token=""),
        isolation=environment.isolation,
        user=environment.user,
    )
    return render(spec, Owner(run=name, epoch=1), settings)


def _kind(environment: Environment) -> str:
    """Return what a cluster can see of an environment, as text."""
    return environment.model_dump_json(include={"image", "user", "isolation", "resources", "workdir"})
