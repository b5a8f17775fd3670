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


async def refused(api: Api, environments: Iterable[Environment], settings: Kubernetes) -> list[str]:
    """Return the cluster's sentence for each kind of pod that it refuses, each once.

    What only says that nobody can tell now, such as a full quota or a server that is away, is no refusal: launches meet and tell it.
    """
    places = asyncio.Semaphore(_AT_ONE_TIME)
    kinds = {_kind(each): each for each in environments}

    async def ask(environment: Environment) -> str | None:
        async with places:
            return await _refusal(api, environment, settings)

    said = await asyncio.gather(*(ask(each) for each in kinds.values()))
    return list(dict.fromkeys(each for each in said if each is not None))


async def _refusal(api: Api, environment: Environment, settings: Kubernetes) -> str | None:
    namespaces = settings.root_namespaces if environment.user == "root" else settings.namespaces
    if not namespaces:  # `refusals` says so
        return None
    try:
        await api.create(PODS, namespaces[0], sample(environment, settings), dry_run=True)
    except ApiError as error:
        if error.cause not in FOR_A_PERSON:
            return None
        image = environment.image or settings.task_image
        return f"image {image}, user {environment.user}, isolation {environment.isolation}: {error}"
    return None


def sample(environment: Environment, settings: Kubernetes) -> dict[str, Any]:
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
        door=door,
        sink=PodSink(launch=name, token=""),
        isolation=environment.isolation,
        user=environment.user,
    )
    return render(spec, Owner(run=name, epoch=1), settings)


def _kind(environment: Environment) -> str:
    """Return what a cluster can see of an environment, as text."""
    return environment.model_dump_json(include={"image", "user", "isolation", "resources", "workdir"})
