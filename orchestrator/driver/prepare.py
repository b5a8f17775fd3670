"""Before a run starts: refuse what cannot be run, publish bundles, write the manifest once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from orchestrator import wiring
from orchestrator.driver.builds import with_builds
from orchestrator.driver.images import CONTAINER, present_images, unused_images, with_default_image
from orchestrator.driver.limits import InForce
from orchestrator.driver.order import (
    Loaded,
    Order,
    Ready,
    build_manifest,
    manifest_agent,
    refuse,
    sizes_of,
    user_price,
    with_prices,
)
from orchestrator.driver.place import KUBERNETES, Place
from orchestrator.driver.workspaces import lay_workspaces
from orchestrator.driver.worlds import prove_worlds
from orchestrator.errors import Problem, RefusedError, SpecError, nearest
from orchestrator.interfaces import ImageEngine, ObjectStore, SandboxBackend
from orchestrator.plan.cost import dollars, nano
from orchestrator.plan.labels import agent_labels, network_labels
from orchestrator.plan.prices import why_unpriced
from orchestrator.plan.refuse import refusals
from orchestrator.records import keys
from orchestrator.records.manifest import ManifestAgent, RunManifest
from orchestrator.settings import KNOWN_PROVIDERS, Settings
from orchestrator.spec.agent import Agent, is_scripted
from orchestrator.spec.bundle import Bundle
from orchestrator.spec.checks import CommandCheck
from orchestrator.spec.loaded import LoadedAgent
from orchestrator.spec.task import Environment, ImageWorkspace, Task, flat_checks
from orchestrator.storage.bundles import publish as publish_bundle
from orchestrator.storage.removals import describe, removed_run, watch


def check_order(order: Order, loaded: Loaded, backend: SandboxBackend, settings: Settings) -> None:
    """Raise RefusedError with everything that this version, backend or configuration cannot give, and that no limit allows."""
    limits = order.in_force(settings)
    agents = [(agent.name, agent.agent) for agent in loaded.agents]
    reasons = refusals((task.task for task in loaded.tasks), agents, backend, wiring.agent_refusals)
    reasons += too_many(sum(sum(row.values()) for row in sizes_of(order, loaded).values()), limits)
    for agent in loaded.agents:
        if agent.agent.type == "human" and not order.attended:
            reasons.append(f"agent {agent.name}: it is a person at a terminal; use: orchestrate shell TASK --as-trial")
        reasons += _solution_refusals(agent.name, loaded)
        reasons += _model_refusals(f"agent {agent.name}", tuple(agent.agent.models.values()), settings)
        reasons += _script_refusals(agent, loaded)
        reasons += _price_refusals(agent, loaded, settings, limits)
    for task in loaded.tasks:
        reasons += _user_refusals(task.task, settings, limits)
        reasons += _upstream_refusals(task.task, settings)
    refuse(reasons)


async def make_ready(place: Place, order: Order, loaded: Loaded) -> Ready:
    """Return an order that can be run here: nothing of it is refused, images are here, and workspaces are out of them.

    Raises RefusedError, SpecError, and InfrastructureError.
    """
    default: Mapping[str, str] = {}
    if place.backend.name == KUBERNETES:
        tasks, default = with_default_image(loaded.tasks, place.settings.kubernetes.task_image)
        loaded = replace(loaded, tasks=tasks)
    check_order(order, loaded, place.backend, place.settings)
    await prove_worlds(loaded.tasks)
    loaded = replace(loaded, agents=await asyncio.to_thread(with_builds, loaded.agents, place.settings.cache))
    images, engine = await _images(place, loaded)
    environments = {task.task.id: task.task.environment for task in loaded.tasks}
    labels = {**await _labels(place, environments, {agent.name: agent.agent for agent in loaded.agents}), **default}
    await _check_environments(place.backend, loaded)
    if engine is not None:
        loaded = replace(loaded, tasks=await lay_workspaces(loaded.tasks, engine, place.settings.cache))
    return Ready(loaded, build_manifest(order, loaded, place.backend.name, labels, images, place.settings))


async def _images(place: Place, loaded: Loaded) -> tuple[Mapping[str, str], ImageEngine | None]:
    """Return the ids of the images that trials run in, and the engine of this machine where images are needed here.

    A cluster's nodes fetch images themselves; this machine then only needs those that workspaces are taken out of.
    """
    named = {f"task {task.task.id}": image for task in loaded.tasks if (image := task.task.environment.image)}
    inside = {
        f"task {task.task.id}" for task in loaded.tasks if isinstance(task.task.environment.workspace, ImageWorkspace)
    }
    named |= {f"agent {agent.name}": image for agent in loaded.agents if (image := agent.agent.image)}
    if place.backend.name == CONTAINER:
        engine = wiring.container_engine(place.settings)
        return await present_images(named, engine), engine if named else None
    if place.backend.name != KUBERNETES:
        return {}, None
    ids = {image: image.partition("@")[2] or image for image in named.values()}
    if not inside:
        return ids, None
    engine = wiring.container_engine(place.settings)
    await present_images({user: image for user, image in named.items() if user in inside}, engine)
    return ids, engine


async def _check_environments(backend: SandboxBackend, loaded: Loaded) -> None:
    """Raise RefusedError when something that tasks, agents or hidden tests require is not in what their sandboxes are made from."""
    agents = [agent.agent for agent in loaded.agents]
    needed = [_needed(task.task, agents) for task in loaded.tasks]
    refuse(await backend.lacking([*needed, *_own_systems(needed, agents)], _mounted(agents)))


def _own_systems(environments: Sequence[Environment], agents: Sequence[Agent]) -> list[Environment]:
    """Return the environments as they are for agents that bring a system of their own, which need not hold what tasks require."""
    images = list(dict.fromkeys(agent.system_image for agent in agents if agent.system_image is not None))
    return [each.model_copy(update={"image": image, "requires": ()}) for image in images for each in environments]


def _mounted(agents: Sequence[Agent]) -> list[str]:
    return [agent.mounted_image for agent in agents if agent.mounted_image is not None]


def _needed(task: Task, agents: Sequence[Agent]) -> Environment:
    """Return the environment of a task with all programs that must be in it: the task's, the agents', and those that hidden tests need."""
    programs = [*task.environment.requires, *(name for agent in agents for name in wiring.agent_requires(agent))]
    if any(isinstance(check, CommandCheck) for check in flat_checks(task.checks)):
        programs.append("python3")
    return task.environment.model_copy(update={"requires": tuple(dict.fromkeys(programs))})


async def make_ready_again(place: Place, manifest: RunManifest) -> Mapping[str, str]:
    """Prove that a run can go on or be repeated here, and return the backend's labels: it works, and the images are here.

    Raises RefusedError, InfrastructureError.
    """
    environments = {task.id: task.environment for task in manifest.tasks}
    images = {task: environment.image for task, environment in environments.items()}
    if place.backend.name == CONTAINER:
        engine = wiring.container_engine(place.settings)
        named = {f"task {task}": image for task, image in images.items() if image}
        named |= {f"agent {agent.name}": image for agent in manifest.agents if (image := agent.agent.image)}
        await present_images(named, engine)
    return await _labels(place, environments, {agent.name: agent.agent for agent in manifest.agents})


async def _labels(
    place: Place, environments: Mapping[str, Environment], agents: Mapping[str, Agent]
) -> Mapping[str, str]:
    images = {task: environment.image for task, environment in environments.items()}
    backend = await place.backend.preflight()
    return {
        **backend,
        **unused_images(place.backend.name, images),
        **network_labels(environments),
        **agent_labels(agents),
    }


def refuse_persons(agents: Iterable[ManifestAgent]) -> None:
    """Raise RefusedError for agents with something to run who are persons: nobody is at a terminal when a run goes on or is repeated."""
    refuse(
        [
            f"agent {each.name} is a person at a terminal, and nobody is at one here; use: orchestrate shell TASK --as-trial"
            for each in agents
            if each.agent.type == "human"
        ]
    )


async def check_pods(place: Place, manifest: RunManifest) -> None:
    """Raise RefusedError when a cluster refuses pods of a run that nobody has begun with, InfrastructureError when it cannot be asked.

    A run that was begun goes on with what is taken, and its launches tell of the rest.
    """
    if place.backend.name != KUBERNETES or await place.store.list(keys.claims(manifest.run)):
        return
    trials = manifest.trials().values()
    environments = list({task.id: task.environment for task, _ in trials}.values())
    agents = list({agent.name: agent.agent for _, agent in trials}.values())
    refuse(await place.backend.lacking([*environments, *_own_systems(environments, agents)], _mounted(agents)))


def check_resume(
    manifest: RunManifest,
    settings: Settings,
    limits: InForce | None = None,
    agents: Sequence[ManifestAgent] | None = None,
) -> None:
    """Raise RefusedError when the settings are no longer those of the run, which would spend its launches. Its prices are kept with it.

    A spending limit in ``limits`` needs every price. ``agents`` are those that go on; all without.
    """
    reasons = []
    for task in manifest.tasks:
        if task.user is not None and task.user.model is not None:
            reasons += _model_refusals(f"task {task.id}: user.model", (task.user.model,), settings)
            if task.user_price is None and limits is not None and limits.limits.cost_usd is not None:
                why = _limited(limits)
                reasons.append(
                    f"task {task.id}: user.model {task.user.model} had no known price at its submission, and {why}"
                )
    for each in manifest.agents if agents is None else agents:
        reasons += _model_refusals(f"agent {each.name}", tuple(each.agent.models.values()), settings)
        if limits is not None and limits.limits.cost_usd is not None:
            why = _limited(limits)
            reasons += [
                f"agent {each.name}: {model} had no known price when run {manifest.run} was submitted, and {why}; "
                f"go on without the limit, or submit again with a price"
                for model in each.unpriced
            ]
    refuse(reasons)


def _solution_refusals(name: str, loaded: Loaded) -> list[str]:
    if name.startswith("wrong/") and not any(name in task.bundles.solutions for task in loaded.tasks):
        known = sorted({other for task in loaded.tasks for other in task.wrong})
        return [f"agent {name}: none of the tasks has solution/{name.replace('/', '-')}/solve.sh{nearest(name, known)}"]
    if name != "oracle":
        return []
    missing = [task.task.id for task in loaded.tasks if name not in task.bundles.solutions]
    return [f"agent oracle: task {task} has no solution/solve.sh" for task in missing]


def _model_refusals(who: str, models: tuple[str, ...], settings: Settings) -> list[str]:
    known = {"scripted", *settings.providers}
    usual = {*known, *KNOWN_PROVIDERS}
    wanted = {model.split("/", 1)[0] for model in models}
    missing = sorted(wanted - known)
    unreadable = [
        f"{who}: {settings.key_problems[provider]}" for provider in sorted(wanted & set(settings.key_problems))
    ]
    return unreadable + [
        f"{who}: provider {provider!r} is not configured{nearest(provider, usual - {provider})}; {_configured(provider)}"
        for provider in missing
    ]


def _configured(provider: str) -> str:
    """Return how a provider is made known."""
    table = f"add [providers.{provider}] to orchestrate.toml"
    return (
        f"set {KNOWN_PROVIDERS[provider][0]} or {table}" if provider in KNOWN_PROVIDERS else f"{table}, with base_url"
    )


def too_many(planned: int, limits: InForce) -> list[str]:
    """Return why so many trials are not allowed; empty: they are."""
    most = limits.limits.trials
    if most is None or planned <= most:
        return []
    allowed = f"{planned:,} trials are planned, and at most {most:,} are allowed ({limits.trials_from})"
    return [f"{allowed}; choose fewer with --tasks, --samples or --agent, or raise that limit"]


def _upstream_refusals(task: Task, settings: Settings) -> list[str]:
    """Return why a task's tool servers cannot be reached. Those whose answers are recorded need not be there."""
    fixtures = task.fixtures
    patterns = () if fixtures is None or fixtures.mode == "live" else fixtures.tools
    found = []
    for upstream in task.upstream:
        kind = "http" if upstream.http is not None else "mcp"
        start = upstream.name if kind == "http" else f"{upstream.name}_"
        if any(fnmatchcase(start, pattern) for pattern in patterns):
            continue
        provider = settings.providers.get(upstream.name)
        known = [name for name, each in settings.providers.items() if each.type == kind]
        if provider is None or provider.type != kind:
            table = f'[providers.{upstream.name}] with type = "{kind}" and base_url'
            near = nearest(upstream.name, known)
            found.append(
                f"task {task.id}: upstream {upstream.name!r} is not configured{near}; add {table} to orchestrate.toml"
            )
        elif upstream.name in settings.key_problems:
            found.append(f"task {task.id}: upstream {upstream.name}: {settings.key_problems[upstream.name]}")
    return found


