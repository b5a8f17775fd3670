"""Agents whose files a command makes: built once on this machine, kept, and laid at ``/agent`` like files of a person's own."""

from __future__ import annotations

import asyncio
import hashlib
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator.driver.trees import TREE, keep, kept
from orchestrator.errors import InfrastructureError, Problem, SpecError
from orchestrator.settings import build_variables
from orchestrator.spec.agents import load_agent
from orchestrator.spec.base import canonical_json
from orchestrator.spec.bundle import MAX_BUNDLE_BYTES, Bundle, Item, Reader
from orchestrator.spec.loaded import LoadedAgent, agent_digest

_FORM = 1
"""Version of what a build gets and leaves; a change makes all agents be built again."""
_MOST_TOLD = 20


@dataclass(frozen=True, kw_only=True)
class Built:
    """What came of building one agent."""

    agent: str
    """Name of the agent."""
    how: Literal["built", "cached"]
    """Whether the command ran now, or had run before for the same recipe."""
    digest: str
    """Tree digest of the files."""
    size: int
    """Bytes of the files."""


def with_builds(agents: Sequence[LoadedAgent], cache: Path) -> tuple[LoadedAgent, ...]:
    """Return the agents with the files that their commands made on this machine. Reads every byte of them.

    Raises SpecError with the command to type for those that are not built here.
    """
    problems: list[Problem] = []
    found: list[LoadedAgent] = []
    for agent in agents:
        if agent.agent.build is None:
            found.append(agent)
        elif (items := kept(_place(agent, cache))) is None:
            message = f"not built on this machine; build it once: {command_for(agent)}"
            problems.append(Problem(agent.file, field="build", message=message))
        else:
            found.append(_with_items(agent, items))
    if problems:
        raise SpecError(problems)
    return tuple(found)


def command_for(agent: LoadedAgent) -> str:
    """Return what a person types to build an agent."""
    return f"orchestrate agents build {shlex.quote(agent.file)}"


async def build_agents(
    files: Sequence[Path], cache: Path, say: Callable[[str], None], *, again: bool = False
) -> list[Built]:
    """Build agents one after the other, once all of their files are read.

    Raises as ``build_agent``: SpecError at the end with all that failed, so the others are kept by then.
    """
    problems: list[Problem] = []
    agents: list[LoadedAgent] = []
    for file in files:
        try:
            agents.append(load_agent(file))
        except SpecError as error:
            problems += error.problems
    problems += [_nothing_to_build(agent) for agent in agents if agent.agent.build is None]
    if problems:
        raise SpecError(problems)
    made: list[Built] = []
    for agent in agents:
        try:
            made.append(await build_agent(agent, cache, say, again=again))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return made


async def build_agent(agent: LoadedAgent, cache: Path, say: Callable[[str], None], *, again: bool = False) -> Built:
    """Run an agent's build command in a copy of its bundle and keep what it leaves, unless that was done before for the same recipe.

    The command gets variables that say where registries and proxies are, ``PYTHON`` (the interpreter that sandboxes of this machine have),
    and no key. Its output goes to standard error. Raises SpecError when it fails or leaves what no bundle can hold, InfrastructureError
    when there is no room.
    """
    if agent.agent.build is None:
        raise SpecError([_nothing_to_build(agent)])
    place = _place(agent, cache)
    if not again and (items := await asyncio.to_thread(kept, place)) is not None:
        return _built(agent, items, "cached")
    say(f"{agent.name}: {agent.agent.build}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-") as temporary:
            fresh = Path(temporary) / "fresh"
            fresh.mkdir()
            tree = fresh / TREE
            await asyncio.to_thread((agent.bundle or Bundle.of(())).write, tree)
            await _run(agent, tree)
            await asyncio.to_thread(_check, agent, tree)
            items = await asyncio.to_thread(keep, fresh, place)
    except OSError as error:
        msg = f"agent {agent.name} could not be built at {place}: {error.strerror}; free space or name another cache folder"
        raise InfrastructureError(msg, cause="agent_build") from error
    return _built(agent, items, "built")


def _place(agent: LoadedAgent, cache: Path) -> Path:
    """Return where the files are kept: by recipe, machine and Python. gc treats it as an unpacked bundle."""
    recipe = {
        "form": _FORM,
        "command": agent.agent.build,
        "bundle": None if agent.bundle is None else agent.bundle.digest,
        "machine": platform.machine(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    return cache.absolute() / "bundles" / "agents" / hashlib.sha256(canonical_json(recipe)).hexdigest()


def _with_items(agent: LoadedAgent, items: Sequence[Item]) -> LoadedAgent:
    bundle = Bundle.of(items)
    return replace(agent, bundle=bundle, digest=agent_digest(agent.agent, agent.prompt, bundle, agent.scripts))


async def _run(agent: LoadedAgent, folder: Path) -> None:
    """Run the build command. Raises SpecError."""
    shell = shutil.which("sh") or "/bin/sh"
    variables = {**build_variables(), "PYTHON": sys.executable}
    process = await asyncio.create_subprocess_exec(
        shell, "-euc", agent.agent.build or "", cwd=folder, env=variables, stdin=asyncio.subprocess.DEVNULL, stdout=2
    )
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if code != 0:
        raise _problem(agent, f"its build command ended with exit code {code}; what it said is above")


def _check(agent: LoadedAgent, tree: Path) -> None:
    reader = Reader({tree: "build"}, everything=True)
    items = reader.tree(tree)
    if not items and not reader.problems:
        raise _problem(agent, "its build command left no files in its folder")
    if (size := sum(item.size for item in items)) > MAX_BUNDLE_BYTES:
        raise _problem(
            agent,
            f"the build left {size:,} bytes, and an agent may have {MAX_BUNDLE_BYTES:,}; remove what it does not need",
        )
    if reader.problems:
        told = [f"the build left {each}; no bundle can hold it" for each in reader.problems[:_MOST_TOLD]]
        more = len(reader.problems) - _MOST_TOLD
        raise _problem(agent, *told, *([f"and {more:,} more like these"] if more > 0 else []))


def _nothing_to_build(agent: LoadedAgent) -> Problem:
    message = "it has no 'build', so there is nothing to make; its files are those of 'bundle', if it has any"
    return Problem(agent.file, field="build", message=message)


def _built(agent: LoadedAgent, items: Sequence[Item], how: Literal["built", "cached"]) -> Built:
    bundle = Bundle.of(items)
    return Built(agent=agent.name, how=how, digest=bundle.digest, size=bundle.size)


def _problem(agent: LoadedAgent, *messages: str) -> SpecError:
    return SpecError([Problem(agent.file, field="build", message=message) for message in messages])
