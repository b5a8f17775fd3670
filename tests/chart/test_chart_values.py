"""Wrong values are refused before anything is installed, and the refusal says which."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from chart_world import CHART, MERGED, NEEDED, SYSTEM, run_helm

from orchestrator.settings.models import MOST_IN_FLIGHT

pytestmark = pytest.mark.chart


def _with(path: str, value: Any, base: dict[str, Any] = NEEDED) -> dict[str, Any]:
    values = copy.deepcopy(base)
    here = values
    *parents, last = path.split(".")
    for part in parents:
        here = here.setdefault(part, {})
    here[last] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("images.control", "", "/images/control"),
        ("images.pod", "registry.example/pod", "/images/pod"),
        ("images.pod", "registry.example/pod:latest", "can change under a run"),
        ("images.prefixes", ["registry.example/tasks"], "/images/prefixes/0"),
        ("gateway.replicsa", 3, "replicsa"),
        ("gateway.replicas", 0, "/gateway/replicas"),
        (
            "gateway.providers",
            {"openai": {"baseUrl": "https://x", "key": "sk-secret"}},
            "/gateway/providers/openai/key",
        ),
        ("gateway.providers", {"openai": {"baseUrl": "https://user:pass@x"}}, "/gateway/providers/openai/baseUrl"),
        ("gateway.egress", [{"ports": [{"port": 443}]}], "missing property 'to'"),
        ("gateway.storage", {"type": "hostPath", "size": "1Gi", "path": ""}, "/gateway/storage/path"),
        ("store.url", "http://bucket", "/store/url"),
        ("store.url", "", "no store"),
        ("store.bundled", {"enabled": True}, "two stores"),
        ("apiServer.cidrs", ["10.0.0.1"], "/apiServer/cidrs/0"),
        ("apiServer.cidrs", [], "kubernetes.io/service-name=kubernetes"),
        ("trials.cpuRequestShare", 0, "/trials/cpuRequestShare"),
        ("trials.runtimeClasses", {"firecracker": "x"}, "firecracker"),
        ("teams", [], "/teams"),
        ("teams", [{"name": "A"}], "/teams/0/name"),
        (
            "teams",
            [{"name": "a", "namespace": "x"}, {"name": "b", "namespace": "x"}],
            "two teams have the same namespace",
        ),
        ("namespaces.grading", SYSTEM, "agents would share it with the keys"),
        ("namespaces.trials.names", ["orchestrate-drivers-default"], "agents would share it with the drivers' keys"),
        ("teams", [{"name": "a", "namespace": SYSTEM}], "whoever may submit could read the services' keys"),
        ("reaper.graceSeconds", 1, "/reaper/graceSeconds"),
    ],
)
def test_a_wrong_value_is_refused_by_name(path: str, value: Any, said: str) -> None:
    done = run_helm(_with(path, value))
    assert done.returncode != 0
    assert said in done.stderr


def test_two_namespaces_are_too_few() -> None:
    done = run_helm(_with("teams", [{"name": "ours", "namespace": "eval-agents"}], MERGED))
    assert done.returncode != 0
    assert "at least three namespaces are needed" in done.stderr


def test_namespaces_are_spoken_of_only_where_they_are_the_mistake() -> None:
    done = run_helm(_with("store.url", ""))
    assert done.returncode != 0
    assert "three namespaces" not in done.stderr


def test_services_do_not_live_in_the_default_namespace() -> None:
    done = run_helm(NEEDED, namespace="default")
    assert done.returncode != 0
    assert "install with -n orchestrate-system" in done.stderr


def test_all_mistakes_are_told_at_once() -> None:
    done = run_helm(_with("gateway.replicas", 0, _with("relay.replicas", "two")))
    assert "/gateway/replicas" in done.stderr
    assert "/relay/replicas" in done.stderr


def test_the_chart_allows_as_many_trials_at_one_time_as_the_program():
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"]["driver"]["properties"]["concurrency"]["maximum"] == MOST_IN_FLIGHT