def _user_refusals(task: Task, settings: Settings, limits: InForce) -> list[str]:
    """Return why the model that plays a task's user cannot be asked, or not under a limit of the cost."""
    model = None if task.user is None else task.user.model
    if model is None:
        return []
    found = _model_refusals(f"task {task.id}: user.model", (model,), settings)
    if is_scripted(model):
        found.append(
            f"task {task.id}: user.model {model}: a scripted user needs no model; use mode: scripted with replies"
        )
    is_limited = limits.limits.cost_usd is not None or task.budgets.max_cost_usd is not None
    if is_limited and not found and user_price(task, settings, datetime.now(UTC)) is None:
        why = why_unpriced(model, settings)
        found.append(
            f"task {task.id}: user.model {model} has no known price ({why}), and the cost is limited; "
            f'give [prices."{model}"] in orchestrate.toml, or take the limit out'
        )
    return found


def _price_refusals(agent: LoadedAgent, loaded: Loaded, settings: Settings, limits: InForce) -> list[str]:
    limited = [task.task.id for task in loaded.tasks if task.task.budgets.max_cost_usd is not None]
    if limits.limits.cost_usd is not None:
        why = _limited(limits)
        if agent.agent.type == "http":
            return [f"agent {agent.name}: what it spends at its endpoint is not seen, and {why}; take the limit out"]
    elif limited:
        first = limited[0]
        why = f"{len(limited)} tasks limit the cost (first: {first})" if len(limited) > 1 else f"task {first} limits it"
    else:
        return []
    priced = with_prices(manifest_agent(agent), settings, datetime.now(UTC))
    return [
        f"agent {agent.name}: {model} has no known price ({why_unpriced(model, settings)}), and {why}; "
        f'give [prices."{model}"] in orchestrate.toml, give prices in the agent file, or take the limit out'
        for model in priced.unpriced
    ]


