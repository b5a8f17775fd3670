"""The published JSON form of a report. Keys and their order are stable; what is not measured yet is absent."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from orchestrator.records.manifest import RunManifest
from orchestrator.report.summary import RESULTS, AgentSummary, Counts, Summary, TaskSummary
from orchestrator.stats.quantiles import Dist
from orchestrator.stats.rates import Rate
from orchestrator.stats.trajectory import Metrics

SCHEMA_VERSION = 1


def as_json(summary: Summary) -> dict[str, Any]:
    """Return the report as JSON values. Two runs of one submission differ only in ids, times and durations."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run": summary.manifest.run,
        "manifest": _manifest(summary),
        "agents": [_agent(agent) for agent in summary.agents],
        "tasks": [_task(task) for task in summary.tasks],
        "notes": list(summary.notes),
    }


def _manifest(summary: Summary) -> dict[str, Any]:
    manifest: RunManifest = summary.manifest
    return {
        "origin": manifest.origin,
        "created_at": manifest.created_at.isoformat(),
        "orchestrate_version": manifest.orchestrate_version,
        "code": {"commit": manifest.code.commit, "dirty": manifest.code.dirty},
        "suite": manifest.suite,
        "suite_digest": manifest.suite_digest,
        "metric": manifest.metric,
        "k": manifest.k,
        "seed": manifest.seed,
        "backend": manifest.backend,
        "labels": {name: list(values) for name, values in summary.labels.items()},
        "images": {
            task.id: {"image": task.environment.image, "id": task.image_id}
            for task in manifest.tasks
            if task.image_id is not None
        },
        "pool": manifest.pool,
        "price_table": manifest.price_table,
        "prices": {
            agent.name: {model: known.model_dump(mode="json") for model, known in agent.prices.items()}
            for agent in manifest.agents
        },
        "grader_version": summary.grader_version,
        "rerun_of": manifest.rerun_of,
        "chosen_by": list(manifest.chosen_by),
        "agents": {agent.name: agent.digest for agent in manifest.agents},
        "tasks": {task.id: task.digest for task in manifest.tasks},
    }


def _agent(agent: AgentSummary) -> dict[str, Any]:
    return {
        "agent": agent.agent,
        "counts": counts_json(agent.counts),
        "pass_rate": rate_json(agent.pass_rate),
        "pass_at_k": {str(k): rate_json(rate) for k, rate in agent.pass_at_k.items()},
        "pass_hat_k": {str(k): rate_json(rate) for k, rate in agent.pass_hat_k.items()},
        "cost_usd": dist_json(agent.cost_usd),
        "user_cost_usd": dist_json(agent.user_cost_usd),
        "judge_cost_usd": dist_json(agent.judge_cost_usd),
        "latency_s": dist_json(agent.latency_s),
        "waiting_s": dist_json(agent.waiting_s),
        "steps": dist_json(agent.steps),
        "metrics": {form: metrics_json(found) for form, found in agent.metrics.items()},
        "termination_reason": dict(agent.termination_reason),
        "findings": dict(agent.findings),
        "left_recording": agent.left_recording,
        "infra_share": agent.counts.infra_share,
        "lost_launches": dict(agent.lost_causes),
    }


def _task(task: TaskSummary) -> dict[str, Any]:
    return {
        "task": task.task,
        "agent": task.agent,
        "tier": task.tier,
        "kind": task.kind,
        "expect": task.expect,
        "counts": counts_json(task.counts),
        "pass_rate": rate_json(task.pass_rate),
        "state": task.state,
        "left_recording": task.left_recording,
        "failed_checks": dict(task.failed_checks),
        "graders": list(task.graders),
    }


def counts_json(counts: Counts) -> dict[str, int]:
    """Return trials by word, ``planned`` first."""
    return {"planned": counts.planned, **{word: counts.of(word) for word in RESULTS}}


def rate_json(rate: Rate) -> dict[str, Any]:
    """Return a rate with its denominator, interval and reason."""
    found = asdict(rate)
    # The names of the tasks are in the reason already.
    del found["left_out"]
    return found


def metrics_json(metrics: Metrics) -> dict[str, Any]:
    """Return the nine trajectory metrics of one form."""
    found: dict[str, Any] = {}
    for field in fields(metrics):
        value = getattr(metrics, field.name)
        found[field.name] = (
            rate_json(value)
            if isinstance(value, Rate)
            else dist_json(value)
            if isinstance(value, Dist)
            else dict(value)
        )
    return found


def dist_json(dist: Dist) -> dict[str, Any]:
    """Return a distribution."""
    return asdict(dist)
