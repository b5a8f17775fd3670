"""Installing, upgrading and uninstalling around what runs and what is kept."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from installed_world import Release, agent_pod, ask, get, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


@pytest.fixture
def running_agent(ready: Release) -> Iterator[str]:
    """The path of an agent's pod that runs."""
    path = f"/api/v1/namespaces/{ready.trials}/pods"
    assert ask("POST", path, agent_pod("agent"), user=ready.account("driver")).status == 201
    until(lambda: get(f"{path}/agent")["status"]["phase"] == "Running", "the agent runs")
    yield f"{path}/agent"
    ask("DELETE", f"{path}/agent", {"gracePeriodSeconds": 0})


def _uids(installed: Release, *apps: str) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for app in apps
        for pod in installed.pods(installed.system, f"app={app}")
    }


def _secrets(installed: Release) -> dict[str, Any]:
    return {
        f"{namespace}/{each['metadata']['name']}": each["data"]
        for namespace in (installed.system, installed.grader, installed.drivers)
        for each in get(f"/api/v1/namespaces/{namespace}/secrets")["items"]
        if each["metadata"]["name"].startswith("orchestrate-")
    }


def _generation(installed: Release) -> int:
    path = f"/apis/apps/v1/namespaces/{installed.system}/statefulsets/gateway"
    return int(get(path)["metadata"]["generation"])


def test_an_upgrade_disturbs_nothing_that_runs(ready: Release, running_agent: str) -> None:
    pods, agent, secrets = _uids(ready, "gateway", "store"), get(running_agent), _secrets(ready)
    generation = _generation(ready)
    ready.helm(
        "upgrade",
        over={"quotas": {"trials": {"pods": "77"}}, "driver": {"concurrency": 3}, "gateway": {"limits": {"calls": 9}}},
    )
    assert get(f"/api/v1/namespaces/{ready.trials}/resourcequotas/orchestrate")["spec"]["hard"]["pods"] == "77"
    config = get(f"/api/v1/namespaces/{ready.drivers}/configmaps/orchestrate-driver")["data"]["orchestrate.toml"]
    assert "concurrency = 3" in config
    until(lambda: _generation(ready) > generation, "the gateway's controller knows the new pod", 30)
    ready.await_ready()
    assert _uids(ready, "gateway", "store") == pods
    now = get(running_agent)
    assert now["metadata"]["uid"] == agent["metadata"]["uid"]
    assert now["status"]["containerStatuses"] == agent["status"]["containerStatuses"]
    assert _secrets(ready) == secrets
    ready.helm("upgrade")


def _bucket(installed: Release) -> Any:
    import boto3
    from botocore.config import Config

    def plain(name: str) -> str:
        data = get(f"/api/v1/namespaces/{installed.drivers}/secrets/orchestrate-store-submitter")["data"]
        return base64.b64decode(data[name]).decode()

    address = get(f"/api/v1/namespaces/{installed.system}/services/store")["spec"]["clusterIP"]
    return boto3.client(
        "s3",
        endpoint_url=f"http://{address}:8333",
        aws_access_key_id=plain("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=plain("AWS_SECRET_ACCESS_KEY"),
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 8}),
    )


def test_uninstalling_leaves_the_data_and_the_walls(ready: Release, running_agent: str) -> None:
    _bucket(ready).put_object(Bucket="orchestrate", Key="store/runs/kept/manifest.json", Body=b"kept")
    secrets = _secrets(ready)
    ready.helm("uninstall", "--wait", "--timeout", "120s")
    try:
        assert {each["metadata"]["name"] for each in get("/api/v1/namespaces")["items"]} >= set(ready.namespaces)
        assert _secrets(ready) == secrets
        for namespace in ready.namespaces:
            policies = get(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")["items"]
            assert [each["metadata"]["name"] for each in policies] == ["default-deny"]
        assert get(running_agent)["status"]["phase"] == "Running"
        assert until(lambda: not ready.pods(ready.system), "the services are gone", 120)
        claim = get(f"/api/v1/namespaces/{ready.system}/persistentvolumeclaims/data-store-0")
        assert claim["status"]["phase"] == "Bound"
    finally:
        ready.helm("install")
    ready.await_ready()
    kept = _bucket(ready).get_object(Bucket="orchestrate", Key="store/runs/kept/manifest.json")
    assert kept["Body"].read() == b"kept"
    assert _secrets(ready) == secrets


def test_a_store_s_pod_may_be_replaced(ready: Release) -> None:
    _bucket(ready).put_object(Bucket="orchestrate", Key="store/runs/replaced/manifest.json", Body=b"kept")
    before = _uids(ready, "store")
    assert ask("DELETE", f"/api/v1/namespaces/{ready.system}/pods/store-0").status == 200
    until(lambda: _uids(ready, "store") not in ({}, before), "another pod is there")
    ready.await_ready()
    found = _bucket(ready).get_object(Bucket="orchestrate", Key="store/runs/replaced/manifest.json")
    assert found["Body"].read() == b"kept"


def test_the_driver_s_job_is_one_that_the_cluster_takes(ready: Release) -> None:
    from ruamel.yaml import YAML

    text = get(f"/api/v1/namespaces/{ready.drivers}/configmaps/orchestrate-driver")["data"]["job.yaml"]
    job = json.loads(json.dumps(YAML(typ="safe").load(text)))
    job["metadata"]["name"] = "orchestrate-try"
    path = f"/apis/batch/v1/namespaces/{ready.drivers}/jobs?dryRun=All"
    answer = ask("POST", path, job, user=ready.account("person"))
    assert answer.status == 201, answer


def test_helm_test_is_green(ready: Release) -> None:
    path = f"/api/v1/namespaces/{ready.drivers}/pods/orchestrate-doctor"
    said = []
    for _ in range(3):  # it asks with a person's patience, and other tests keep the node busy
        try:
            ready.helm("test", "--timeout", "300s")
        except AssertionError:
            said.append(ask("GET", f"{path}/log").message)
        else:
            break
    assert get(path)["status"]["phase"] == "Succeeded", "\n".join(said)