def _limited(limits: InForce) -> str:
    return f"the run may spend at most {dollars(nano(limits.limits.cost_usd or 0))} ({limits.cost_from})"


def _script_refusals(agent: LoadedAgent, loaded: Loaded) -> list[str]:
    if agent.scripts is None:
        return []
    there = {item.path for item in agent.scripts.items}
    missing = [task.task.id for task in loaded.tasks if f"{task.task.id}.json" not in there]
    return [f"agent {agent.name}: its scripts have no conversation for task {task}" for task in missing]


async def publish(
    place: Place, ready: Ready, grader_version: str, say: Callable[[str], None] = lambda _: None
) -> RunManifest:
    """Upload every bundle of the run, then create its manifest. Raises SpecError when the run id is or was taken.

    ``say`` is told when that has to wait for something.
    """
    watching = await watch(place.store)
    manifest = ready.planned.model_copy(update={"grader_version": grader_version})
    await refuse_removed(place.store, manifest.run)
    for audience, bundle in _bundles(ready.loaded):
        await publish_bundle(place.store, audience, bundle)
    if not await place.store.create(keys.manifest(manifest.run), manifest.to_bytes()):
        raise SpecError(
            [Problem(manifest.run, message="there is a run of that name; choose another --run-id, or resume it")]
        )
    if await watching.disturbed(say):  # a bundle that was there may have been deleted before the manifest named it
        for audience, bundle in _bundles(ready.loaded):
            await publish_bundle(place.store, audience, bundle)
    return manifest


def refuse_imported(manifest: RunManifest) -> None:
    """Raise RefusedError for a run of imported traces."""
    if manifest.is_imported:
        msg = f"run {manifest.run} is traces that were imported: there is nothing in it to run or to grade"
        raise RefusedError(msg)


async def refuse_removed(store: ObjectStore, run: str) -> None:
    """Raise SpecError for the id of a run that gc removed: its rows are in the dataset still."""
    if (removal := await removed_run(store, run)) is not None:
        message = f"{describe(run, removal)}, and its rows are kept; choose another --run-id"
        raise SpecError([Problem(run, message=message)])


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
