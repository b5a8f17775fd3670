"""What a run cannot promise because of what its tasks ask for, as labels of its manifest."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.spec.agent import Agent
from orchestrator.spec.task import Environment


def network_labels(environments: Mapping[str, Environment]) -> dict[str, str]:
    """Return the label of a run with tasks that reach the outside; ``environments`` is by task."""
    public = sorted(task for task, environment in environments.items() if environment.network == "public")
    listed = sum(not isinstance(environment.network, str) for environment in environments.values())
    said = []
    if listed:
        said.append(f"{_tasks(listed)} {'reaches' if listed == 1 else 'reach'} listed hosts")
    if public:
        said.append(
            f"{_tasks(len(public))} {'reaches' if len(public) == 1 else 'reach'} any public host ({', '.join(public[:3])})"
        )
    return {"network": "unfrozen: " + "; ".join(said)} if said else {}


def agent_labels(agents: Mapping[str, Agent]) -> dict[str, str]:
    """Return the label of a run with agents that act where nothing is counted; ``agents`` is by name."""
    outside = sorted(name for name, agent in agents.items() if agent.type == "http")
    if not outside:
        return {}
    return {"agents": f"act at an endpoint, where models, steps and cost are not seen ({', '.join(outside[:3])})"}


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"
