"""The permission matrix, as the API server itself answers: every identity, every namespace, every verb, with subresources."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from installed_world import Release, ask

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RESOURCES = (
    ("", "pods", ""),
    ("", "pods", "log"),
    ("", "pods", "exec"),
    ("", "pods", "attach"),
    ("", "pods", "portforward"),
    ("", "pods", "proxy"),
    ("", "pods", "eviction"),
    ("", "pods", "status"),
    ("", "pods", "ephemeralcontainers"),
    ("", "pods", "binding"),
    ("", "events", ""),
    ("", "secrets", ""),
    ("", "configmaps", ""),
    ("", "services", ""),
    ("", "serviceaccounts", "token"),
    ("", "persistentvolumeclaims", ""),
    ("apps", "deployments", ""),
    ("batch", "jobs", ""),
    ("coordination.k8s.io", "leases", ""),
    ("networking.k8s.io", "networkpolicies", ""),
    ("rbac.authorization.k8s.io", "rolebindings", ""),
)
CLUSTER = (
    ("", "nodes", ""),
    ("", "nodes", "proxy"),
    ("", "namespaces", ""),
    ("", "persistentvolumes", ""),
    ("rbac.authorization.k8s.io", "clusterrolebindings", ""),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    ("certificates.k8s.io", "certificatesigningrequests", "approval"),
)
IDENTITIES = ("driver", "grader", "reaper", "gateway", "relay", "agent", "grading", "system-default", "person")

Right = tuple[str, str, str, str]
"""Namespace (empty: the cluster), group, resource with subresource, verb."""


def _rights(namespace: str, group: str, resource: str, *verbs: str) -> set[Right]:
    return {(namespace, group, resource, verb) for verb in verbs}


def _expected(installed: Release) -> dict[str, set[Right]]:
    made = ("create", "get", "list", "watch", "delete")
    driver, reaper = set(), set()
    for namespace in (installed.trials, installed.root):
        driver |= _rights(namespace, "", "pods", *made) | _rights(namespace, "", "events", "list")
    driver |= _rights(installed.trials, "coordination.k8s.io", "leases", "create", "get", "update")
    for namespace in (installed.trials, installed.root, installed.grading):
        reaper |= _rights(namespace, "", "pods", "get", "list", "watch", "delete")
        reaper |= _rights(namespace, "coordination.k8s.io", "leases", "get", "list", "watch")
    reaper |= _rights(installed.trials, "coordination.k8s.io", "leases", "delete")
    grader = _rights(installed.grading, "", "pods", *made) | _rights(installed.grading, "", "events", "list")
    person = (
        _rights(installed.drivers, "batch", "jobs", "create", "get", "list", "delete")
        | _rights(installed.drivers, "", "pods", "get", "list")
        | _rights(installed.drivers, "", "pods/log", "get")
        | _rights(installed.drivers, "", "events", "list")
    )
    return {"driver": driver, "grader": grader, "reaper": reaper, "person": person}


def _allowed(user: str, namespace: str, group: str, resource: str, subresource: str, verb: str) -> bool:
    attributes = {"group": group, "resource": resource, "subresource": subresource, "verb": verb}
    if namespace:
        attributes["namespace"] = namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body, user=user)
    assert answer.status == 201, answer
    return bool(answer.body["status"]["allowed"])


def _found(user: str, namespaces: list[str]) -> set[Right]:
    questions = [
        *(
            (space, *what, verb)
            for space, what, verb in product([*namespaces, "kube-system", "default"], RESOURCES, VERBS)
        ),
        *(("", *what, verb) for what, verb in product(CLUSTER, VERBS)),
    ]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: _allowed(user, *each), questions))
    return {
        (space, group, f"{resource}/{sub}" if sub else resource, verb)
        for (space, group, resource, sub, verb), allowed in zip(questions, answers, strict=True)
        if allowed
    }


@pytest.mark.parametrize("identity", IDENTITIES)
def test_what_an_identity_may_do_is_exact(installed: Release, identity: str) -> None:
    found = _found(installed.account(identity), installed.namespaces)
    assert found == _expected(installed).get(identity, set())


def test_a_person_reads_one_configmap_of_the_drivers(installed: Release) -> None:
    path = f"/api/v1/namespaces/{installed.drivers}/configmaps"
    person = installed.account("person")
    assert ask("GET", f"{path}/orchestrate-driver", user=person).status == 200
    assert ask("GET", f"{path}/kube-root-ca.crt", user=person).status == 403
    assert ask("GET", path, user=person).status == 403


def test_nobody_may_become_somebody_else(installed: Release) -> None:
    for identity in IDENTITIES:
        for resource in ("users", "groups", "serviceaccounts"):
            assert not _allowed(installed.account(identity), installed.system, "", resource, "", "impersonate")
        for resource in ("roles", "clusterroles"):
            for verb in ("bind", "escalate"):
                user = installed.account(identity)
                assert not _allowed(user, installed.system, "rbac.authorization.k8s.io", resource, "", verb)
