"""The clients that people use, as their registries have them, in sandboxes with scripted models: from the task to the verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from client_agents import CLIENTS, asking_suite, check_trial, clients_project
from real_agents import TASK, kept_cache, orchestrate

pytestmark = [pytest.mark.registry, pytest.mark.timeout(600)]


def test_the_clients_finish_a_starter_task(
    tmp_path: Path, request: pytest.FixtureRequest, subtests: pytest.Subtests
) -> None:
    agents = clients_project(tmp_path, kept_cache(request))
    orchestrate(tmp_path, "submit", asking_suite(tmp_path), *agents, "--samples", "1", "-n", "4", "--yes")
    for client in CLIENTS:
        trial = f"{TASK}@{client.agent}"
        with subtests.test(client.agent):
            shown = json.loads(orchestrate(tmp_path, "show", "last", trial, "--json"))
            logs = orchestrate(tmp_path, "logs", "last", trial, "--json")
            check_trial(client, shown, [json.loads(line) for line in logs.splitlines()])
