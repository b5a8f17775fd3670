"""The gateway's own tools over plain HTTP: what they answer, what is counted, what is recorded."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

import pytest
from tool_world import SlowTool, recorded

from orchestrator.gateway.toolbox import Toolbox

CALLS_FINISH = {
    "conversations": [
        {
            "turns": [
                {"calls": [{"name": "mcp__orchestrate__slow", "arguments": {}}]},
                {"calls": [{"name": "shell", "arguments": {}}]},
                {"text": "done"},
            ]
        }
    ]
}


def live(world, do, script=None, **change):
    async def run():
        async with world().running() as here:
            inside = await here.launch(script=script, **change)
            slow = SlowTool()
            here.registry.find(inside.launch).tools.add(slow.tool)
            found = await do(here, inside, slow)
            return found, await recorded(here, inside), await here.client.seal(inside.launch)

    return asyncio.run(run())


def test_a_call_is_recorded_with_its_outcome(world):
    async def do(_here, inside, slow):
        slow.let_go.set()
        return [
            (await inside.ask("POST", "/tools/slow", arguments))[0]
            for arguments in ({}, {"fail": True}, {"nonsense": 1})
        ]

    found, events, seal = live(world, do)
    assert found == [200, 502, 400]
    calls, results = ([each for each in events if each.type == kind] for kind in ("tool_call", "tool_result"))
    assert [(each.source, each.data["via"], each.data["valid"]) for each in calls] == [
        ("gateway", "http", True),
        ("gateway", "http", True),
        ("gateway", "http", False),
    ]
    assert [each.data["problem"] for each in calls] == [None, None, "nonsense: not known"]
    assert [(each.data["call"], each.data["outcome"], each.data["content"]) for each in results] == [
        (calls[0].seq, "ok", '{"waited":true}'),
        (calls[1].seq, "error", "it broke"),
        (calls[2].seq, "invalid", "slow: nonsense: not known"),
    ]
    assert all(each.data["seconds"] >= 0 for each in results)
    assert seal.tool_calls == 3


def test_a_call_that_a_model_asked_for_counts_once(world):
    async def do(_here, inside, slow):
        slow.let_go.set()
        asked = [{"role": "user", "content": "go"}]
        for _ in range(2):  # the first answer asks for the slow tool under the name that MCP clients give it
            await inside.chat(asked)
            asked += [{"role": "assistant", "content": "…"}, {"role": "user", "content": "on"}]
        counted = []
        for _ in range(3):
            _, _, headers = await inside.ask("POST", "/tools/slow", {})
            counted.append(headers["x-orchestrate-tool-calls-left"])
        return counted

    found, _, seal = live(world, do, script=CALLS_FINISH, budgets={"max_tool_calls": 10})
    assert found == ["8", "7", "6"]
    assert seal.tool_calls == 4


def test_parallel_calls_never_exceed_the_limit_and_finish_is_heard_after_it(world):
    async def do(_here, inside, slow):
        slow.let_go.set()
        answers = await asyncio.gather(*(inside.ask("POST", "/tools/slow", {}) for _ in range(20)))
        ended = await inside.ask("POST", "/tools/finish", {"status": "completed"})
        after = await inside.ask("POST", "/tools/slow", {})
        return answers, ended[0], (after[0], after[1]["error"]["type"])

    (answers, ended, after), events, seal = live(world, do, budgets={"max_tool_calls": 5})
    assert sorted(each[0] for each in answers) == [200] * 5 + [403] * 15
    refused = next(each[1]["error"] for each in answers if each[0] == 403)
    assert (refused["type"], refused["code"]) == ("budget_exhausted", "tool_call_cap")
    assert (ended, after) == (200, (409, "already_finished"))
    assert (seal.stopped, seal.tool_calls, seal.finish.status) == ("tool_call_cap", 5, "completed")
    assert sum(each.type == "tool_call" for each in events) == 6


def test_a_tool_that_takes_too_long_is_given_up(world):
    async def run():
        async with world().running() as here:
            inside = await here.launch()
            slow = SlowTool(seconds=0.05)
            here.registry.find(inside.launch).tools.add(slow.tool)
            status, answer, _ = await inside.ask("POST", "/tools/slow", {})
            return status, answer["error"]["type"], slow.cancelled, await recorded(here, inside)

    status, kind, cancelled, events = asyncio.run(run())
    assert (status, kind, cancelled, events[-1].data["outcome"]) == (504, "tool_timeout", True, "timeout")


def test_an_agent_that_hangs_up_does_not_stop_a_call(world):
    async def do(_here, inside, slow):
        with inside.raw(
            f"POST /tools/slow HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {inside.registration.agent_token}\r\n"
            "Content-Length: 2\r\n\r\n{}".encode()
        ):
            await slow.began.wait()
        await asyncio.sleep(0.05)
        slow.let_go.set()
        return slow.cancelled

    cancelled, events, _ = live(world, do)
    assert (cancelled, events[-1].data["outcome"]) == (False, "ok")


def test_a_seal_ends_calls_that_are_open(world):
    async def do(_here, inside, slow):
        call = asyncio.create_task(inside.ask("POST", "/tools/slow", {}))
        await slow.began.wait()
        return call

    call, events, _ = live(world, do)
    assert (events[-1].type, events[-1].data["outcome"]) == ("tool_result", "error")
    assert call.cancelled() or call.done()


def test_curl_lists_and_calls(world):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl")

    async def do(_here, inside, _slow):
        def ask(*words):
            token = inside.registration.agent_token
            said = subprocess.run(
                [curl, "-sS", "-H", f"Authorization: Bearer {token}", *words],
                capture_output=True,
                text=True,
                check=True,
            )
            return said.stdout

        listed = await asyncio.to_thread(ask, f"{inside.url}/tools")
        json_form = ("-H", "Content-Type: application/json")
        ended = await asyncio.to_thread(
            ask, *json_form, "-d", '{"status": "declined", "message": "no"}', f"{inside.url}/tools/finish"
        )
        return listed, ended

    (listed, ended), _, seal = live(world, do)
    assert '"name":"finish"' in listed
    assert ended == '{"ok": true, "status": "declined"}'
    assert seal.finish.message == "no"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("ask_user", "ask_user"),
        ("mcp__orchestrate__ask_user", "ask_user"),
        ("orchestrate.ask_user", "ask_user"),
        ("user", "user"),
        ("mcp__ask_user", "ask_user"),
        ("task_user", "user"),
        ("superuser", None),
        ("ask_user_now", None),
    ],
)
def test_a_models_name_for_a_tool_is_understood(said, meant):
    slow = SlowTool().tool
    box = Toolbox(type(slow)(**{**slow.__dict__, "name": name}) for name in ("user", "ask_user"))
    box.announced([said, None])
    assert [name for name in ("user", "ask_user") if box.take_announced(name)] == ([meant] if meant else [])
    assert not any(box.take_announced(name) for name in ("user", "ask_user"))
