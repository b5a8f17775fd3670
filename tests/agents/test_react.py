"""The react program as a plain process against a real gateway that plays scripts."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from orchestrator.agents.render import REACT_FOLDER
from orchestrator.trace.read import read_events

REACT = str(REACT_FOLDER / "react.py")


def shell(command, **more):
    return {"calls": [{"name": "shell", "arguments": {"command": command, **more}}]}


def finish(**arguments):
    return {"calls": [{"name": "finish", "arguments": {"status": "completed", **arguments}}]}


def turns(*listed):
    return {"conversations": [{"turns": list(listed)}]}


async def run(here, script, folder: Path, settings=None, **change):
    """Run the program in a folder; return exit code, output, seal and the trajectory's events."""
    inside = await here.launch(script=script, **change)
    (folder / "instruction.md").write_text("Please do it.\n")
    env = {
        "PATH": "/usr/bin:/bin",
        "ORCHESTRATE_GATEWAY": inside.url,
        "ORCHESTRATE_TOKEN": inside.registration.agent_token,
        "ORCHESTRATE_MODEL": "scripted/careful",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", REACT, str(folder / "instruction.md"),
        cwd=folder, env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate(json.dumps(settings or {}).encode())
    seal = await here.client.seal(inside.launch)
    return process.returncode, output.decode(), seal, read_events(await here.store.get(seal.trajectory.key))


def play(world, folder, script, settings=None, config=None, **change):
    async def live():
        async with world(**(config or {})).running() as here:
            return await run(here, script, folder, settings, **change)

    return asyncio.run(live())


def results(events):
    return [event.data["content"] for event in events if event.type == "tool_result"]


def test_it_looks_changes_and_finishes(world, tmp_path):
    script = turns(
        shell("echo one; echo two >&2; exit 3"),
        {**shell("echo changed > file.txt && cat file.txt"), "expect": r"one\ntwo\n\[exit code 3\]"},
        {**finish(message="done", confidence="high"), "expect": "changed"},
    )
    code, output, seal, events = play(world, tmp_path, script)
    assert code == 0, output
    assert (tmp_path / "file.txt").read_text() == "changed\n"
    assert seal.finish is not None
    assert (seal.finish.message, seal.finish.confidence, seal.steps, seal.tool_calls) == ("done", "high", 3, 3)
    assert seal.stopped is None
    assert [(e.source, e.data["name"]) for e in events if e.type == "tool_call"] == [
        ("agent", "shell"),
        ("agent", "shell"),
        ("agent", "finish"),
        ("gateway", "finish"),
    ]


def test_prompt_and_params_reach_the_model(world, tmp_path):
    settings = {"prompt": "Be terse.", "params": {"temperature": 0.25}}
    _, _, _, events = play(world, tmp_path, turns(finish()), settings)
    request = next(event.data for event in events if event.type == "model_request")
    assert request["params"] == {"temperature": 0.25}
    assert [message["parts"][0]["text"] for message in request["messages"]] == ["Be terse.", "Please do it.\n"]
    assert [tool["name"] for tool in request["tools"]] == ["shell", "finish"]


def test_a_text_answer_is_reminded_once_and_then_ends(world, tmp_path):
    script = turns({"text": "I think it is fine."}, {"text": "Truly.", "expect": "called no tool"})
    code, output, seal, _ = play(world, tmp_path, script)
    assert (code, seal.steps, seal.finish) == (0, 2, None)
    assert "calls no tool any more" in output


def test_a_spent_budget_ends_it_in_peace(world, tmp_path):
    script = turns(*[shell("true")] * 5)
    code, output, seal, _ = play(world, tmp_path, script, budgets={"max_steps": 3})
    assert (code, seal.stopped, seal.steps) == (0, "step_cap", 3)
    assert "limit of 3 model responses" in output


def test_a_refused_request_ends_it_with_a_reason(world, tmp_path):
    code, output, seal, _ = play(world, tmp_path, turns(shell("true")))
    assert (code, seal.stopped) == (1, "model_request_error")
    assert "the script has 1 answers and was asked for number 2" in output


def test_a_wrong_finish_comes_back_to_the_model(world, tmp_path):
    script = turns(
        {"calls": [{"name": "finish", "arguments": {"status": "done", "why": "x"}}]},
        {**finish(), "expect": r"status: input should be.*why: is not a field of finish"},
    )
    code, output, seal, _ = play(world, tmp_path, script)
    assert code == 0, output
    assert seal.finish is not None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"name": "rm", "arguments": {}}, "there is no tool 'rm'; there are: shell, finish"),
        ({"name": "shell", "arguments": {"command": ""}}, "a text that is not empty"),
        ({"name": "shell", "arguments": {"command": "true", "timeout_seconds": 0}}, "from 1 to 600"),
        ({"name": "shell", "arguments": {"command": "true " + "x" * 200_000}}, "could not be started"),
    ],
)
def test_a_wrong_call_comes_back_to_the_model(world, tmp_path, call, says):
    _, _, _, events = play(world, tmp_path, turns({"calls": [call]}, finish()))
    assert says in results(events)[0]


def test_a_command_is_killed_at_its_time_limit_with_its_children(world, tmp_path):
    script = turns(shell("echo before; sleep 600 & sleep 600", timeout_seconds=1), finish())
    began = time.monotonic()
    code, output, _, events = play(world, tmp_path, script)
    assert code == 0, output
    assert time.monotonic() - began < 8
    assert results(events)[0] == "before\n[timed out after 1 s and was killed]"


def test_a_background_process_does_not_hold_the_loop(world, tmp_path):
    began = time.monotonic()
    code, output, _, events = play(world, tmp_path, turns(shell("sleep 20 & echo started"), finish()))
    assert code == 0, output
    assert results(events)[0] == "started\n[exit code 0]"
    assert time.monotonic() - began < 8


def test_a_long_output_is_cut_in_the_middle(world, tmp_path):
    script = turns(shell("echo first; seq 100000; echo last"), finish())
    _, _, _, events = play(world, tmp_path, script)
    text = results(events)[0]
    assert len(text) < 10_200
    assert text.startswith("first\n1\n")
    assert text.endswith("100000\nlast\n[exit code 0]")
    assert "bytes left out" in text


def test_without_a_gateway_it_says_so(tmp_path):
    async def live():
        (tmp_path / "instruction.md").write_text("x")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", REACT, str(tmp_path / "instruction.md"),
            env={"ORCHESTRATE_GATEWAY": "http://127.0.0.1:9", "ORCHESTRATE_TOKEN": "t", "ORCHESTRATE_MODEL": "m/m"},
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, error = await process.communicate()
        return process.returncode, error.decode()

    code, error = asyncio.run(live())
    assert code == 1
    assert "GET /tools: the gateway cannot be reached" in error
