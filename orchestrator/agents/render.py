"""Turns an agent of the manifest into what a sandbox runs. Pure: nothing is read, nothing is started."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from orchestrator.errors import RefusedError, nearest
from orchestrator.interfaces import AgentProgram, Registration
from orchestrator.records.manifest import ManifestAgent, ManifestTask
from orchestrator.spec.agent import RUNNABLE_AGENTS, Agent
from orchestrator.spec.task import egress_rules

REACT_FOLDER = Path(__file__).parent / "react"
"""The program of ``react`` and ``scripted``, laid at ``/agent``."""

HUMAN_FOLDER = Path(__file__).parent / "human"
"""The program of ``human``, laid at ``/agent``; it is joined to the person's terminal by descriptor 3."""

HTTP_FOLDER = Path(__file__).parent / "http"
"""The program of ``http``, laid at ``/agent``: it asks the endpoint and writes down what comes back."""

REACT_TOOLS = ("shell",)
"""Tools of the loop itself; the task's come from the gateway."""

SCRIPTED_MODELS = {"main": "scripted/main"}
"""Models of an agent of type ``scripted`` that names none."""

_RESERVED_PARAMS = ("messages", "model", "n", "store", "stream", "tools")


def refusals(agent: Agent) -> list[str]:
    """Return one sentence for each thing that this version cannot do for the agent, with the way out. Empty: it can run."""
    found: list[str] = []
    if agent.type not in RUNNABLE_AGENTS:
        return [f"type {agent.type!r} is not run by this version; use one of: {_list(RUNNABLE_AGENTS)}"]
    if agent.type != "command":
        given = {
            "command": agent.command,
            "bundle": agent.bundle,
            "build": agent.build,
            "image": agent.image,
            "stdin": agent.stdin != "none",
            "adapter": agent.adapter,
        }
        found.extend(
            f"{name!r} is for type 'command'; type {agent.type!r} has a program of its own, so remove it"
            for name, value in given.items()
            if value
        )
    if agent.type in {"react", "scripted"}:
        found.extend(_react_refusals(agent))
    return found


def models_of(agent: Agent) -> dict[str, str]:
    """Return alias to ``provider/name`` of all models that the agent may use."""
    return dict(agent.models or (SCRIPTED_MODELS if agent.type == "scripted" else {}))


def render(agent: ManifestAgent, task: ManifestTask, registration: Registration) -> AgentProgram:
    """Return what the sandbox runs for this trial. Raises RefusedError for what ``refusals`` names."""
    problems = refusals(agent.agent)
    if problems:
        msg = f"agent {agent.name}: " + "; ".join(problems)
        raise RefusedError(msg)
    env = _environment(agent.agent, registration) | _proxy(agent.agent, task, registration)
    kind = agent.agent.type
    if kind == "nop":
        return AgentProgram(command=("true",), env=env)
    if kind == "oracle":
        return AgentProgram(command=("sh", "/solution/solve.sh"), env=env, solution=_solution(agent, task))
    if kind == "http":
        call = ("python3", "-I", "-S", "/agent/call.py")
        asking = {**env, "ORCHESTRATE_URL": agent.agent.url or ""}
        return AgentProgram(command=call, env=asking, files=HTTP_FOLDER, requires=requires(agent.agent))
    if kind == "human":
        terminal = ("python3", "-I", "-S", "/agent/terminal.py")
        return AgentProgram(command=terminal, env=env, files=HUMAN_FOLDER, requires=requires(agent.agent))
    if kind == "command":
        command = _with_stdin(agent.agent)
        return AgentProgram(command=command, env=env, bundle=agent.bundle)
    settings = {"prompt": agent.prompt, "params": agent.agent.params}
    return AgentProgram(
        command=("python3", "-I", "-S", "/agent/react.py"),
        env=env,
        stdin=json.dumps(settings).encode(),
        files=REACT_FOLDER,
        requires=requires(agent.agent),
    )


def requires(agent: Agent) -> tuple[str, ...]:
    """Return the programs that the agent's own program needs in a sandbox, beside what the task requires."""
    return ("python3",) if agent.type in {"http", "react", "scripted", "human"} else ()


def _react_refusals(agent: Agent) -> list[str]:
    found = [f"params.{name} is set by the loop itself; remove it" for name in _RESERVED_PARAMS if name in agent.params]
    found.extend(
        f"tool {name!r} is not one of the loop's own{nearest(name, REACT_TOOLS)}; there are: {_list(REACT_TOOLS)}"
        for name in agent.tools
        if name not in REACT_TOOLS
    )
    return found


def _environment(agent: Agent, registration: Registration) -> dict[str, str]:
    address = registration.door.address
    ours = {"ORCHESTRATE_GATEWAY": address, "ORCHESTRATE_TOKEN": registration.agent_token}
    models = models_of(agent)
    if models:
        ours |= {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": registration.agent_token}
        ours |= {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": registration.agent_token}
        ours["ORCHESTRATE_MODEL"] = models.get("main") or next(iter(models.values()))
        ours |= {f"ORCHESTRATE_MODEL_{_word(alias)}": model for alias, model in models.items()}
    # An agent file must not be able to point its own program elsewhere, so ours come last.
    return agent.env | ours


def _proxy(agent: Agent, task: ManifestTask, registration: Registration) -> dict[str, str]:
    """Return where programs find the way out, in the words that they look for; nothing where neither task nor agent has any."""
    if not egress_rules(task.environment.network) and not agent.reaches:
        return {}
    scheme, _, place = registration.door.address.partition("://")
    proxy = f"{scheme}://orchestrate:{registration.agent_token}@{place}"
    direct = f"127.0.0.1,localhost,{place.rpartition(':')[0]}"
    return {"HTTPS_PROXY": proxy, "https_proxy": proxy, "NO_PROXY": direct, "no_proxy": direct}


def _with_stdin(agent: Agent) -> tuple[str, ...]:
    """The instruction is a file of the sandbox, so the sandbox's own shell connects it."""
    if agent.stdin == "none":
        return agent.command
    return ("sh", "-c", 'exec "$@" < /task/instruction.md', "sh", *agent.command)


def _solution(agent: ManifestAgent, task: ManifestTask) -> str:
    found = task.bundles.solutions.get(agent.name)
    if found is None:
        have = _list(task.bundles.solutions) or "none"
        msg = f"task {task.id} has no solution {agent.name!r} (it has: {have}); add solution/solve.sh or leave the task out"
        raise RefusedError(msg)
    return found


def _word(alias: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", alias.upper())


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
