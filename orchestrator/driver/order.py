"""From what was typed to the manifest of a run: load every file, choose tasks and agents. Nothing is written."""

from __future__ import annotations

import hashlib
import re
import subprocess
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator import __version__
from orchestrator.driver.limits import InForce, Placed, in_force
from orchestrator.errors import Problem, RefusedError, SpecError, near_path, nearest
from orchestrator.plan.prices import price_of, prices_of
from orchestrator.plan.refuse import submission_refusals
from orchestrator.records.manifest import Bundles, Code, ManifestAgent, ManifestTask, RunManifest, runs_task
from orchestrator.records.prices import KnownPrice, price_digest
from orchestrator.records.state import EndedAs
from orchestrator.settings import Settings
from orchestrator.spec.agents import BUILT_IN, built_in_agent, check_scripts, load_agent, model_agent
from orchestrator.spec.base import digest
from orchestrator.spec.checks import FinalCheck
from orchestrator.spec.load import load_submission, load_suite, named_in
from orchestrator.spec.loaded import LoadedAgent, LoadedSuite, LoadedTask
from orchestrator.spec.task import Task, flat_checks

_MODELLESS = frozenset({"nop", "oracle", "human"})
"""Types of agents that call no model."""
_MOST_NAMED = 12  # agents in an error
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What was typed, the submission file folded in."""

    suite: Path
    agents: tuple[str, ...]
    agents_from: Path | None = None
    """Folder of the submission file, where agent names are looked up first."""
    model: str | None = None
    samples: int | None = None
    tasks: tuple[str, ...] = ()
    backend: str | None = None
    pool: str | None = None
    concurrency: int | None = None
    run_id: str | None = None
    limits: tuple[Placed, ...] = ()
    """What was typed and what the submission file says."""
    attended: bool = False
    """A person is at this terminal, who may be the agent."""

    def in_force(self, settings: Settings) -> InForce:
        """Return the limits that hold for the run: the smallest of all."""
        return in_force(settings, self.limits)


@dataclass(frozen=True)
class Loaded:
    """Everything of an order, read and checked."""

    suite: LoadedSuite
    tasks: tuple[LoadedTask, ...]
    agents: tuple[LoadedAgent, ...]


@dataclass(frozen=True)
class Ready:
    """An order that can be run here and now: nothing of it was refused, its images are here, its workspaces are laid."""

    loaded: Loaded
    planned: RunManifest
    """The manifest that it will have, but for the grader's version, which is known once the grader runs."""


Sizes = dict[str, dict[str, int]]
"""Task to agent to trials; an agent that does not run a task is absent."""


def sizes_of(order: Order, loaded: Loaded) -> Sizes:
    """Return how many trials an order has."""
    return {
        task.task.id: {
            agent.name: order.samples or task.task.samples
            for agent in loaded.agents
            if runs_task(agent.name, task.bundles.solutions)
        }
        for task in loaded.tasks
    }


def read_order(target: Path, order: Order) -> Order:
    """Return the order for a suite folder or a submission file; what was typed wins over the file.

    Raises SpecError when the target is neither.
    """
    if target.is_dir():
        return replace(order, suite=target)
    if not target.is_file():
        raise SpecError([Problem(str(target), message=f"no such suite folder or submission file{near_path(target)}")])
    folder = target.parent
    try:
        submission = load_submission(target)
    except SpecError as error:
        raise SpecError([*error.problems, *_others(named_in(target), folder, order)]) from error
    if ignored := submission_refusals(submission, str(target)):
        others = _others((submission.suite, submission.agents), folder, order)
        raise SpecError([*ignored, *others]) if others else RefusedError(ignored)
    return replace(
        order,
        suite=folder / submission.suite,
        agents=order.agents or submission.agents,
        agents_from=folder,
        samples=order.samples or submission.samples,
        tasks=order.tasks or submission.tasks,
        backend=order.backend or (None if submission.backend == "auto" else submission.backend),
        pool=order.pool or submission.pool,
        concurrency=order.concurrency or submission.concurrency,
        limits=(*order.limits, Placed(f"limits of {target}", submission.limits)),
    )


def _others(named: tuple[str | None, tuple[str, ...]], folder: Path, order: Order) -> list[Problem]:
    """Return the problems of what a submission file names, for a file that cannot be used itself."""
    suite, agents = named
    problems: list[Problem] = []
    order = replace(order, suite=folder / (suite or "."), agents=order.agents or agents, agents_from=folder)
    _read_agents(order, None if suite is None else _read_suite(order, problems), problems)
    return problems


