"""What the loader returns: models together with their files and digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.errors import SpecError
from orchestrator.spec.agent import Agent
from orchestrator.spec.base import digest
from orchestrator.spec.bundle import Bundle, TaskBundles
from orchestrator.spec.explain import validate
from orchestrator.spec.suite import Suite
from orchestrator.spec.task import Task
from orchestrator.spec.yaml import Document


@dataclass(frozen=True)
class LoadedTask:
    """A task with its files."""

    task: Task
    folder: Path
    digest: str
    """Over the model after defaults and all bundles: formatting does not matter, every other byte does."""
    bundles: TaskBundles = field(repr=False)
    """The files by audience."""
    wrong: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """``wrong/NAME`` to the ids of the checks by which that solution must fail."""


@dataclass(frozen=True)
class LoadedSuite:
    """A suite with its tasks."""

    suite: Suite
    folder: Path
    tasks: tuple[LoadedTask, ...]
    """Sorted by id."""
    digest: str
    """Over the suite file and all tasks."""

    def task(self, task_id: str) -> LoadedTask:
        """Return a task by id. Raises KeyError."""
        for each in self.tasks:
            if each.task.id == task_id:
                return each
        raise KeyError(task_id)


@dataclass(frozen=True)
class LoadedAgent:
    """An agent with its files."""

    name: str
    """File name without its end, or ``oracle``, ``nop``, ``wrong/NAME``."""
    agent: Agent
    digest: str
    """Over the file, prompt, bundle and scripts; the name is not part of it."""
    prompt: str | None = None
    """Text of the prompt file."""
    bundle: Bundle | None = field(default=None, repr=False)
    """Its own files (audience ``sandbox``)."""
    scripts: Bundle | None = field(default=None, repr=False)
    """Its conversations, ``<task>.json`` (audience ``world``)."""
    script_files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Task id to the shown name of its conversation file."""
    file: str = field(default="", repr=False)
    """The shown name of its own file; empty for those that need none."""

    def with_model(self, model: str) -> LoadedAgent:
        """Return the same agent with another main model. Raises SpecError when that is no ``provider/name``."""
        aliases = list(self.agent.models)
        alias = aliases[0] if len(aliases) == 1 else "main"
        changed = self.agent.model_dump(mode="json") | {"models": {**self.agent.models, alias: model}}
        agent, problems = validate(Agent, Document("--model", changed, {}))
        if agent is None:
            raise SpecError(problems)
        return replace(self, agent=agent, digest=agent_digest(agent, self.prompt, self.bundle, self.scripts))


def agent_digest(agent: Agent, prompt: str | None, bundle: Bundle | None, scripts: Bundle | None) -> str:
    """Return the digest of a configuration under test."""
    parts = {
        "agent": agent.model_dump(mode="json", by_alias=True),
        "prompt": prompt,
        "bundle": bundle.digest if bundle else None,
        "scripts": scripts.digest if scripts else None,
    }
    return digest(parts)
