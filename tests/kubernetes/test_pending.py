"""Every reason not to run has its word, its grace and the cluster's own sentence."""

from __future__ import annotations

from math import inf

import pytest
from cluster_world import pod

from orchestrator.sandbox.kubernetes.pending import Pending
from orchestrator.sandbox.kubernetes.podview import PodView, pod_view

NOW = [0.0]


def view(**status: object) -> PodView:
    base = pod("t-1")
    base["metadata"] |= {"resourceVersion": "7", "uid": "u", "namespace": "a"}
    base["spec"]["nodeName"] = status.pop("node", "node-1")
    if at := status.pop("deleting", None):
        base["metadata"]["deletionTimestamp"] = at
    return pod_view({**base, "status": {"phase": "Pending", **status}})


def state(name: str, **what: dict) -> dict:
    return {"name": name, "state": what}


def waiting(reason: str, message: str = "", **status: object) -> PodView:
    agent = state("agent", waiting={"reason": reason, "message": message})
    prepared = state("prepare", terminated={"exitCode": 0})
    return view(containerStatuses=[agent, state("freezer", running={})], initContainerStatuses=[prepared], **status)


def unscheduled(reason: str, message: str) -> PodView:
    return view(node="", conditions=[{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}])


@pytest.mark.parametrize(
    ("seen", "cause", "action", "grace"),
    [
        (waiting("InvalidImageName", "couldn't parse"), "image_name", "fail", 0),
        (waiting("ErrImageNeverPull"), "image_missing", "fail", 0),
        (waiting("ErrImagePull", "i/o timeout"), "image_pull", "retry", 900),
        (waiting("ImagePullBackOff", "Back-off pulling"), "image_pull", "retry", 900),
        (waiting("ErrImagePull", "pull QPS exceeded"), "image_pull", "retry", 900),
        (waiting("ErrImagePull", "rpc error: code = NotFound desc = x: not found"), "image_pull", "fail", 90),
        (waiting("ErrImagePull", "401 Unauthorized: authentication required"), "image_pull", "fail", 90),
        (waiting("RegistryUnavailable"), "image_pull", "retry", 900),
        (waiting("CreateContainerConfigError", "no configmap"), "container_config", "fail", 300),
        (waiting("CreateContainerError", "context deadline exceeded"), "container_create", "retry", 300),
        (waiting("RunContainerError", "no runtime for gvisor"), "container_create", "retry", 300),
        (waiting("ContainerCreating"), "start_timeout", "retry", 900),
        (waiting(""), "start_timeout", "retry", 900),
        (waiting("SomethingNew", "words"), "container_waiting", "retry", 300),
        (waiting("ImagePullBackOff", phase="Running"), "image_pull", "retry", 900),
        (unscheduled("SchedulingGated", "waits for Kueue"), "scheduling_gated", "wait", inf),
        (unscheduled("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."), "unschedulable", "retry", 3600),
        (
            unscheduled("Unschedulable", "0/3 nodes are available: 3 didn't match selector"),
            "unschedulable",
            "retry",
            900,
        ),
        (unscheduled("SchedulerError", "boom"), "not_scheduled", "retry", 900),
        (view(node=""), "not_scheduled", "retry", 900),
        (view(), "node_silent", "retry", 900),
    ],
)
def test_the_table(seen: PodView, cause: str, action: str, grace: float) -> None:
    trouble = Pending(lambda: 5.0).look(seen)
    assert trouble is not None
    assert (trouble.cause, trouble.action, trouble.left) == (cause, action, grace)
    said = next((each.message for each in (*seen.containers, *seen.conditions) if each.message), "")
    assert said in trouble.says


@pytest.mark.parametrize(
    "seen",
    [
        waiting("ErrImagePull", deleting="2026-01-01T00:00:00Z"),
        waiting("ErrImagePull", phase="Failed"),
        waiting("ErrImagePull", phase="Succeeded"),
        view(initContainerStatuses=[state("prepare", running={})], containerStatuses=[state("agent", waiting={})]),
        view(containerStatuses=[state("agent", running={})], phase="Running"),
        waiting("ErrImagePull").ended(),
    ],
)
def test_nothing_is_wrong(seen: PodView) -> None:
    assert Pending().look(seen) is None


def test_the_grace_of_one_cause_is_one_however_its_reasons_alternate() -> None:
    now = [0.0]
    pending = Pending(lambda: now[0])
    assert pending.look(waiting("ContainerCreating")).left == 900
    now[0] = 100
    assert pending.look(waiting("ErrImagePull")).left == 900
    now[0] = 600
    assert pending.look(waiting("ImagePullBackOff")).left == 400
    now[0] = 700
    assert pending.look(waiting("ErrImagePull", "not found")).left == 0
    now[0] = 1200
    assert pending.look(waiting("ErrImagePull")).left == 0
    assert pending.look(view(containerStatuses=[state("agent", running={})])) is None
    assert pending.look(waiting("ErrImagePull")).left == 900


def test_the_sentence_is_one_line_of_bounded_length() -> None:
    says = Pending().look(waiting("ErrImagePull", "a\nb  c" + "x" * 5000)).says
    assert says.startswith("container agent: ErrImagePull: a b cxx")
    assert len(says) <= 600
