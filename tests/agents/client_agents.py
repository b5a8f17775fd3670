"""Agents over the clients that people use (``clients/agent.py``), as registries have them, with scripted models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from real_agents import DONE, FIX, PIP, TASK, orchestrate, reachable

from orchestrator.driver.builds import with_builds
from orchestrator.errors import SpecError
from orchestrator.spec.agents import load_agent

FILES = Path(__file__).parent / "clients"
PRICE = {"input": 1.25, "output": 5}
"""Dollars for a million tokens."""
TOKENS = ((1200, 80), (1500, 300), (2100, 40))
"""Input and output of each answer."""
BUILD = """
export PIP_QUIET=1
python3 -m pip --python "$PYTHON" install --no-deps --require-hashes --only-binary :all: --no-compile --target packages -r requirements.txt
rm -r packages/bin
"$PYTHON" -m compileall -q --invalidation-mode unchecked-hash packages
mkdir lib
cp "$(command -v curl)" curl
for file in $(ldd curl | grep -o '/[^ ]*'); do cp -L "$file" lib/; done
mv lib/ld-linux* lib/loader
"""
"""What the registry has, and this machine's curl with its libraries, for images that hold none."""


@dataclass(frozen=True)
class Client:
    """One client, and how the agent over it ends."""

    name: str
    ending: str
    """How it calls ``finish``: ``http, curl, mcp``; or ``file``, by a file; or ``text``, by saying so and exiting."""

    @property
    def agent(self) -> str:
        return f"{self.name}-{self.ending}"

    @property
    def endpoint(self) -> str:
        kind = self.name.partition("-")[0]
        return "chat" if kind == "curl" else kind

    @property
    def stream(self) -> bool:
        return self.name.endswith("-stream")

    @property
    def finishes(self) -> bool:
        """Whether the agent ends by a tool of the gateway."""
        return self.ending not in {"file", "text"}

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The calls of the model, in order; the first two are of one answer."""
        made = [("shell", {"command": f"cat {file}"}) for file in ("docs/config-v2.md", "config/service.ini")]
        made.append(("shell", {"command": FIX}))
        if self.finishes:
            made.append(("finish", {"status": "completed", "message": DONE, "confidence": "high"}))
        return made

    def turns(self) -> list[dict[str, Any]]:
        usage = [{"usage": {"input": taken, "output": given}} for taken, given in TOKENS]
        look, more, fix, *end = [{"name": name, "arguments": arguments} for name, arguments in self.calls]
        return [
            {"text": "Let me look.", "calls": [look, more], **usage[0]},
            {"calls": [fix], "expect": "orange", **usage[1]},
            {**({"calls": end} if end else {"text": DONE}), "expect": "exit code 0", **usage[2]},
        ]


CLIENTS = (
    Client("chat", "http"),
    Client("chat", "mcp"),
    Client("chat-async", "file"),
    Client("chat-stream", "http"),
    Client("responses", "http"),
    Client("responses-async", "text"),
    Client("responses-stream", "mcp"),
    Client("messages", "http"),
    Client("messages-async", "file"),
    Client("messages-stream", "mcp"),
    Client("curl", "curl"),
    Client("curl-stream", "curl"),
)


def clients_project(folder: Path, cache: Path, clients: Sequence[Client] = CLIENTS) -> list[str]:
    """Lay a project with an agent file for each client, and build their files, once for all. Returns the words that name the agents.

    Skips where they cannot be built.
    """
    for program in ("curl", "ldd"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on the PATH")
    (folder / "orchestrate.toml").write_text(f'cache = "{cache}"\n')
    shutil.copytree(FILES, folder / "clients")
    files = [_agent_file(folder, client) for client in clients]
    try:
        with_builds([load_agent(files[0])], cache)
    except SpecError:  # not built before
        if not reachable(PIP):
            pytest.skip("the clients are not built here, and PyPI does not answer")
        orchestrate(folder, "agents", "build", files[0])
    return [word for file in files for word in ("--agent", str(file))]


def _agent_file(folder: Path, client: Client) -> Path:
    scripts = folder / f"scripts-{client.agent}"
    scripts.mkdir()
    (scripts / f"{TASK}.yaml").write_text(json.dumps({"conversations": [{"turns": client.turns()}]}))
    file = folder / f"{client.agent}.yaml"
    agent = {
        "type": "command",
        "bundle": "clients/",
        "build": BUILD,
        "command": ["python3", "-s", "/agent/agent.py", client.name, client.ending],
        "models": {"main": "scripted/careful"},
        "scripts": f"{scripts.name}/",
        "prices": {"scripted/careful": PRICE},
    }
    file.write_text(json.dumps(agent))
    return file


def check_trial(client: Client, shown: dict[str, Any], events: Sequence[dict[str, Any]]) -> None:
    """Assert what ``show --json`` and ``logs --json`` tell of a trial: verdict, ending, tokens, cost, calls, trajectory."""
    outcome, cost = shown["outcome"], sum(1250 * taken + 5000 * given for taken, given in TOKENS)
    assert shown["result"] == "passed"
    said = None if client.ending == "text" else "completed"
    assert (outcome["termination_reason"], outcome["ended_as"], outcome["exit"]["code"]) == ("completed", said, 0)
    assert (outcome["final"] or {}).get("message") == (DONE if said else None)
    assert (outcome["steps"], outcome["tool_calls"]) == (len(TOKENS), len(client.calls))
    assert (outcome["models"], outcome["findings"]) == (["careful"], [])
    spent = {name: amount for name, amount in outcome["usage"].items() if amount}
    assert spent == {"uncached_input": 4800, "output": 420, "cost_nano_usd": cost}
    _check_models(client, events)
    _check_calls(client, events)
    assert [event["seq"] for event in events] == list(range(len(events)))
    seal = events[-1]
    assert (
        seal["type"],
        seal["steps"],
        seal["tool_calls"],
        seal["tokens"],
        seal["cost_nano_usd"],
        seal["stopped"],
    ) == (*("seal", len(TOKENS), len(client.calls), 5220, cost, None),)
    unwanted = {"refusal", "finding", "model_error", "budget", "egress"}
    assert not [event for event in events if event["type"] in unwanted]


def _check_models(client: Client, events: Sequence[dict[str, Any]]) -> None:
    """Each request is the one before and what came since, and each answer has the tokens of its turn."""
    asked = [event for event in events if event["type"] == "model_request"]
    entries = [(each["endpoint"], each["stream"], each["conversation"], each["model"]) for each in asked]
    assert entries == [(client.endpoint, client.stream, 0, "scripted/careful")] * len(TOKENS)
    assert [each["kept"] for each in asked] == [0, *(each["total"] for each in asked[:-1])]
    offered = {"shell", "finish"} if client.finishes else {"shell"}
    assert {tool["name"] for tool in asked[0]["tools"]} == offered
    assert "tools" not in asked[1]
    answers = [event for event in events if event["type"] == "model_response"]
    assert [each["request"] for each in answers] == [each["seq"] for each in asked]
    assert [(each["tokens"]["uncached_input"], each["tokens"]["output"]) for each in answers] == list(TOKENS)
    assert {(each["source"], each["estimated"], each["broken"]) for each in answers} == {("gateway", False, False)}
    assert {each["first_token_s"] is not None for each in answers} == {client.stream}


def _check_calls(client: Client, events: Sequence[dict[str, Any]]) -> None:
    """What the model called is told by the agent's source, and what the gateway ran by its own."""
    made = [event for event in events if event["type"] == "tool_call" and event["source"] == "agent"]
    assert [(each["name"], json.loads(each["arguments"])) for each in made] == client.calls
    assert all(each["known"] and each["valid"] for each in made)
    told = [event for event in events if event["type"] == "tool_result" and event["source"] == "agent"]
    assert [each["id"] for each in told] == [each["id"] for each in made[:3]]
    assert ["version 2" in told[0]["content"], "orange" in told[1]["content"]] == [True, True]
    ran = [event for event in events if event["type"] in {"tool_call", "tool_result", "finish"}]
    ran = [event for event in ran if event["source"] == "gateway"]
    if not client.finishes:
        assert ran == []
        return
    call, finish, result = ran
    via = "mcp" if client.ending == "mcp" else "http"
    assert (call["name"], call["arguments"], call["via"], call["valid"]) == (*client.calls[-1], via, True)
    assert (finish["type"], finish["message"]) == ("finish", DONE)
    assert (result["call"], result["outcome"]) == (call["seq"], "ok")
