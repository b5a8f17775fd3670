"""A small manifest made by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestrator.records.manifest import Bundles, Code, ManifestAgent, ManifestTask, RunManifest
from orchestrator.spec.agent import Agent
from orchestrator.spec.task import Budgets, Environment

DIGEST = "sha256:" + "0" * 64


def task(name: str, samples: int = 2, **solutions: str) -> ManifestTask:
    return ManifestTask(
        id=name,
        version=1,
        digest=DIGEST,
        kind="capability",
        tier=1,
        expect="complete",
        environment=Environment(),
        budgets=Budgets(),
        samples=samples,
        bundles=Bundles(
            sandbox=DIGEST, world=DIGEST, graders=DIGEST, solutions={f"wrong/{n}": d for n, d in solutions.items()}
        ),
    )


def agent(name: str) -> ManifestAgent:
    return ManifestAgent(name=name, digest=DIGEST, agent=Agent(type="nop"))


def make_manifest() -> RunManifest:
    return RunManifest(
        run="r1",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        orchestrate_version="0",
        code=Code(),
        suite="s",
        suite_digest=DIGEST,
        metric="pass_rate",
        k=1,
        tasks=(task("a", lazy=DIGEST), task("b")),
        agents=(agent("nop"), agent("wrong/lazy")),
        seed=7,
        backend="bubblewrap",
        pool="inline",
    )


@pytest.fixture
def manifest() -> RunManifest:
    return make_manifest()


@pytest.fixture(scope="module")
def manifest_of_six() -> RunManifest:
    return make_manifest()
