"""The tool ``ask_user``: a scripted user who answers by MCP and by HTTP, and what is kept of the questions."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_world import recorded

from orchestrator.gateway.ask import LONGEST_QUESTION, ScriptedUser
from orchestrator.gateway.calls import Trying
from orchestrator.gateway.clock import WorkingClock
from orchestrator.records.outcome import Question, Seal
from orchestrator.spec.task import User
from orchestrator.spec.user import UserScript

SCRIPT = {
    "replies": [
        {"id": "currency", "mentions": [["currency", "euros or dollars"]], "say": "Euros."},
        {"id": "region", "regex": "(?i)region|country", "mentions": [["which", "what"]], "say": "North."},
        {"id": "greeting", "regex": "^Hello", "say": "Hello!", "once": True},
    ],
    "otherwise": "No idea.",
}


def user(script=None):
    return ScriptedUser(UserScript.model_validate_json(json.dumps(script or SCRIPT)))


def answer(played, question):
    reply = asyncio.run(played.reply(question, Trying("t", WorkingClock()), lambda _usage: None))
    return reply.id, reply.words


def test_the_first_reply_that_fits_is_given():
    played = user()
    asked = [
        "Which CURRENCY?",
        "Do you want euros\n or dollars?",
        "Cryptocurrency?",
        "What region, please?",
        "Region?",
        "Hello you",
        "Hello again",
        "Which region, and which currency?",
    ]
    assert [answer(played, question) for question in asked] == [
        ("currency", "Euros."),
        ("currency", "Euros."),
        (None, "No idea."),
        ("region", "North."),
        (None, "No idea."),
        ("greeting", "Hello!"),
        (None, "No idea."),
        ("currency", "Euros."),
    ]


@given(st.lists(st.text(max_size=60), max_size=6))
def test_a_user_answers_in_the_same_way_every_time(questions):
    first, second = user(), user()
    found = [answer(first, question) for question in questions]
    assert found == [answer(second, question) for question in questions]
    known = {reply["id"]: reply["say"] for reply in SCRIPT["replies"]} | {None: "No idea."}
    assert all(known[reply] == words for reply, words in found)


@asynccontextmanager
async def asking(world, most=12, script=None):
    async with world().running() as here:
        folder = here.folder / "scripts/world-1"
        folder.mkdir(parents=True)
        (folder / "user.json").write_text(script if script is not None else json.dumps(SCRIPT))
        task_user = User(mode="scripted", replies="user.yaml", max_turns=most)
        yield here, lambda: here.launch(user=task_user, world="world-1")


def test_questions_are_answered_counted_and_kept(either):
    async def run():
        async with asking(either) as (here, launch):
            inside = await launch()
            tools = (await inside.ask("GET", "/tools"))[1]["tools"]
            http = await inside.ask("POST", "/tools/ask_user", {"question": "Which currency?"})
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            call["params"] = {"name": "ask_user", "arguments": {"question": "And now?"}}
            mcp = await inside.ask("POST", "/mcp", call)
            events = await recorded(here, inside)
            return tools, http, mcp, events, await here.client.seal(inside.launch)

    tools, http, mcp, events, seal = asyncio.run(run())
    assert [tool["function"]["name"] for tool in tools] == ["finish", "ask_user"]
    assert http[:2] == (200, {"reply": "Euros.", "questions_left": 11})
    assert mcp[1]["result"]["structuredContent"] == {"reply": "No idea.", "questions_left": 10}
    assert seal.questions == (
        Question(question="Which currency?", reply="currency"),
        Question(question="And now?", reply=None),
    )
    assert Seal.from_bytes(seal.to_bytes(), "seal") == seal
    assert [each.data["via"] for each in events if each.type == "tool_call"] == ["http", "mcp"]
    assert seal.tool_calls == 2


def test_a_user_who_has_said_enough_says_no_more(world):
    async def run():
        async with asking(world, most=2) as (here, launch):
            inside = await launch()
            answers = await asyncio.gather(
                *(inside.ask("POST", "/tools/ask_user", {"question": "Which currency?"}) for _ in range(5))
            )
            return answers, await here.client.seal(inside.launch)

    answers, seal = asyncio.run(run())
    assert sorted(each[0] for each in answers) == [200, 200, 409, 409, 409]
    assert {each[1]["error"]["type"] for each in answers if each[0] == 409} == {"user_gone"}
    assert len(seal.questions) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "question: is missing"),
        ({"question": " "}, "must be a text that is not empty"),
        ({"question": 3}, "must be a text that is not empty"),
        ({"question": "x" * (LONGEST_QUESTION + 1)}, "at most 8000 are taken"),
        ({"question": "x", "to": "boss"}, "to: is not a field of ask_user"),
    ],
)
def test_what_is_no_question_is_not_asked(world, arguments, words):
    async def run():
        async with asking(world) as (here, launch):
            inside = await launch()
            status, answer, _ = await inside.ask("POST", "/tools/ask_user", arguments)
            return status, answer["error"], (await here.client.seal(inside.launch)).questions

    status, error, questions = asyncio.run(run())
    assert (status, error["type"], questions) == (400, "invalid_arguments", ())
    assert words in error["message"]


def test_without_a_user_there_is_nobody_to_ask(world):
    async def run():
        async with world().running() as here:
            inside = await here.launch()
            answer = await inside.ask("POST", "/tools/ask_user", {"question": "Hello?"})
            return answer[0], (await here.client.seal(inside.launch)).questions

    assert asyncio.run(run()) == (404, None)


@pytest.mark.parametrize("script", ["{}", "nonsense"])
def test_replies_that_cannot_be_used_begin_no_launch(world, script):
    async def run():
        async with asking(world, script=script) as (_here, launch):
            await launch()

    with pytest.raises(Exception, match="the replies of task task-1 are not usable"):
        asyncio.run(run())
