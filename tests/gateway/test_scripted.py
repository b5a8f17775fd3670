"""The provider ``scripted`` plays the same conversation for the same seed, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from orchestrator.errors import GatewayError
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.provider import ModelCall, ProviderError
from orchestrator.gateway.scripted import ScriptedProvider
from orchestrator.spec.scripts import Script


def script(*conversations):
    return Script.model_validate_json(json.dumps({"conversations": list(conversations)}))


def after(answers, last="go"):
    return {
        "model": "m",
        "messages": [*[{"role": "assistant", "content": "x"}] * answers, {"role": "user", "content": last}],
    }


def play(provider, answers, attempt=0, last="go"):
    return asyncio.run(provider.attempt(ModelCall(CHAT, after(answers, last), "m", attempt=attempt)))


def text(answer):
    return answer["choices"][0]["message"]["content"]


TWO = script({"weight": 3, "turns": [{"text": "often"}]}, {"weight": 1, "turns": [{"text": "rarely"}]})


def test_the_seed_chooses_by_weight_and_always_in_the_same_way():
    async def all_seeds():
        call = ModelCall(CHAT, after(0), "m")
        return [text(await ScriptedProvider(TWO, seed).attempt(call)) for seed in range(400)]

    said = asyncio.run(all_seeds())
    assert said == asyncio.run(all_seeds())
    assert 260 < Counter(said)["often"] < 340


def test_asking_again_gives_the_same_bytes():
    provider = ScriptedProvider(script({"turns": [{"text": "a", "calls": [{"name": "f", "arguments": {"x": 1}}]}]}), 5)
    assert play(provider, 0) == play(provider, 0)
    other = ScriptedProvider(script({"turns": [{"text": "a"}]}), 6)
    assert play(other, 0)["id"] != play(provider, 0)["id"]


def test_calls_have_the_shape_of_a_model_response():
    provider = ScriptedProvider(script({"turns": [{"calls": [{"name": "f", "arguments": {"x": 1}}]}]}), 5)
    choice = play(provider, 0)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [
        {"id": "call_1_1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    ]


def failure(provider, answers, **more):
    with pytest.raises(ProviderError) as caught:
        play(provider, answers, **more)
    return caught.value


def test_past_the_end_is_the_agents_mistake():
    error = failure(ScriptedProvider(TWO, 1), 1)
    assert (error.status, error.code, error.ours) == (400, "script_exhausted", False)


def test_what_a_turn_expects_must_be_in_the_last_message():
    provider = ScriptedProvider(script({"turns": [{"text": "yes", "expect": r"\bgo\b"}]}), 1)
    assert text(play(provider, 0)) == "yes"
    error = failure(provider, 0, last="stop")
    assert (error.status, error.code, error.ours) == (400, "script_mismatch", False)
    assert str(error) == r"answer 1 of the script expects '\\bgo\\b'; the last message ends with: 'stop'"


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("a" * 500 + "\x1b[2J\nend\n", r"ends with: …'" + "a" * 192 + r"\x1b[2J\nend'"),
        ("\u202e\ud800", r"ends with: '\u202e\ud800'"),
        (" \n", "the last message has no text"),
    ],
)
def test_a_mismatch_quotes_how_the_last_message_ends(last, words):
    provider = ScriptedProvider(script({"turns": [{"text": "yes", "expect": "OK"}]}), 1)
    assert str(failure(provider, 0, last=last)).endswith(words)


def test_faults_are_what_the_first_attempts_get():
    provider = ScriptedProvider(script({"turns": [{"text": "a"}, {"error": 500}, {"error": 429}, {"text": "b"}]}), 1)
    assert text(play(provider, 0)) == "a"
    assert [failure(provider, 1, attempt=n).status for n in range(2)] == [500, 429]
    assert text(play(provider, 1, attempt=2)) == "b"
    assert failure(provider, 2).code == "script_exhausted"


def test_faults_at_the_end_never_pass():
    provider = ScriptedProvider(script({"turns": [{"error": 503}]}), 1)
    assert [failure(provider, 0, attempt=n).status for n in range(3)] == [503] * 3


def test_tokens_are_those_of_the_turn_or_four_characters_each():
    given = ScriptedProvider(script({"turns": [{"text": "a", "usage": {"input": 7, "output": 3}}]}), 1)
    assert play(given, 0)["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    counted = ScriptedProvider(script({"turns": [{"text": "x" * 400}]}), 1)
    usage = play(counted, 0)["usage"]
    assert 100 <= usage["completion_tokens"] <= 115
    assert usage["prompt_tokens"] > 0


def test_a_passing_fault_costs_the_trial_nothing(world):
    turns = {"conversations": [{"turns": [{"error": 500}, {"error": 429}, {"text": "fine"}]}]}

    async def live():
        async with world().running() as here:
            inside = await here.launch(script=turns)
            answer = await inside.chat()
            return text(answer[1]), await here.client.seal(inside.launch)

    said, seal = asyncio.run(live())
    assert (said, seal.steps, seal.stopped) == ("fine", 1, None)


def test_a_lasting_fault_is_infrastructure(world):
    async def live():
        async with world().running() as here:
            inside = await here.launch(script={"conversations": [{"turns": [{"error": 500}]}]})
            answer = await inside.chat()
            return answer[0], await here.client.seal(inside.launch)

    status, seal = asyncio.run(live())
    assert (status, seal.stopped) == (502, "model_api_error")


def test_a_task_without_a_script_is_named_at_registration(world):
    async def live():
        async with world().running() as here:
            with pytest.raises(GatewayError, match="has no script for task task-2") as caught:
                await here.client.register(here.request(task="task-2"))
            return caught.value.cause

    assert asyncio.run(live()) == "script_missing"
