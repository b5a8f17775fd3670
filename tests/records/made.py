"""What tests need that are about something else: manifests of which they say what matters, and an observer that tells nobody."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from orchestrator.records.manifest import Bundles, Code, ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.prices import KnownPrice
from orchestrator.spec.agent import Agent
from orchestrator.spec.task import Budgets, Environment

DIGEST = "sha256:" + "0" * 64
"""Of everything."""


def made_task(name: str = "t", *, solutions: dict[str, str] | None = None, **more: Any) -> ManifestTask:
    """Return a task; ``more`` are fields of it."""
    fields: dict[str, Any] = {
        "version": 1,
        "digest": DIGEST,
        "kind": "capability",
        "tier": 1,
        "expect": "complete",
        "environment": Environment(),
        "budgets": Budgets(),
        "samples": 1,
        "bundles": Bundles(sandbox=DIGEST, world=DIGEST, graders=DIGEST, solutions=solutions or {}),
    }
    return ManifestTask(**{**fields, "id": name, **more})


def made_agent(name: str = "a", agent: Agent | None = None) -> ManifestAgent:
    """Return an agent that does nothing, or this one, whose models cost what its file says."""
    agent = agent or Agent(type="nop")
    return ManifestAgent(name=name, digest=DIGEST, agent=agent, prices=made_prices(agent))


def made_prices(agent: Agent) -> dict[str, KnownPrice]:
    """Return what the models of an agent cost by its file."""
    return {model: KnownPrice(price=price, source="agent file") for model, price in agent.prices.items()}


def made_run(*tasks: ManifestTask, agents: tuple[ManifestAgent, ...] = (), **more: Any) -> RunManifest:
    """Return a run of these tasks, or of one, by these agents, or by one; ``more`` are fields of it."""
    fields: dict[str, Any] = {
        "run": "r1",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "orchestrate_version": "0",
        "code": Code(),
        "suite": "s",
        "suite_digest": DIGEST,
        "metric": "pass_rate",
        "k": 1,
        "seed": 7,
        "backend": "bubblewrap",
        "pool": "inline",
    }
    return RunManifest(**{**fields, "tasks": tasks or (made_task(),), "agents": agents or (made_agent(),), **more})


class Silent:
    """An observer of trials that nobody listens to."""

    def phase(self, *_: object) -> None: ...
    def begins(self, *_: object) -> None: ...
    def waits(self, *_: object) -> None: ...
    def launch_failed(self, *_: object) -> None: ...
    def ended(self, *_: object) -> None: ...
