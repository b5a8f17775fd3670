"""Agents over the clients that people use (``clients/agent.py``), as registries have them, with scripted models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from real_agents import DONE, FIX, PIP, STARTER, TASK, orchestrate, reachable

from orchestrator.driver.builds import with_builds
from orchestrator.errors import SpecError
from orchestrator.spec.agents import load_agent

FILES = Path(__file__).parent / "clients"
PRICE = {"input": 1.25, "output": 5}
"""Dollars for a million tokens."""
TOKENS = ((1200, 80), (1500, 300), (2100, 40))
"""Input and output of each answer."""
QUESTION = "May the old files be deleted?"
REPLY = "Yes, delete them."
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
        return "chat" if kind in {"curl", "plain"} else kind

    @property
    def stream(self) -> bool:
        return self.name.endswith("-stream")

    @property
    def finishes(self) -> bool:
        """Whether the agent ends by a tool of the gateway."""
        return self.ending not in {"file", "text"}

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The calls of the model, in order; those before the last shell are of one answer."""
        look, more, fix = [("shell", {"command": each}) for each in ("cat docs/config-v2.md", "cat config/*.ini", FIX)]
        if not self.finishes:
            return [look, more, fix]
        finish = ("finish", {"status": "completed", "message": DONE, "confidence": "high"})
        return [look, ("ask_user", {"question": QUESTION}), more, fix, finish]

    def turns(self) -> list[dict[str, Any]]:
        usage = [{"usage": {"input": taken, "output": given}} for taken, given in TOKENS]
        calls = [{"name": name, "arguments": arguments} for name, arguments in self.calls]
        end = [calls.pop()] if self.finishes else []
        return [
            {"text": "Let me look.", "calls": calls[:-1], **usage[0]},
            {"calls": calls[-1:], "expect": "orange", **usage[1]},
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


PLAIN = Client("plain", "http")
"""The one that needs only Python, for images that hold nothing else."""


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


def asking_suite(folder: Path) -> Path:
    """Return a suite of the task alone, with a user who can be asked."""
    suite = folder / "asking"
    shutil.copytree(STARTER / TASK, suite / TASK)
    (suite / "suite.yaml").write_text("id: asking\ndefaults:\n  environment: {requires: [python3]}\n")
    replies = [{"id": "deletion", "mentions": [["deleted"]], "say": REPLY}]
    (suite / TASK / "user.yaml").write_text(json.dumps({"replies": replies}))
    with (suite / TASK / "task.yaml").open("a") as file:
        file.write("user: {mode: scripted, replies: user.yaml, max_turns: 3}\n")
    return suite


def _agent_file(folder: Path, client: Client) -> Path:
    command = ["python3", "-s", "/agent/agent.py", client.name, client.ending]
    return write_agent(folder, client.agent, client, command=command, bundle="clients/", build=BUILD)


def write_agent(folder: Path, name: str, client: Client, **fields: Any) -> Path:
    """Lay the file of an agent with a client, and what its model says."""
    scripts = folder / f"scripts-{name}"
    scripts.mkdir()
    (scripts / f"{TASK}.yaml").write_text(json.dumps({"conversations": [{"turns": client.turns()}]}))
    file = folder / f"{name}.yaml"
    models = {"models": {"main": "scripted/careful"}, "prices": {"scripted/careful": PRICE}}
    file.write_text(json.dumps({"type": "command", **models, "scripts": f"{scripts.name}/", **fields}))
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
    asked = [{"question": QUESTION, "reply": "deletion", "said": None}] if client.finishes else []
    assert outcome["questions"] == asked
    _check_models(client, events)
    _check_calls(client, events)
    assert [event["seq"] for event in events] == list(range(len(events)))
    sealed = {"type": "seal", "steps": len(TOKENS), "tool_calls": len(client.calls), "tokens": 5220, "stopped": None}
    assert events[-1] == events[-1] | sealed | {"cost_nano_usd": cost}
    unwanted = {"refusal", "finding", "model_error", "budget", "egress"}
    assert not [event for event in events if event["type"] in unwanted]


def _check_models(client: Client, events: Sequence[dict[str, Any]]) -> None:
    """Each request is the one before and what came since, and each answer has the tokens of its turn."""
    asked = [event for event in events if event["type"] == "model_request"]
    entries = [(each["endpoint"], each["stream"], each["conversation"], each["model"]) for each in asked]
    assert entries == [(client.endpoint, client.stream, 0, "scripted/careful")] * len(TOKENS)
    assert [each["kept"] for each in asked] == [0, *(each["total"] for each in asked[:-1])]
    offered = {"shell", "finish", "ask_user"} if client.finishes else {"shell"}
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
    assert [each["id"] for each in told] == [each["id"] for each in made if each["name"] != "finish"]
    assert ["version 2" in told[0]["content"], "orange" in told[-2]["content"]] == [True, True]
    if client.finishes:
        assert REPLY in told[1]["content"]
    own = [event for event in events if event["source"] == "gateway"]
    ran = [event for event in own if event["type"] == "tool_call"]
    via = "mcp" if client.ending == "mcp" else "http"
    expected = [(*call, via, True) for call in client.calls if call[0] != "shell"]
    assert [(each["name"], each["arguments"], each["via"], each["valid"]) for each in ran] == expected
    results = [event for event in own if event["type"] == "tool_result"]
    assert [(each["call"], each["outcome"]) for each in results] == [(each["seq"], "ok") for each in ran]
    finals = [event["message"] for event in own if event["type"] == "finish"]
    assert finals == ([DONE] if client.finishes else [])
