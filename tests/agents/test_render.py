"""Rendering an agent for one trial."""

from __future__ import annotations

import json

import pytest

from orchestrator.agents.render import models_of, refusals, render
from orchestrator.errors import RefusedError
from orchestrator.interfaces import Door, Registration, RelaySink
from orchestrator.records.manifest import Bundles, ManifestAgent, ManifestTask
from orchestrator.spec.agent import Agent
from orchestrator.spec.task import Budgets, Environment

REGISTRATION = Registration(
    launch="l",
    agent_token="agent-token",
    door=Door(socket="/d", token="secret"),
    sink=RelaySink(socket="/s", token="secret"),
)
TASK = ManifestTask(
    id="t", version=1, digest="sha256:0", kind="capability", tier=1, expect="complete", environment=Environment(),
    budgets=Budgets(), samples=1,
    bundles=Bundles(sandbox="s", world="w", graders="g", solutions={"oracle": "sha256:1", "wrong/lazy": "sha256:2"}),
)  # fmt: skip


PINNED = f"ghcr.io/acme/agent@sha256:{1:064x}"


def agent(name="a", prompt=None, files=None, **fields):
    return ManifestAgent(name=name, digest="sha256:0", agent=spec(**fields), prompt=prompt, bundle=files)


def spec(**fields):
    return Agent.model_validate_json(json.dumps(fields))


def test_a_command_gets_the_gateway_and_its_models():
    made = render(
        agent(type="command", command=["./run"], models={"main": "openai/gpt", "small-2": "openai/mini"}, files="b"),
        TASK, REGISTRATION,
    )  # fmt: skip
    assert (made.command, made.bundle, made.stdin) == (("./run",), "b", b"")
    assert made.env == {
        "ORCHESTRATE_GATEWAY": "http://127.0.0.1:8080",
        "ORCHESTRATE_TOKEN": "agent-token",
        "OPENAI_BASE_URL": "http://127.0.0.1:8080/v1",
        "OPENAI_API_KEY": "agent-token",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:8080",
        "ANTHROPIC_API_KEY": "agent-token",
        "ORCHESTRATE_MODEL": "openai/gpt",
        "ORCHESTRATE_MODEL_MAIN": "openai/gpt",
        "ORCHESTRATE_MODEL_SMALL_2": "openai/mini",
    }


def test_an_agent_file_cannot_point_its_program_elsewhere():
    ours = ("ORCHESTRATE_GATEWAY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")
    env = {**dict.fromkeys(ours, "http://evil"), "MINE": "1"}
    made = render(agent(type="command", command=["x"], models={"main": "a/b"}, env=env), TASK, REGISTRATION)
    assert made.env["MINE"] == "1"
    assert "http://evil" not in made.env.values()


@pytest.mark.parametrize("kind", ["nop", "oracle"])
def test_an_agent_without_models_can_still_finish(kind):
    made = render(agent(name="oracle", type=kind), TASK, REGISTRATION)
    assert made.env == {"ORCHESTRATE_GATEWAY": "http://127.0.0.1:8080", "ORCHESTRATE_TOKEN": "agent-token"}


def test_no_secret_of_the_freezer_is_rendered():
    made = render(agent(type="react", models={"main": "a/b"}), TASK, REGISTRATION)
    assert "secret" not in repr(made)


def test_the_instruction_comes_from_the_sandbox():
    made = render(agent(type="command", command=["cat", "-"], stdin="instruction"), TASK, REGISTRATION)
    assert made.command == ("sh", "-c", 'exec "$@" < /task/instruction.md', "sh", "cat", "-")


def test_solutions_are_chosen_by_the_agents_name():
    assert render(agent(name="oracle", type="oracle"), TASK, REGISTRATION).solution == "sha256:1"
    assert render(agent(name="wrong/lazy", type="oracle"), TASK, REGISTRATION).solution == "sha256:2"
    with pytest.raises(RefusedError, match="task t has no solution 'wrong/other' "):
        render(agent(name="wrong/other", type="oracle"), TASK, REGISTRATION)


def test_the_loop_gets_prompt_and_params_on_its_standard_input():
    made = render(agent(type="react", models={"main": "a/b"}, prompt="Hi", params={"seed": 1}), TASK, REGISTRATION)
    assert json.loads(made.stdin) == {"prompt": "Hi", "params": {"seed": 1}}
    assert made.files is not None
    assert (made.files / made.command[-1].removeprefix("/agent/")).is_file()


def test_a_scripted_agent_needs_no_models_of_its_own():
    assert models_of(spec(type="scripted", scripts="s/")) == {"main": "scripted/main"}
    assert render(agent(type="scripted", scripts="s/"), TASK, REGISTRATION).env["ORCHESTRATE_MODEL"] == "scripted/main"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"type": "http", "url": "https://a.example/run", "command": ["x"]}, "'command' is for type 'command'"),
        ({"type": "nop", "command": ["x"]}, "'command' is for type 'command'"),
        ({"type": "oracle", "bundle": "x/"}, "'bundle' is for type 'command'"),
        ({"type": "react", "models": {"main": "a/b"}, "stdin": "instruction"}, "'stdin' is for type 'command'"),
        ({"type": "nop", "placement": "own", "image": PINNED}, "'image' is for type 'command'"),
        ({"type": "nop", "build": "make"}, "'build' is for type 'command'"),
        ({"type": "nop", "adapter": "codex"}, "'adapter' is for type 'command'"),
        ({"type": "react", "models": {"main": "a/b"}, "tools": ["shel"]}, "did you mean 'shell'"),
        ({"type": "react", "models": {"main": "a/b"}, "params": {"stream": True}}, "params.stream"),
    ],
)
def test_what_is_not_run_is_refused_by_name(fields, says):
    assert any(says in sentence for sentence in refusals(spec(**fields)))
    with pytest.raises(RefusedError, match="agent a: "):
        render(agent(**fields), TASK, REGISTRATION)


def test_an_endpoint_is_reached_by_the_gateways_proxy_alone():
    fields = {"type": "http", "url": "https://agent.example/run"}
    made = render(agent(**fields), TASK, REGISTRATION)
    assert made.env["ORCHESTRATE_URL"] == fields["url"]
    assert made.env["HTTPS_PROXY"] == "http://orchestrate:agent-token@127.0.0.1:8080"
    assert made.files is not None
    assert (made.files / made.command[-1].removeprefix("/agent/")).is_file()
    assert spec(**fields).reaches == ("agent.example:443",)
    assert spec(type="http", url="http://[fd00::1]:8000").reaches == ("[fd00::1]:8000",)


def test_what_can_run_is_not_refused():
    command = {"type": "command", "command": ["x"]}
    for fields in (
        {"type": "nop"},
        {"type": "oracle"},
        command,
        {**command, "build": "make", "adapter": "codex"},
        {**command, "placement": "own", "image": PINNED},
    ):
        assert refusals(spec(**fields)) == []
