"""What a cluster refuses is heard of before anything was run, and what nobody can tell now keeps nothing from starting."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fault_server import FaultServer
from pod_world import OWNER, SETTINGS, spec_of

from orchestrator.sandbox.kubernetes import admission
from orchestrator.sandbox.kubernetes.backend import KubernetesBackend
from orchestrator.sandbox.kubernetes.render import render
from orchestrator.settings import Kubernetes
from orchestrator.spec.task import Environment

HERE = SETTINGS.model_copy(update={"driver": "here", "root_namespaces": ("trials-root",)})
IMAGE = "registry.example/other@sha256:" + "2" * 64
PLAIN, OTHER, ROOT = Environment(), Environment(image=IMAGE), Environment(user="root")


def asked(
    *environments: Environment,
    mounted: tuple[str, ...] = (),
    fault: str = "",
    denied: bool = False,
    mounts: bool = True,
    settings: Kubernetes = HERE,
) -> tuple[list[str], int, int]:
    """Return what is said, how many requests it took, and how many pods are there afterwards."""

    async def ask() -> tuple[list[str], int, int]:
        async with FaultServer(kubelet=False) as server:
            for namespace in ("trials-0", "trials-root"):
                server.remember(namespace)
            if fault:
                server.inject(fault, verb="create", resource="pods", times=100)
            server.mounts_images = mounts
            if denied:
                server.denied.add(("create", "pods"))

            async def connecting() -> Any:
                return server.connection

            said = await KubernetesBackend(settings, connecting).lacking(environments, mounted)
            return said, server.counts["create", "pods"], len(server.pods())

    return asyncio.run(ask())


def test_each_kind_is_asked_once_and_no_pod_is_made() -> None:
    twin = PLAIN.model_copy(update={"requires": ("git",)})
    assert asked(PLAIN, twin, OTHER, ROOT) == ([], 3, 0)


@pytest.mark.parametrize("fault", ["policy_denies", "webhook_denies", "pod_security"])
def test_the_policy_s_sentence_is_told_for_each_kind(fault: str) -> None:
    said, _, pods = asked(PLAIN, OTHER, ROOT, fault=fault)
    assert pods == 0
    assert len(said) == 3
    assert said[1].startswith(f"image {IMAGE}, user agent, isolation container: the cluster could not create ")
    assert ", user root, " in said[2]


def test_an_image_that_is_mounted_is_asked_for_once() -> None:
    assert asked(PLAIN, ROOT, mounted=(IMAGE, IMAGE)) == ([], 3, 0)
    said, _, _ = asked(PLAIN, mounted=(IMAGE,), fault="policy_denies")
    assert said[1].startswith(f"image {IMAGE}, which is to be mounted: the cluster could not create ")


def test_a_cluster_that_would_give_an_empty_folder_for_an_image_is_found_out() -> None:
    assert asked(PLAIN, mounted=(IMAGE,), mounts=False)[0] == [
        f"image {IMAGE}: this cluster mounts no images; use 'bundle' in place of 'image' (chart: trials.imageVolumes false)"
    ]


@pytest.mark.parametrize("fault", ["quota", "throttled"])
def test_what_may_pass_is_no_refusal(fault: str) -> None:
    assert asked(PLAIN, fault=fault)[0] == []
    assert asked(PLAIN, denied=True)[0] == []


def test_where_a_job_drives_nothing_is_asked() -> None:
    assert asked(PLAIN, settings=SETTINGS, fault="policy_denies") == ([], 0, 0)


def test_the_sample_is_what_a_launch_is_made_of() -> None:
    resources = OTHER.resources
    spec = spec_of(image=IMAGE)
    limits = replace(
        spec.limits,
        cpu=resources.cpu,
        memory_bytes=resources.memory,
        disk_bytes=resources.disk,
        processes=resources.processes,
        wall_seconds=1,
    )
    real, sample = render(replace(spec, limits=limits), OWNER, SETTINGS), admission.sample(OTHER, SETTINGS)
    assert set(real["metadata"]["labels"]) == set(sample["metadata"]["labels"])
    assert set(real["metadata"]["annotations"]) == set(sample["metadata"]["annotations"])
    for pod in (real, sample):
        agent = next(each for each in pod["spec"]["containers"] if each["name"] == "agent")
        for own in ("command", "args", "env", "workingDir", "volumeMounts"):
            agent.pop(own, None)
    assert real["spec"].pop("volumes") is not None
    assert sample["spec"].pop("volumes") is not None
    assert real["spec"] == sample["spec"]
