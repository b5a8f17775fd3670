"""An agent made with LangGraph in an image of its own, on the files of a task whose image knows nothing of it."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agents"))

from real_agents import REAL, kept_cache, project

from orchestrator.driver.builds import with_builds
from orchestrator.spec.agents import load_agent

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(600)]

Run = Callable[..., subprocess.CompletedProcess[str]]
LANGGRAPH = next(each for each in REAL if each.name == "langgraph")


def test_a_graph_finishes_from_its_own_image(
    orchestrate: Run, suite: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from container_world import engine

    cache = kept_cache(request)
    [built] = with_builds([load_agent(project(LANGGRAPH, tmp_path, cache))], cache)
    assert built.bundle is not None
    built.bundle.write(tmp_path / "recipe")
    libraries = tmp_path / "recipe" / "lib"  # what the tests' base image has not, and every usual one has
    libraries.mkdir()
    for name in (
        "libgcc_s.so.1",
        "libstdc++.so.6",
        "libm.so.6",
        "libz.so.1",
        "librt.so.1",
        "libpthread.so.0",
        "libdl.so.2",
    ):
        [found] = list(Path("/lib").glob(f"{platform.machine()}-linux-gnu/{name}")) or [None]
        if found is not None:
            shutil.copy(found, libraries)
    (tmp_path / "recipe" / "Dockerfile").write_text("FROM localhost/orchestrate-test-base:1\nCOPY . /opt/agent\n")
    command = [*engine().command, "build", "--quiet", str(tmp_path / "recipe")]
    image = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    image = image if image.startswith("sha256:") else f"sha256:{image}"
    scripts = tmp_path / "agents" / "own"
    scripts.mkdir()
    finish = {"calls": [{"name": "finish", "arguments": {"status": "completed", "message": "Counted."}}]}
    turns = [LANGGRAPH.shell("grep -c '' poem.txt > count.txt; cat count.txt"), {**finish, "expect": "4"}]
    (scripts / "count-lines.json").with_suffix(".yaml").write_text(json.dumps({"conversations": [{"turns": turns}]}))
    mine = tmp_path / "agents" / "graph.yaml"
    fields = {
        "command": ["python3", "-s", "/opt/agent/agent.py"],
        "placement": "own",
        "image": image,
        "scripts": "own/",
        "env": {"LD_LIBRARY_PATH": "/opt/agent/lib"},
    }
    mine.write_text(json.dumps({"type": "command", "models": {"main": "scripted/graph"}, **fields}))
    try:
        orchestrate("images", "lock", suite)
        orchestrate("submit", suite, "--agent", mine, "--tasks", "count-lines", "--samples", "1")
        shown = json.loads(orchestrate("show", "last", "count-lines", "--json").stdout)
    finally:
        subprocess.run([*engine().command, "rmi", "--force", image], capture_output=True, check=False)
    assert shown["result"] == "passed", orchestrate("show", "last", "count-lines").stdout
    assert shown["outcome"]["final"]["message"] == "Counted."
    assert (shown["outcome"]["steps"], shown["outcome"]["tool_calls"]) == (2, 2)
