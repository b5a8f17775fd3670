"""The coding agents of ``manifests/agents`` as their registries have them, with scripted models in place of real ones."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_world import ROOT, STARTER, clean_environment
from ruamel.yaml import YAML

from orchestrator.driver.builds import with_builds
from orchestrator.errors import SpecError
from orchestrator.spec.agents import load_agent

AGENTS = ROOT / "manifests/agents"
TASK = "config-v2"
FIX = (AGENTS / "scripts/careful/config-v2.fix.sh").read_text()
LOOK = "cat docs/config-v2.md config/service.ini config/limits.json"
DONE = "config/service.toml is version 2."


@dataclass(frozen=True)
class Real:
    """How an agent's model calls its shell and ends."""

    name: str
    tool: str
    argument: str
    registry: tuple[str, ...]
    """Command that succeeds where the registry of its package can be asked."""

    def shell(self, command: str) -> dict[str, Any]:
        return {"calls": [{"name": self.tool, "arguments": {self.argument: command}}]}

    def end(self) -> dict[str, Any]:
        if self.name == "mini-swe-agent":
            return self.shell(f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo '{DONE}'")
        if self.name == "langgraph":
            return {"calls": [{"name": "finish", "arguments": {"status": "completed", "message": DONE}}]}
        return {"text": DONE}

    def turns(self) -> list[dict[str, Any]]:
        return [{"text": "Let me look.", **self.shell(LOOK)}, {**self.shell(FIX), "expect": "version 2"}, self.end()]


PIP = (
    sys.executable,
    "-c",
    "import urllib.request; urllib.request.urlopen('https://pypi.org/simple/mini-swe-agent/', timeout=20)",
)
REAL = (
    Real("langgraph", "shell", "command", PIP),
    Real("mini-swe-agent", "bash", "command", PIP),
    Real("claude-code", "Bash", "command", ("npm", "view", "@anthropic-ai/claude-code", "version")),
    Real("codex", "exec_command", "cmd", ("npm", "view", "@openai/codex", "version")),
)


@functools.cache
def reachable(command: tuple[str, ...]) -> bool:
    """Return whether a registry answers, soon enough to build anything from it."""
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def project(
    real: Real,
    folder: Path,
    cache: Path,
    turns: list[dict[str, Any]] | None = None,
    model: str = "scripted/careful",
) -> Path:
    """Lay a project with the agent, its models scripted, and build it. Returns the agent file. Skips where it cannot be built."""
    (folder / "orchestrate.toml").write_text(f'cache = "{cache}"\n')
    agents = folder / "agents"
    shutil.copytree(AGENTS / real.name, agents / real.name)
    document = YAML(typ="safe").load((AGENTS / f"{real.name}.yaml").read_text())
    document |= {"models": {"main": model}, "scripts": "scripts/"}
    document["prices"] = {model: {"input": 1.25, "output": 5}}
    scripts = agents / "scripts"
    scripts.mkdir()
    conversation = {"conversations": [{"turns": real.turns() if turns is None else turns}]}
    (scripts / f"{TASK}.yaml").write_text(json.dumps(conversation))
    file = agents / f"{real.name}.yaml"
    file.write_text(json.dumps(document))
    try:
        with_builds([load_agent(file)], cache)
    except SpecError:  # not built before
        if not reachable(real.registry):
            pytest.skip(
                f"{real.name} is not built here, and its registry does not answer: {' '.join(real.registry)[:80]}"
            )
        orchestrate(folder, "agents", "build", file)
    return file


def orchestrate(folder: Path, *words: str | Path) -> str:
    """Run a command in a project and return what it prints."""
    command = [sys.executable, "-m", "orchestrator", *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(folder: Path, file: Path, *words: str | Path, suite: Path = STARTER) -> dict[str, Any]:
    """Run the task once by the agent; return ``show --json`` of the trial."""
    orchestrate(folder, "submit", suite, "--agent", file, "--tasks", TASK, "--samples", "1", "--yes", *words)
    shown: dict[str, Any] = json.loads(orchestrate(folder, "show", "last", TASK, "--json"))
    return shown


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the trajectory of the last run's trial."""
    return [json.loads(line) for line in orchestrate(folder, "logs", "last", TASK, "--json").splitlines()]


def limited_suite(folder: Path, **budgets: int) -> Path:
    """Return a suite of the task alone, with other budgets."""
    suite = folder / "limited"
    shutil.copytree(STARTER / TASK, suite / TASK)
    (suite / "suite.yaml").write_text("id: limited\n")
    with (suite / TASK / "task.yaml").open("a") as file:
        file.write(f"budgets: {json.dumps(budgets)}\n")
    return suite


def kept_cache(request: pytest.FixtureRequest) -> Path:
    """Return where built agents stay from one session of tests to the next."""
    if request.config.cache is None:
        return Path(tempfile.gettempdir()) / "orchestrate-test-agents"
    return request.config.cache.mkdir("agents")
