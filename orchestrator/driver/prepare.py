"""Before a run starts: refuse what cannot be run, publish bundles, write the manifest once."""

from __future__ import annotations

from orchestrator import wiring
from orchestrator.driver.local import Place
from orchestrator.driver.order import Loaded, Order, build_manifest, refuse
from orchestrator.errors import Problem, SpecError
from orchestrator.interfaces import SandboxBackend
from orchestrator.plan.refuse import refusals
from orchestrator.records import keys
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings
from orchestrator.spec.bundle import Bundle
from orchestrator.spec.loaded import LoadedAgent
from orchestrator.storage.bundles import publish as publish_bundle


def check_order(loaded: Loaded, backend: SandboxBackend, settings: Settings) -> None:
    """Raise RefusedError with everything that this version, backend or configuration cannot give."""
    agents = [(agent.name, agent.agent) for agent in loaded.agents]
    reasons = refusals((task.task for task in loaded.tasks), agents, backend, wiring.agent_refusals)
    for agent in loaded.agents:
        reasons += _solution_refusals(agent.name, loaded)
        reasons += _model_refusals(agent.name, tuple(agent.agent.models.values()), settings)
        reasons += _script_refusals(agent, loaded)
    refuse(reasons)


def _solution_refusals(name: str, loaded: Loaded) -> list[str]:
    if name != "oracle":
        return []
    missing = [task.task.id for task in loaded.tasks if name not in task.bundles.solutions]
    return [f"agent oracle: task {task} has no solution/solve.sh" for task in missing]


def _model_refusals(name: str, models: tuple[str, ...], settings: Settings) -> list[str]:
    known = {"scripted", *settings.providers}
    missing = sorted({model.split("/", 1)[0] for model in models} - known)
    return [
        f"agent {name}: provider {provider!r} is not configured; add [providers.{provider}] to orchestrate.toml"
        " or set OPENAI_API_KEY or ANTHROPIC_API_KEY"
        for provider in missing
    ]


def _script_refusals(agent: LoadedAgent, loaded: Loaded) -> list[str]:
    if agent.scripts is None:
        return []
    there = {item.path for item in agent.scripts.items}
    missing = [task.task.id for task in loaded.tasks if f"{task.task.id}.json" not in there]
    return [f"agent {agent.name}: its scripts have no conversation for task {task}" for task in missing]


async def publish(
    place: Place, order: Order, loaded: Loaded, labels: dict[str, str], grader_version: str
) -> RunManifest:
    """Upload every bundle of the run, then create its manifest. Raises SpecError when the run id is taken."""
    for audience, bundle in _bundles(loaded):
        await publish_bundle(place.store, audience, bundle)
    manifest = build_manifest(order, loaded, place.backend.name, labels, grader_version)
    if not await place.store.create(keys.manifest(manifest.run), manifest.to_bytes()):
        raise SpecError(
            [Problem(manifest.run, message="there is a run of that name; choose another --run-id, or resume it")]
        )
    return manifest


def _bundles(loaded: Loaded) -> list[tuple[keys.Audience, Bundle]]:
    found: list[tuple[keys.Audience, Bundle]] = []
    for task in loaded.tasks:
        found += [("sandbox", task.bundles.sandbox), ("world", task.bundles.world), ("graders", task.bundles.graders)]
        found += [("solutions", bundle) for bundle in task.bundles.solutions.values()]
    for agent in loaded.agents:
        if agent.bundle is not None:
            found.append(("sandbox", agent.bundle))
        if agent.scripts is not None:
            found.append(("world", agent.scripts))
    return found
