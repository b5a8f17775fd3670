"""The demo and its scripted agents: every task has a script, and every script comes to its end."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestrator.spec.agents import check_scripts, load_agent
from orchestrator.spec.load import load_submission, load_suite
from orchestrator.spec.scripts import Script

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
SUITE = load_suite(ROOT / "tasks" / "starter")
TASKS = [task.task.id for task in SUITE.tasks]
WITHOUT_END = {("sloppy", "ledger-half-import"), ("sloppy", "outage-first-cause")}
"""Scripts whose trick is that they do not finish."""


@functools.cache
def scripts(agent: str) -> dict[str, Script]:
    bundle = load_agent(MANIFESTS / "agents" / f"{agent}.yaml").scripts
    assert bundle is not None
    return {item.path.removesuffix(".json"): Script.model_validate_json(item.data) for item in bundle.items}


def test_the_demo_names_what_is_there() -> None:
    demo = load_submission(MANIFESTS / "demo.yaml")
    assert (MANIFESTS / demo.suite).resolve() == SUITE.folder.resolve()
    assert demo.agents == ("oracle", "careful", "sloppy")
    assert demo.samples == 5


@pytest.mark.parametrize("name", ["careful", "sloppy"])
def test_every_task_has_a_script_and_a_price(name: str) -> None:
    agent = load_agent(MANIFESTS / "agents" / f"{name}.yaml")
    assert check_scripts(agent, SUITE) == []
    assert sorted(agent.script_files) == TASKS
    assert set(agent.agent.prices) == set(agent.agent.models.values())


@pytest.mark.parametrize("name", ["careful", "sloppy"])
@pytest.mark.parametrize("task", TASKS)
def test_a_conversation_ends_with_finish(name: str, task: str) -> None:
    for conversation in scripts(name)[task].conversations:
        tools = [[call.name for call in turn.calls] for turn in conversation.turns]
        assert all(tools)
        if (name, task) in WITHOUT_END:
            assert ["finish"] not in tools
            continue
        assert tools[-1] == ["finish"]
        assert all("finish" not in called for called in tools[:-1])
        assert len(tools) <= 8


def test_the_one_that_is_stuck_has_more_to_say_than_it_may() -> None:
    turns = scripts("sloppy")["ledger-half-import"].conversations[0].turns
    assert len(turns) > SUITE.task("ledger-half-import").task.budgets.max_steps


def test_every_sloppy_script_names_its_trick() -> None:
    heads = {
        p.stem: p.read_text().splitlines()[0] for p in sorted((MANIFESTS / "agents/scripts/sloppy").glob("*.yaml"))
    }
    assert [task for task, head in heads.items() if head.startswith("# No trick")] == ["config-v2"]
    assert all(re.match(r"# (Trick|No trick): ", head) for head in heads.values())


def test_careful_is_unreliable_somewhere_and_says_how_sure_it_is() -> None:
    several = [task for task, script in scripts("careful").items() if len(script.conversations) > 1]
    assert {"billing-month-end", "csv-quoted-fields"} <= set(several)
    for script in scripts("careful").values():
        assert all("confidence" in c.turns[-1].calls[-1].arguments for c in script.conversations)


@pytest.mark.parametrize("name", ["careful", "sloppy"])
def test_every_file_beside_the_scripts_is_played(name: str) -> None:
    folder = MANIFESTS / "agents" / "scripts" / name
    named = set()
    for path in sorted(folder.glob("*.yaml")):
        document = YAML(typ="safe").load(path.read_text())
        for conversation in document["conversations"]:
            for turn in conversation["turns"]:
                commands = [call["arguments"].get("command") for call in turn["calls"]]
                named |= {command["file"] for command in commands if isinstance(command, dict)}
    assert named == {path.name for path in folder.glob("*.sh")}