def load_order(order: Order) -> Loaded:
    """Load the suite, the chosen tasks and the agents. Raises one SpecError with the problems of all files."""
    problems: list[Problem] = run_id_problems(order.run_id)
    suite = _read_suite(order, problems)
    agents = _read_agents(order, suite, problems)
    tasks: tuple[LoadedTask, ...] = ()
    if suite is not None:
        try:
            tasks = select(suite, order.tasks)
        except SpecError as error:
            problems += error.problems
    if not order.agents and not order.model:
        problems.append(
            Problem(str(order.suite), message="no agent; add --agent oracle, --agent FILE, or --model PROVIDER/NAME")
        )
    if problems or suite is None:
        raise SpecError(problems)
    return Loaded(suite, tasks, tuple(agents))


def _read_suite(order: Order, problems: list[Problem]) -> LoadedSuite | None:
    try:
        return load_suite(order.suite)
    except SpecError as error:
        problems += error.problems or [Problem(str(order.suite), message=str(error))]
        return None


def _read_agents(order: Order, suite: LoadedSuite | None, problems: list[Problem]) -> list[LoadedAgent]:
    agents: list[LoadedAgent] = []
    for name in order.agents or (("react",) if order.model else ()):
        try:
            agents.append(find_agent(name, order, suite))
        except SpecError as error:
            problems += error.problems or [Problem(name, message=str(error))]
    problems += _twice(agents)
    if suite is not None:
        for agent in agents:
            problems += check_scripts(agent, suite)
    if order.model and 0 < len(agents) == len(order.agents) and all(agent.agent.type in _MODELLESS for agent in agents):
        names = " and ".join(agent.name for agent in agents)
        message = (
            f"{names} {'has' if len(agents) == 1 else 'have'} no model; take --model out, or name an agent that has one"
        )
        problems.append(Problem("--model", message=message))
    return agents


def run_id_problems(text: str | None) -> list[Problem]:
    """Find fault with a run id that is no safe name, or that would mean something else where a run is named."""
    if text is None or (_RUN_ID.fullmatch(text) and text != "last"):
        return []
    message = (
        f"{text[:100]!r} cannot name a run: use at most 100 letters, digits, dots, dashes, underscores, and not 'last'"
    )
    return [Problem("--run-id", message=message)]


def _twice(agents: list[LoadedAgent]) -> list[Problem]:
    """Find agents of one name: trials are named by their agent, so the second would stand in for the first."""
    counts = Counter(agent.name for agent in agents)
    return [
        Problem(name, message=f"{count} agents have this name; name each once, or rename a file")
        for name, count in counts.items()
        if count > 1
    ]


def select(suite: LoadedSuite, patterns: tuple[str, ...]) -> tuple[LoadedTask, ...]:
    """Return the tasks whose id matches a pattern; all without patterns. Raises SpecError for a pattern that matches nothing."""
    chosen = matching([task.task.id for task in suite.tasks], patterns, str(suite.folder))
    return tuple(task for task in suite.tasks if task.task.id in chosen)


def matching(ids: Sequence[str], patterns: tuple[str, ...], where: str) -> set[str]:
    """Return the ids that match a pattern; all without patterns. Raises SpecError for patterns that match nothing."""
    idle = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in ids)]
    if idle:
        raise SpecError([Problem(where, message=f"no task matches {name!r}{nearest(name, ids)}") for name in idle])
    return {name for name in ids if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)}


def find_agent(name: str, order: Order, suite: LoadedSuite | None) -> LoadedAgent:
    """Return an agent by built-in name, file, or name of a file in an ``agents`` folder. Raises SpecError with the places looked at."""
    if name == "react" and order.model and not order.agents:
        return model_agent(order.model)
    if name in BUILT_IN or name.startswith("wrong/"):
        return built_in_agent(name)
    places = _places(name, order)
    for place in places:
        if place.is_file():
            agent = load_agent(place)
            return agent.with_model(order.model) if order.model else agent
    known = [*BUILT_IN, *sorted({path.stem for place in places for path in place.parent.glob("*.yaml")})]
    there = ", ".join(known[:_MOST_NAMED]) + (", …" if len(known) > _MOST_NAMED else "")
    looked = ", ".join(str(place) for place in places)
    raise SpecError(
        [Problem(name, message=f"no such agent{nearest(name, known)}; there are {there}; looked for {looked}")]
    )


def _places(name: str, order: Order) -> list[Path]:
    if name.endswith((".yaml", ".yml")):
        return [path for path in (order.agents_from and order.agents_from / name, Path(name)) if path is not None]
    folders = [order.agents_from, Path("manifests"), order.suite.absolute().parent.parent / "manifests"]
    found = {(folder / "agents" / f"{name}.yaml").absolute(): folder for folder in folders if folder is not None}
    return [folder / "agents" / f"{name}.yaml" for folder in found.values()]


def run_id(suite: str, now: datetime) -> str:
    """Return a new run id: time first, so that names sort by age."""
    return f"{now:%Y%m%d-%H%M%S}-{suite}-{uuid.uuid4().hex[:4]}"


