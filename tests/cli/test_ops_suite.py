"""The suite over worlds measures what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

SUITE = Path(__file__).resolve().parents[2] / "tasks/ops"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_oracles_pass_and_every_mistake_is_caught(orchestrate) -> None:
    validated = orchestrate("validate", SUITE, timeout=280)
    assert validated.returncode == 0, validated.stdout + validated.stderr
    tasks = len(list(SUITE.glob("*/task.yaml")))
    assert f"{tasks} of {tasks} tasks are valid" in validated.stdout
