"""A namespace of drivers on a played API server, as the chart leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fault_server import FaultServer

from orchestrator import __version__
from orchestrator.driver.kubernetes.job import render_job
from orchestrator.driver.kubernetes.site import CONFIGMAP
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.resources import CONFIGMAPS, JOBS, PODS
from orchestrator.settings import Settings, load_settings

DRIVERS = "orchestrate-drivers-default"
TOML = """
store = "s3://theirs/runs"
backend = "kubernetes"
pool = "ray"
supervisors = 1
[limits]
cost_usd = 50.0
[providers.acme]
base_url = "http://acme/v1"
[prices."acme/one"]
input = 1.0
output = 2.0
[kubernetes]
namespaces = ["orchestrate-trials-0"]
pod_image = "pod@sha256:1"
task_image = "task@sha256:2"
"""
TEMPLATE = """
apiVersion: batch/v1
kind: Job
metadata:
  labels: {team: default}
spec:
  backoffLimit: 6
  template:
    metadata:
      labels: {team: default}
    spec:
      restartPolicy: Never
      containers:
        - name: driver
          image: control@sha256:3
          command: [orchestrate]
"""


async def install(api: Api, **data: str | None) -> None:
    """Put the ConfigMap there; keys with None are left out."""
    every = {"orchestrate.toml": TOML, "job.yaml": TEMPLATE, "version": __version__, **data}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIGMAP},
        "data": {key: text for key, text in every.items() if text is not None},
    }
    await api.create(CONFIGMAPS, DRIVERS, body)


def here(folder: Path, text: str = "", **typed: Any) -> Settings:
    """Return this machine's own settings."""
    (folder / "orchestrate.toml").write_text(text)
    return load_settings(folder, {}, {name.replace("__", "."): value for name, value in typed.items()})


async def add_job(api: Api, run: str, number: int, *conditions: dict[str, str]) -> dict[str, Any]:
    """Put a Job of a run there."""
    plain = {"kind": "Job", "spec": {"template": {"spec": {"containers": [{"name": "driver"}]}}}}
    return await api.create(
        JOBS, DRIVERS, render_job(plain, run, number, ()) | {"status": {"conditions": [*conditions]}}
    )


async def add_pod(server: FaultServer, job: dict[str, Any], **status: Any) -> str:
    """Put a pod of a Job there, with a status."""
    name = f"{job['metadata']['name']}-abcde"
    labels = {**job["spec"]["template"]["metadata"]["labels"], "batch.kubernetes.io/job-name": job["metadata"]["name"]}
    pod = {"metadata": {"name": name, "namespace": DRIVERS, "labels": labels}, "spec": {}, "status": status}
    server.objects.add(("pods", DRIVERS, name), pod)
    assert PODS.plural == "pods"
    return name
