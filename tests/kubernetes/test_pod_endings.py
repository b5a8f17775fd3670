"""What is made of what a cluster says of a pod: the finer points, without a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pod_world import SETTINGS

from orchestrator.interfaces import Ending
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.backend import KubernetesBackend
from orchestrator.sandbox.kubernetes.endings import Facts, Loss, exceeded, judge
from orchestrator.sandbox.kubernetes.podview import Condition, ContainerView, PodView
from orchestrator.settings.kubernetes import RuntimeClasses
from orchestrator.spec.task import Environment, Resources

STARTED, ENDED = "2026-03-02T09:00:00Z", "2026-03-02T09:00:10Z"
AT = 1772442000.0
NOW = AT + 100
FACTS = Facts(wall_seconds=60, settled=True, clock=lambda: NOW)


def agent(code: int | None, reason: str = "", **fields: Any) -> ContainerView:
    if code is None:
        return ContainerView(names.AGENT, "running", started=STARTED)
    made = {
        "reason": reason or ("Error" if code else "Completed"),
        "exit_code": code,
        "started": STARTED,
        "finished": ENDED,
    }
    return ContainerView(names.AGENT, "terminated", **(made | fields))


def view(*containers: ContainerView, **fields: Any) -> PodView:
    return PodView(
        name="t-1", namespace="n", uid="u", version=1, **({"phase": "Running", "containers": containers} | fields)
    )


def said(code: int | None = None, signal: int | None = None, **more: Any) -> str:
    return json.dumps({"cause": "exited", "code": code, "signal": signal, **more})


def test_the_supervisors_times_are_believed_within_the_kubelets_seconds() -> None:
    found = judge(view(agent(0, message=said(0, started=AT + 0.25, ended=AT + 10.5))), FACTS)
    assert isinstance(found, Ending)
    assert (found.started, found.ended) == (AT + 0.25, AT + 10.5)
    found = judge(view(agent(0, message=said(0, started=AT - 500, ended=AT + 5000))), FACTS)
    assert isinstance(found, Ending)
    assert (found.started, found.ended) == (AT, AT + 10)


def test_a_node_whose_clock_is_ahead_ends_nothing_in_the_future() -> None:
    found = judge(view(agent(0)), replace(FACTS, clock=lambda: AT))
    assert isinstance(found, Ending)
    assert (found.started, found.ended) == (AT - 10, AT)


@pytest.mark.parametrize(
    ("code", "message", "exit_code", "signal"),
    [
        (137, said(137), 137, None),  # exit(137)
        (137, said(None, 9), None, 9),
        (137, "no JSON", None, 9),
        (3, said(0), 3, None),  # what an agent wrote there itself does not count
        (0, said(None, 9), 0, None),
        (200, said(200), 200, None),
        (255, "", 255, None),
    ],
)
def test_codes_and_signals(code: int, message: str, exit_code: int | None, signal: int | None) -> None:
    found = judge(view(agent(code, message=message)), FACTS)
    assert isinstance(found, Ending)
    assert (found.exit.code, found.exit.signal) == (exit_code, signal)


BEING_ENDED: list[dict[str, Any]] = [
    {"deleting": ENDED},
    {"gone": True},
    {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
    {"phase": "Failed", "reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."},
    {"conditions": (Condition("DisruptionTarget", "True", "PreemptionByScheduler", "…"),)},
]


@pytest.mark.parametrize("fields", BEING_ENDED)
@pytest.mark.parametrize("code", [125, 137, 143])
def test_an_agent_that_was_ended_from_outside_has_no_result(fields: dict[str, Any], code: int) -> None:
    assert isinstance(judge(view(agent(code), **fields), FACTS), Loss)


@pytest.mark.parametrize("fields", BEING_ENDED)
@pytest.mark.parametrize("code", [0, 1, 118, 119, 123, 126, 127, 139])
def test_an_agent_that_ended_by_itself_keeps_its_result_whatever_becomes_of_its_pod(
    fields: dict[str, Any], code: int
) -> None:
    assert isinstance(judge(view(agent(code), **fields), FACTS), Ending)


@pytest.mark.parametrize("code", [125, 137, 143])
def test_an_ending_that_may_come_from_outside_is_told_once_nobody_claims_it(code: int) -> None:
    assert judge(view(agent(code)), replace(FACTS, settled=False)) is None
    assert isinstance(judge(view(agent(code)), FACTS), Ending)


@pytest.mark.parametrize("code", [137, 0, 122])
@pytest.mark.parametrize(
    "message",
    [
        "[" * 4096,
        '{"a":' * 800,
        "[]",
        '{"code": true, "signal": [], "started": NaN, "ended": "x"}',
        "1" * 4096,
        "\ud800",
    ],
    ids=["deep_list", "deep_object", "list", "odd", "long_number", "half_character"],
)
def test_whatever_an_agent_writes_as_last_words_of_its_container_it_has_an_ending(message: str, code: int) -> None:
    found = judge(view(agent(code, message=message)), FACTS)
    assert isinstance(found, Ending)
    assert found.exit.code == code or found.exit.signal == code - 128
    assert (found.started, found.ended) == (AT, AT + 10)


def test_a_node_shutdown_and_a_refusing_node_have_their_words() -> None:
    shut = judge(view(agent(143), phase="Failed", reason="Terminated", message="imminent node shutdown"), FACTS)
    refused = judge(view(phase="Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu"), FACTS)
    assert isinstance(shut, Loss)
    assert isinstance(refused, Loss)
    assert (shut.cause, refused.cause) == ("node_shutdown", "node_refused")


def test_inputs_that_are_too_large_are_not_the_agents() -> None:
    for volume in ("inputs", "ctl"):
        message = f'Usage of EmptyDir volume "{volume}" exceeds the limit "64Mi". '
        for container in (agent(143), agent(137), agent(None), *SHOWN):
            pod = view(container, phase="Failed", reason="Evicted", message=message)
            found = judge(pod, FACTS)
            assert isinstance(found, Loss)
            assert (found.cause, exceeded(pod)) == ("bundle_too_large", False)


LOW = "The node was low on resource: ephemeral-storage. Threshold quantity: 10737418240, available: 9876Mi. "
WROTE = [
    *(
        f'Usage of EmptyDir volume "{volume}" exceeds the limit "16Mi". '
        for volume in ("log", "output", "workspace", "tmp", "home")
    ),
    "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ",
    'Container agent exceeded its local ephemeral storage limit "2Gi". ',
    LOW + "Container agent was using 90Gi, request is 1Gi, has larger consumption of ephemeral-storage. ",
]
"""In a kubelet's words (1.29 to 1.37), for what an agent can write to; the last one's agent is root in its pod."""
NOT_THE_AGENTS = [
    LOW,
    LOW + "Container freezer was using 90Gi, request is 32Mi, has larger consumption of ephemeral-storage. ",
    'Container freezer exceeded its local ephemeral storage limit "32Mi". ',
    "The node was low on resource: inodes. ",
    "The node was low on resource: pids. Threshold quantity: 10%, available: 9%. ",
    LOW.replace("ephemeral-storage", "memory")
    + "Container agent was using 310Mi, request is 256Mi, has larger consumption of memory. ",
    "The node had condition: [DiskPressure]. ",
]


@pytest.mark.parametrize("message", WROTE)
def test_what_was_too_large_before_the_agent_ran_is_not_the_agents(message: str) -> None:
    waiting = ContainerView(names.AGENT, "waiting", reason="PodInitializing")
    found = judge(view(waiting, phase="Failed", reason="Evicted", message=message), FACTS)
    assert isinstance(found, Loss)
    assert found.cause == "bundle_too_large"


@pytest.mark.parametrize("message", NOT_THE_AGENTS)
@pytest.mark.parametrize("code", [137, 143, None])
def test_what_does_not_name_the_agents_writing_is_a_loss(message: str, code: int | None) -> None:
    found = judge(view(agent(code), phase="Failed", reason="Evicted", message=message), FACTS)
    assert isinstance(found, Loss)
    assert found.cause == "evicted"


@pytest.mark.parametrize("message", NOT_THE_AGENTS)
def test_who_was_ended_for_its_volumes_by_our_own_look_has_its_result_whatever_follows(message: str) -> None:
    found = judge(view(agent(119), phase="Failed", reason="Evicted", message=message), FACTS)
    assert isinstance(found, Ending)
    assert found.cause == "out_of_disk"


@pytest.mark.parametrize("message", WROTE)
def test_each_way_of_writing_too_much_is_the_agents(message: str) -> None:
    for containers in ((agent(143),), (agent(None),)):
        found = judge(view(*containers, phase="Failed", reason="Evicted", message=message), FACTS)
        assert isinstance(found, Ending)
        assert found.cause == "out_of_disk"


SHOWN = [
    ContainerView(names.AGENT, "waiting", reason="PodInitializing", restarts=1),
    ContainerView(names.AGENT, "terminated", reason="ContainerStatusUnknown", exit_code=137, restarts=1),
]
"""Seen on Kubernetes 1.37: containers that ran wait to be initialised, or end as nobody saw, after a restart that never was."""


@pytest.mark.parametrize("shown", SHOWN)
def test_what_a_kubelet_shows_of_an_evicted_pod(shown: ContainerView) -> None:
    message = 'Usage of EmptyDir volume "workspace" exceeds the limit "33554432".'
    pod = view(shown, phase="Failed", reason="Evicted", message=message)
    assert judge(pod, replace(FACTS, settled=False)) is None
    found = judge(pod, replace(FACTS, began=AT))
    assert isinstance(found, Ending)
    assert (found.cause, found.started, found.ended) == ("out_of_disk", AT, NOW)
    pressed = judge(pod._replace(message="The node was low on resource: memory."), FACTS)
    assert isinstance(pressed, Loss)
    assert pressed.cause == "evicted"


def test_a_container_that_its_node_has_lost_is_a_loss() -> None:
    found = judge(view(SHOWN[1], phase="Failed"), FACTS)
    assert isinstance(found, Loss)
    assert found.cause == "node_lost"


def test_a_pod_that_failed_may_still_tell_of_its_agent() -> None:
    evicted = view(agent(None), phase="Failed", reason="Evicted", message="exceeds the limit")
    assert judge(evicted, replace(FACTS, settled=False)) is None


CONTAINERS = st.builds(
    ContainerView,
    name=st.sampled_from([names.AGENT, names.FREEZER]),
    state=st.sampled_from(["waiting", "running", "terminated"]),
    reason=st.sampled_from(["", "Completed", "Error", "OOMKilled", "StartError", "ContainerStatusUnknown"]),
    message=st.sampled_from(["", "x", said(0), said(None, 9), '{"code": "x", "signal": [], "started": "y"}', "[]"]),
    exit_code=st.none() | st.integers(0, 255),
    started=st.sampled_from(["", STARTED, "yesterday"]),
    finished=st.sampled_from(["", ENDED, "2020-01-01T00:00:00Z"]),
    restarts=st.integers(0, 1),
)
VIEWS = st.builds(
    PodView,
    name=st.just("t-1"),
    namespace=st.just("n"),
    uid=st.just("u"),
    version=st.just(1),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    reason=st.sampled_from(["", "Evicted", "DeadlineExceeded", "NodeLost", "Preempting", "OutOfcpu"]),
    message=st.sampled_from(["", "exceeds the limit", "low on resource"]),
    deleting=st.sampled_from(["", ENDED]),
    containers=st.lists(CONTAINERS, max_size=2).map(tuple),
    init=st.lists(CONTAINERS.map(lambda each: each._replace(name=names.PREPARE)), max_size=1).map(tuple),
    gone=st.booleans(),
)


@settings(max_examples=40)
@given(pod=VIEWS, stopped=st.booleans(), isolation=st.sampled_from(["container", "gvisor"]))
def test_whatever_a_cluster_says_there_is_an_answer_in_the_end(pod: PodView, stopped: bool, isolation: str) -> None:
    facts = Facts(wall_seconds=60, isolation=isolation, stopped=stopped, settled=True, clock=lambda: NOW)
    found = judge(pod, facts)
    if pod.gone or pod.phase in ("Succeeded", "Failed"):
        assert found is not None
    if isinstance(found, Ending):
        assert found.started <= found.ended <= NOW
    if isinstance(found, Loss):
        assert found.cause
        assert found.says


# --- what the backend refuses ---


def refusals(**fields: Any) -> list[str]:
    backend = KubernetesBackend(SETTINGS.model_copy(update={"runtime_classes": RuntimeClasses(gvisor="gvisor")}))
    return backend.refusals(Environment(**fields))


PINNED = "registry.example/x@sha256:" + "1" * 64


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"image": "python:3"}, "pin it with"),
        ({"image": "sha256:" + "1" * 64}, "known on one machine only"),
        ({"build": "environment/"}, "not pinned yet"),
        ({"isolation": "vm"}, "trials.runtimeClasses.vm"),
        ({"user": "root"}, "kubernetes.root_namespaces"),
        ({"network": "public"}, "model_only"),
        ({"workdir": "/home"}, "workdir /home"),
        ({"workdir": "/tmp/x"}, "workdir /tmp/x"),
        ({"workdir": "/"}, "workdir /"),
    ],
)
def test_what_pods_cannot_give_is_refused_with_a_way_out(fields: dict[str, Any], word: str) -> None:
    (found,) = refusals(**fields)
    assert word in found


def test_what_pods_can_give_is_not_refused() -> None:
    assert refusals() == []
    assert refusals(image=PINNED, isolation="gvisor", workdir="/testbed", resources=Resources(cpu=2)) == []
    versioned = KubernetesBackend(SETTINGS.model_copy(update={"task_image": "registry.example/control:0.1.0"}))
    assert versioned.refusals(Environment(image="registry.example/control:0.1.0")) == []
    assert "its tag can mean another" in versioned.refusals(Environment(image="registry.example/control:0.2.0"))[0]
    roomy = KubernetesBackend(SETTINGS.model_copy(update={"grader_data": "3Gi", "grader_scratch": "4Gi"}))
    assert roomy.refusals(Environment(resources=Resources(disk=1 << 30))) == []
    found = roomy.refusals(Environment(resources=Resources(disk=2 << 30)))
    assert [
        ("at most 1,024 MiB" in each, "dataSize of 6144Mi" in each, "scratchSize of 8192Mi" in each) for each in found
    ] == [
        (True, True, False),
        (True, False, True),
    ]
    bare = KubernetesBackend(SETTINGS.model_copy(update={"task_image": None}))
    assert "kubernetes.task_image" in bare.refusals(Environment())[0]
