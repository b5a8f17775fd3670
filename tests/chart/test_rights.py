"""Who may ask the API server for what: the whole table, and nothing beside it."""

from __future__ import annotations

from typing import Any

import pytest
from chart_world import FULL, SYSTEM, of, render

pytestmark = pytest.mark.chart

SHARDS = ("orchestrate-trials-0", "orchestrate-trials-1", "orchestrate-trials-root")
GRADING = "orchestrate-grading"
DRIVERS = ("orchestrate-drivers-search", "ads-eval")

PODS = {("", "pods", verb) for verb in ("create", "get", "list", "watch", "delete")}
REAPED = {("", "pods", verb) for verb in ("get", "list", "watch", "delete")} | {
    ("coordination.k8s.io", "leases", verb) for verb in ("get", "list", "watch")
}
EVENTS = {("", "events", "list")}
LEASES = {("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")}
SUBMITTED = (
    {("", "configmaps/orchestrate-driver", "get"), ("", "pods", "get"), ("", "pods", "list"), ("", "pods/log", "get")}
    | {("batch", "jobs", verb) for verb in ("create", "get", "list", "delete")}
    | EVENTS
)


def _account(namespace: str, name: str) -> str:
    return f"ServiceAccount {namespace}/{name}"


def _table() -> dict[str, dict[str, set[tuple[str, str, str]]]]:
    """Who → namespace → rights."""
    expected: dict[str, dict[str, set[tuple[str, str, str]]]] = {}
    for drivers in DRIVERS:
        expected[_account(drivers, "driver")] = {
            SHARDS[0]: PODS | EVENTS | LEASES,
            SHARDS[1]: PODS | EVENTS,
            SHARDS[2]: PODS | EVENTS,
        }
    expected[_account("orchestrate-grader", "grader")] = {GRADING: PODS | EVENTS}
    expected[_account(SYSTEM, "reaper")] = dict.fromkeys((*SHARDS, GRADING), REAPED) | {
        SHARDS[0]: REAPED | {("coordination.k8s.io", "leases", "delete")}
    }
    expected["Group /search"] = {DRIVERS[0]: SUBMITTED}
    return expected


def _rights(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, f"{resource}/{name}" if name else resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_the_table_of_rights_is_exact():
    objects = render(FULL)
    assert not [each for each in objects if each["kind"] in ("ClusterRole", "ClusterRoleBinding")]
    roles = {(each["metadata"]["namespace"], each["metadata"]["name"]): _rights(each) for each in of(objects, "Role")}
    found: dict[str, dict[str, set[tuple[str, str, str]]]] = {}
    for binding in of(objects, "RoleBinding"):
        namespace = binding["metadata"]["namespace"]
        rights = roles[namespace, binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            who = f"{subject['kind']} {subject.get('namespace', '')}/{subject['name']}"
            found.setdefault(who, {}).setdefault(namespace, set()).update(rights)
    assert found == _table()


def test_no_right_is_a_star_or_reaches_into_a_pod():
    rights = set().union(*(_rights(each) for each in of(render(FULL), "Role")))
    assert not [each for each in rights if "*" in each]
    assert not {"secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers"} & {
        each[1] for each in rights
    }


def test_every_account_mounts_no_token_of_its_own_accord():
    accounts = of(render(FULL), "ServiceAccount")
    assert {each["metadata"]["name"] for each in accounts} == {"gateway", "relay", "reaper", "grader", "driver"}
    assert all(each["automountServiceAccountToken"] is False for each in accounts)
