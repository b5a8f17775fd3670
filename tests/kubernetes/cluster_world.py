"""Pods to try things with."""

from __future__ import annotations

from orchestrator.sandbox.kubernetes import names


def pod(name: str, labels: dict[str, str] | None = None, **spec: object) -> dict:
    """Return a pod with the containers of a trial."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {names.MANAGED_BY: names.OURS} if labels is None else labels},
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": names.PREPARE, "image": "localhost/pod:1"}],
            "containers": [
                {"name": names.AGENT, "image": "localhost/task:1"},
                {"name": names.FREEZER, "image": "localhost/pod:1"},
            ],
            **spec,
        },
    }
