"""The agent files that come with the project: readable, runnable, and pinned to the byte."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.agents.render import refusals
from orchestrator.plan.published import published_price
from orchestrator.spec.agents import load_agent

AGENTS = Path(__file__).resolve().parents[2] / "manifests" / "agents"


@pytest.mark.parametrize("path", sorted(AGENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_it_can_be_run(path: Path) -> None:
    assert refusals(load_agent(path).agent) == []


@pytest.mark.parametrize("name", ["claude-code", "codex", "mini-swe-agent", "langgraph"])
def test_its_model_has_a_known_price(name: str) -> None:
    for model in load_agent(AGENTS / f"{name}.yaml").agent.models.values():
        assert published_price(model, None, datetime.now(UTC)) is not None


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_package_of_npm_is_pinned_by_version_and_integrity(name: str) -> None:
    packages = json.loads((AGENTS / name / "package-lock.json").read_text())["packages"]
    assert set(packages.pop("")["dependencies"].values()) == {load_agent(AGENTS / f"{name}.yaml").agent.version}
    assert packages
    for each in packages.values():
        assert each["integrity"].startswith("sha512-")


@pytest.mark.parametrize("path", sorted(AGENTS.glob("*/requirements.txt")), ids=lambda path: path.parent.name)
def test_packages_of_pypi_are_pinned_by_version_and_digest(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    named = [line for line in lines if not line.startswith(" ")]
    assert len(named) > 10
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+ \\", line) for line in named)
    assert all(line.startswith("    --hash=sha256:") for line in lines if line.startswith(" "))
    build = load_agent(path.parent.with_suffix(".yaml")).agent.build or ""
    assert "--require-hashes" in build
    assert "--no-deps" in build
