"""What the user of a task does in its world: with tools that the agent has not, and in the log as the user's."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from test_worlds_of_launches import bundle, lay, rows, world_of
from world_world import GET, tool

from orchestrator.sandbox.world.command import COMMAND
from orchestrator.spec.bundle import Bundle, Item
from orchestrator.spec.task import User

RESTART = tool("restart_phone", caller="user", sql=["update orders set status = 'restarted' where id = 'o2'"])
USER = {
    "replies": [
        {"id": "restarted", "mentions": [["restart"]], "say": "I did.", "call": {"tool": "restart_phone"}},
        {"id": "thanks", "mentions": [["works"]], "say": "Yes, thank you.", "ends": True},
        {"id": "odd", "mentions": [["odd"]], "say": "I could not.", "call": {"tool": "no_tool"}},
    ]
}


def test_the_user_acts_in_the_world_and_ends_the_talk(world: Any) -> None:
    async def run() -> tuple[Any, ...]:
        here = world(world_program=COMMAND)
        async with here.running():
            made = bundle(GET, RESTART)
            lay(here, "world-1", Bundle.of([*made.items, Item("user.json", data=json.dumps(USER).encode())]))
            user = User(mode="scripted", replies="user.yaml", max_turns=9)
            inside = await here.launch(user=user, world="world-1", models={}, scripts=None)
            tools = (await inside.ask("GET", "/tools"))[1]["tools"]
            refused = await inside.ask("POST", "/tools/restart_phone", {})
            said = [
                (await inside.ask("POST", "/v1/conversation/next", {"message": message}))[:2]
                for message in ("Please restart it.", "That is odd.", "So it works?", "Good.")
            ]
            seal = await here.client.seal(inside.launch)
            return tools, refused, said, seal, await world_of(here.store, seal)

    tools, refused, said, seal, data = asyncio.run(run())
    assert "restart_phone" not in {each["function"]["name"] for each in tools}
    assert refused[0] == 404
    assert [answer.get("message") for _, answer in said] == ["I did.", "I could not.", "Yes, thank you.", None]
    assert (said[2][1]["done"], said[3][0]) == (True, 409)
    assert [question.reply for question in seal.questions] == ["restarted", "odd", "thanks"]
    assert rows(data, "select status from orders where id = 'o2'") == [("restarted",)]
    assert rows(data, "select tool, caller, outcome from _calls") == [
        ("restart_phone", "user", "ok"),
        ("no_tool", "user", "error"),
    ]
