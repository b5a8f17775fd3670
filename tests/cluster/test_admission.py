"""Every field that no agent's pod may have is refused with 403 and a text of ours, whoever asks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from installed_world import Answer, Release, agent_pod, ask, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

Change = Callable[[dict[str, Any]], None]


def _create(
    installed: Release, pod: dict[str, Any], namespace: str | None = None, user: str | None = "driver"
) -> Answer:
    who = installed.account(user) if user else None
    return ask("POST", f"/api/v1/namespaces/{namespace or installed.trials}/pods?dryRun=All", pod, user=who)


@pytest.fixture(scope="module")
def enforced(installed: Release) -> Release:
    """The release with its admission policy in force, which takes about a second."""
    bare = agent_pod("bare")
    del bare["metadata"]["labels"]["orchestrate/net-class"]
    until(lambda: _create(installed, bare).status == 403, "the admission policy is in force", 30)
    return installed


def _spec(**fields: Any) -> Change:
    return lambda pod: pod["spec"].update(fields)


def _agent(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0].update(fields)


def _volume(**source: Any) -> Change:
    return lambda pod: pod["spec"].update(volumes=[{"name": "v", **source}])


def _label(value: str | None) -> Change:
    def change(pod: dict[str, Any]) -> None:
        pod["metadata"]["labels"].pop("orchestrate/net-class")
        if value is not None:
            pod["metadata"]["labels"]["orchestrate/net-class"] = value

    return change


def _second_container(**fields: Any) -> Change:
    def change(pod: dict[str, Any]) -> None:
        first = copy.deepcopy(pod["spec"]["containers"][0])
        pod["spec"]["initContainers"] = [{**first, "name": "prepare", **fields}]

    return change


SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}

DIGEST = "@sha256:" + "1" * 64

FORBIDDEN: dict[str, tuple[Change, str]] = {
    "no net-class": (_label(None), "orchestrate/net-class must be none or gateway"),
    "another net-class": (_label("open"), "orchestrate/net-class must be none or gateway"),
    "shared process namespace": (_spec(shareProcessNamespace=True), "shareProcessNamespace"),
    "mounted account token": (_spec(automountServiceAccountToken=True), "automountServiceAccountToken must be false"),
    "account token by default": (
        lambda pod: pod["spec"].pop("automountServiceAccountToken"),
        "automountServiceAccountToken must be false",
    ),
    "another service account": (_spec(serviceAccountName="other"), "serviceAccountName"),
    "secret volume": (_volume(secret={"secretName": "s"}), "no secret, no token, no claim"),
    "projected token": (_volume(projected={"sources": [TOKEN]}), "no secret, no token, no claim"),
    "projected secret": (_volume(projected={"sources": [{"secret": {"name": "s"}}]}), "no secret, no token, no claim"),
    "token among harmless sources": (
        _volume(projected={"sources": [{"configMap": {"name": "c"}}, TOKEN]}),
        "no secret, no token, no claim",
    ),
    "claim": (_volume(persistentVolumeClaim={"claimName": "c"}), "no secret, no token, no claim"),
    "ephemeral claim": (
        _volume(
            ephemeral={
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            }
        ),
        "no secret, no token, no claim",
    ),
    "variable from a secret": (_agent(env=[{"name": "K", "valueFrom": SECRET}]), "secretKeyRef"),
    "variable from a secret in prepare": (_second_container(env=[{"name": "K", "valueFrom": SECRET}]), "secretKeyRef"),
    "variables from a secret": (_agent(envFrom=[{"secretRef": {"name": "s"}}]), "envFrom secretRef"),
    "variables from a secret in prepare": (
        _second_container(envFrom=[{"secretRef": {"name": "s"}}]),
        "envFrom secretRef",
    ),
    "a node of its own choice": (_spec(nodeName="node-1"), "nodeName goes around the scheduler"),
    "resource claim": (
        _spec(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
        "resourceClaims are devices of the node",
    ),
    "foreign image": (_agent(image="registry.example/agent:1"), "begins with no prefix of the namespace annotation"),
    "image whose name begins alike": (
        _agent(image="localhost.example/agent:1"),
        "orchestrate: localhost.example/agent:1 begins with no prefix",
    ),
    "foreign image in prepare": (
        _second_container(image="registry.example/agent:1"),
        "begins with no prefix of the namespace annotation",
    ),
    "foreign image volume": (
        _volume(image={"reference": f"registry.example/data{DIGEST}", "pullPolicy": "Never"}),
        f"orchestrate: registry.example/data{DIGEST} begins with no prefix",
    ),
    "image volume that may be another one tomorrow": (
        _volume(image={"reference": "localhost/data:1"}),
        "an image volume needs a reference with @sha256:…",
    ),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_field_is_refused(enforced: Release, name: str) -> None:
    change, said = FORBIDDEN[name]
    if name == "another service account":  # one that exists, or the cluster itself refuses
        ask("POST", f"/api/v1/namespaces/{enforced.trials}/serviceaccounts", {"metadata": {"name": "other"}})
    pod = agent_pod("forbidden")
    change(pod)
    answer = _create(enforced, pod)
    assert (answer.status, answer.body.get("reason")) == (403, "Forbidden"), answer
    assert "orchestrate: " in answer.message
    assert said in answer.message


@pytest.mark.parametrize("class_name", ["driver", "service", "system-cluster-critical"])
def test_a_foreign_priority_class_is_refused(enforced: Release, class_name: str) -> None:
    name = class_name if class_name.startswith("system") else f"{enforced.prefix}-{class_name}"
    answer = _create(enforced, agent_pod("forbidden", priorityClassName=name))
    assert answer.status == 403, answer
    assert f"priorityClassName must be absent or one of: {enforced.prefix}-trial" in answer.message


@pytest.fixture
def without_pod_security(enforced: Release) -> Iterator[Release]:
    """Pod Security looks first; here it is turned off to see our own policy."""
    path = f"/api/v1/namespaces/{enforced.trials}"
    label = "pod-security.kubernetes.io/enforce"

    def level(value: str) -> None:
        patch = {"metadata": {"labels": {label: value}}}
        assert ask("PATCH", path, patch, kind="application/merge-patch+json").status == 200

    level("privileged")
    yield enforced
    level("restricted")


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "hostIPC"])
def test_namespaces_of_the_node_are_refused_even_without_pod_security(
    without_pod_security: Release, field: str
) -> None:
    pod = agent_pod("forbidden", **{field: True})
    answer = until(
        lambda: (got := _create(without_pod_security, pod)) and "violates PodSecurity" not in got.message and got,
        "Pod Security is off",
        30,
    )
    assert answer.status == 403, answer
    assert "orchestrate: hostNetwork, hostPID and hostIPC are the node's" in answer.message


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "hostIPC"])
def test_pod_security_refuses_namespaces_of_the_node(enforced: Release, field: str) -> None:
    answer = until(
        lambda: (got := _create(enforced, agent_pod("forbidden", **{field: True}))) and got,
        "an answer",
    )
    assert answer.status == 403
    assert "violates PodSecurity" in answer.message


def test_folders_of_the_node_are_refused(enforced: Release) -> None:
    pod = agent_pod("forbidden")
    _volume(hostPath={"path": "/"})(pod)
    assert _create(enforced, pod).status == 403


@pytest.mark.parametrize(
    "change",
    [
        lambda _pod: None,
        _label("none"),
        _volume(emptyDir={}),
        _volume(configMap={"name": "c"}),
        _volume(projected={"sources": [{"configMap": {"name": "c"}}]}),
        _volume(downwardAPI={"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}),
        _volume(image={"reference": f"localhost/data{DIGEST}"}),
    ],
    ids=["plain", "class none", "emptyDir", "configMap", "projected", "downwardAPI", "image"],
)
def test_what_pods_of_agents_need_is_allowed(enforced: Release, change: Change) -> None:
    pod = agent_pod("allowed")
    change(pod)
    answer = _create(enforced, pod)
    assert answer.status == 201, answer


def test_grading_pods_are_held_to_the_same(enforced: Release) -> None:
    pod = agent_pod("forbidden", shareProcessNamespace=True)
    assert "shareProcessNamespace" in _create(enforced, pod, enforced.grading, "grader").message
    assert _create(enforced, agent_pod("allowed"), enforced.grading, "grader").status == 201
    mounted = agent_pod("forbidden")
    _volume(image={"reference": f"localhost/data{DIGEST}"})(mounted)
    assert "is for the namespaces of trials" in _create(enforced, mounted, enforced.grading, "grader").message


def test_an_admin_is_held_to_the_same(enforced: Release) -> None:
    answer = _create(enforced, agent_pod("forbidden", shareProcessNamespace=True), user=None)
    assert answer.status == 403


def test_root_needs_users_of_its_own(enforced: Release) -> None:
    pod = agent_pod("forbidden")
    pod["spec"]["securityContext"] = {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    refused = until(
        lambda: (got := _create(enforced, pod, enforced.root)).status == 403 and got,
        "the policy for root is in force",
        30,
    )
    assert "root needs hostUsers false" in refused.message
    pod["spec"]["hostUsers"] = False
    assert _create(enforced, pod, enforced.root).status == 201
    elsewhere = _create(enforced, pod)  # Pod Security itself would take it
    assert elsewhere.status == 403
    assert "hostUsers false is for the namespace of root's trials" in elsewhere.message


@pytest.fixture
def living(enforced: Release) -> Iterator[str]:
    """The path of a pod that is there."""
    path = f"/api/v1/namespaces/{enforced.trials}/pods"
    assert ask("POST", path, agent_pod("living")).status == 201
    yield f"{path}/living"
    ask("DELETE", f"{path}/living", {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("value", ["none", "", None])
def test_the_class_of_a_pod_cannot_change(living: str, value: str | None) -> None:
    patch = {"metadata": {"labels": {"orchestrate/net-class": value}}}
    answer = ask("PATCH", living, patch, kind="application/merge-patch+json")
    assert answer.status == 403, answer
    assert "orchestrate/net-class" in answer.message


def test_nobody_joins_a_pod_later(living: str) -> None:
    container = {**agent_pod("x")["spec"]["containers"][0], "name": "debug"}
    del container["resources"]  # these have none
    patch = {"spec": {"ephemeralContainers": [container]}}
    answer = ask("PATCH", f"{living}/ephemeralcontainers", patch, kind="application/strategic-merge-patch+json")
    assert answer.status == 403, answer
    assert "no ephemeral container may join a pod" in answer.message


def test_a_pod_that_runs_outlives_other_prefixes(enforced: Release, living: str) -> None:
    path = f"/api/v1/namespaces/{enforced.trials}"
    old = ask("GET", path).body["metadata"]["annotations"]["orchestrate/image-prefixes"]

    def prefixes(value: str) -> None:
        patch = {"metadata": {"annotations": {"orchestrate/image-prefixes": value}}}
        assert ask("PATCH", path, patch, kind="application/merge-patch+json").status == 200

    prefixes("registry.example/")
    try:
        until(lambda: _create(enforced, agent_pod("new")).status == 403, "the new prefixes are in force", 30)
        patch = {"metadata": {"annotations": {"seen": "yes"}}}
        assert ask("PATCH", living, patch, kind="application/merge-patch+json").status == 200
    finally:
        prefixes(old)
    until(lambda: _create(enforced, agent_pod("new")).status == 201, "the old prefixes are in force", 30)


def test_agents_namespaces_take_no_services_and_no_claims(enforced: Release) -> None:
    service = {"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}
    answer = until(
        lambda: (
            (got := ask("POST", f"/api/v1/namespaces/{enforced.trials}/services?dryRun=All", service)).status == 403
            and got
        ),
        "the quota is in force",
        30,
    )
    assert "exceeded quota" in answer.message