def final_checked(task: Task) -> EndedAs | None:
    """Return the ending that a ``final`` check of the task lists, if it has one."""
    return next((check.status for check in flat_checks(task.checks) if isinstance(check, FinalCheck)), None)


def manifest_task(loaded: LoadedTask, samples: int | None, image_id: str | None) -> ManifestTask:
    """Return what the manifest says of a task."""
    task = loaded.task
    return ManifestTask(
        id=task.id,
        version=task.version,
        digest=loaded.digest,
        kind=task.kind,
        tier=task.tier,
        expect=task.expect,
        final_checked=final_checked(task),
        tags=task.tags,
        environment=task.environment,
        image_id=image_id,
        budgets=task.budgets,
        hosted_tools=task.hosted_tools,
        user=task.user,
        user_prompt=_user_prompt(loaded),
        tools=task.tools,
        samples=samples or task.samples,
        bundles=Bundles(
            sandbox=loaded.bundles.sandbox.digest,
            world=loaded.bundles.world.digest,
            graders=loaded.bundles.graders.digest,
            solutions={name: bundle.digest for name, bundle in loaded.bundles.solutions.items()},
        ),
        memory=None if (memory := loaded.bundles.memory) is None else memory.digest,
    )


def manifest_agent(loaded: LoadedAgent) -> ManifestAgent:
    """Return what the manifest says of an agent. The type ``scripted`` talks to its own conversations unless it names models."""
    agent = loaded.agent
    if agent.type == "scripted" and not agent.models:
        agent = agent.model_copy(update={"models": {"main": f"scripted/{loaded.name}"}})
    return ManifestAgent(
        name=loaded.name,
        digest=loaded.digest,
        agent=agent,
        prompt=loaded.prompt,
        bundle=loaded.bundle.digest if loaded.bundle else None,
        bundle_bytes=loaded.bundle.size if loaded.bundle else 0,
        scripts=loaded.scripts.digest if loaded.scripts else None,
    )


def with_prices(agent: ManifestAgent, settings: Settings, now: datetime) -> ManifestAgent:
    """Return the agent with what its models cost now, as far as that is known."""
    return agent.model_copy(update={"prices": prices_of(agent.agent, settings, now)})


def _user_prompt(loaded: LoadedTask) -> str | None:
    if loaded.task.user is None or loaded.task.user.mode != "model":
        return None
    return f"sha256:{hashlib.sha256(loaded.bundles.world.read('persona.md')).hexdigest()}"


def user_price(task: Task, settings: Settings, now: datetime) -> KnownPrice | None:
    """Return what the model costs now that plays a task's user, as far as that is known."""
    return None if task.user is None or task.user.model is None else price_of(task.user.model, settings, now)


def build_manifest(
    order: Order,
    loaded: Loaded,
    backend: str,
    labels: Mapping[str, str],
    images: Mapping[str, str],
    settings: Settings,
) -> RunManifest:
    """Return the manifest of a new run, without the grader's version.

    ``labels`` say what the backend does not promise in full; ``images`` are ids by pinned image, where the backend uses images.
    """
    now = datetime.now(UTC)
    tasks = tuple(
        manifest_task(task, order.samples, images.get(task.task.environment.image or "")).model_copy(
            update={"user_price": user_price(task.task, settings, now)}
        )
        for task in loaded.tasks
    )
    agents = tuple(with_prices(manifest_agent(agent), settings, now) for agent in loaded.agents)
    content = digest([loaded.suite.digest, [task.digest for task in tasks], [agent.digest for agent in agents]])
    suite = loaded.suite.suite
    return RunManifest(
        run=order.run_id or run_id(suite.id, now),
        created_at=now,
        orchestrate_version=__version__,
        code=code_of(order.suite),
        suite=suite.id,
        suite_digest=loaded.suite.digest,
        metric=suite.metric,
        k=suite.k,
        quarantine=tuple(entry for entry in suite.quarantine if entry.expires >= now.date()),
        tasks=tasks,
        agents=agents,
        seed=int(content.removeprefix("sha256:")[:15], 16),
        backend=backend,
        labels=dict(labels),
        pool=settings.pool,
        max_launches=settings.max_launches,
        limits=order.in_force(settings).limits,
        price_table=price_digest(agent.prices for agent in agents),
    )


def code_of(folder: Path) -> Code:
    """Return the commit that a folder belongs to, and whether files in it differ from that commit."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return Code()
    changes = git("status", "--porcelain", "--", ".")
    return Code(commit=commit, dirty=None if changes is None else bool(changes))


def refuse(reasons: list[str]) -> None:
    """Raise RefusedError with all reasons, if there are any."""
    if reasons:
        raise RefusedError("\n".join([*reasons, f"{len(reasons)} refused; nothing was started"]))
