"""Labels of what tasks ask for."""

from __future__ import annotations

import json

from orchestrator.plan.labels import network_labels
from orchestrator.spec.task import Environment


def _environments(**networks: object) -> dict[str, Environment]:
    return {
        task: Environment.model_validate_json(json.dumps({"network": network})) for task, network in networks.items()
    }


def test_a_run_says_which_tasks_reach_the_outside() -> None:
    assert network_labels(_environments(a="model_only")) == {}
    found = network_labels(_environments(a="model_only", b="public", c={"allowlist": ["x.example"]}, d="public"))
    assert found == {"network": "unfrozen: 1 task reaches listed hosts; 2 tasks reach any public host (b, d)"}
