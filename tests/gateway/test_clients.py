"""The vendors' own clients, and curl, against a whole gateway with scripted models."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest
from sdk_ways import WAYS, anthropic_client, chat_request, heard_of, messages_request, openai_client, responses_request

from orchestrator.trace.read import read_events

ARGUMENTS = {"x": 3}
TURN = {
    "text": "Let me look.",
    "calls": [{"name": "f", "arguments": ARGUMENTS}, {"name": "g", "arguments": {"x": "no number"}}],
    "usage": {"input": 30, "output": 12},
}
SCRIPT = {
    "conversations": [{"turns": [TURN, {"text": "all done", "expect": "forty-two"}]}],
    "others": [{"match": "^quota$", "text": "enough"}, {"match": "Write a title", "text": "A title"}],
}


def live(world, ask, *, script=SCRIPT, **change):
    """Run blocking code beside a gateway; return what it returns, the seal, and the events."""

    async def run():
        async with world().running() as here:
            inside = await here.launch(script=script, **change)
            found = await asyncio.to_thread(ask, inside.url, inside.registration.agent_token)
            seal = await here.client.seal(inside.launch)
            return found, seal, list(read_events(await here.store.get(seal.trajectory.key)))

    return asyncio.run(run())


def of(events, kind, source=None):
    return [event.data for event in events if event.type == kind and source in (None, event.source)]


@pytest.mark.parametrize("api", sorted(WAYS))
def test_every_way_of_asking_is_answered_metered_and_recorded(world, api):
    ways = WAYS[api]

    def ask(base, key):
        return [way(base, key, "main") for way in ways]

    found, seal, events = live(world, ask)
    said = [("call_1_1", "f", ARGUMENTS), ("call_1_2", "g", {"x": "no number"})]
    for way, heard in zip(ways, found, strict=True):
        assert heard == heard_of("Let me look.", said, (30, 12), way), way.__name__
    assert (seal.steps, seal.tool_calls, seal.usage.total) == (len(ways), 2 * len(ways), 42 * len(ways))
    assert seal.findings == ()
    calls = of(events, "tool_call", "agent")
    assert {(call["name"], call["known"], call["valid"]) for call in calls} == {("f", True, True), ("g", True, False)}
    assert {request["endpoint"] for request in of(events, "model_request")} == {api}
    assert not any(response["broken"] or response["estimated"] for response in of(events, "model_response"))


def chat_results(said):
    call = {"type": "function", "id": "call_1_1", "function": {"name": "f", "arguments": '{"x":3}'}}
    return [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1_1", "content": said},
    ]


def messages_results(said):
    use = {"type": "tool_use", "id": "call_1_1", "name": "f", "input": ARGUMENTS}
    result = {"type": "tool_result", "tool_use_id": "call_1_1", "content": said}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def responses_results(said):
    return [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
        {"type": "function_call", "call_id": "call_1_1", "name": "f", "arguments": '{"x":3}'},
        {"type": "function_call_output", "call_id": "call_1_1", "output": said},
    ]


def second_turn(api, base, key):
    with openai_client(base, key) as openai_, anthropic_client(base, key) as anthropic_:
        if api == "chat":
            asked = chat_request("main")
            openai_.chat.completions.create(**asked)
            asked["messages"] = [*asked["messages"], *chat_results("forty-two")]
            return openai_.chat.completions.create(**asked).choices[0].message.content
        if api == "messages":
            asked = messages_request("main")
            anthropic_.messages.create(**asked)
            asked["messages"] = [*asked["messages"], *messages_results("forty-two")]
            return anthropic_.messages.create(**asked).content[0].text
        asked = responses_request("main")
        openai_.responses.create(**asked)
        begun = asked["input"] if isinstance(asked["input"], list) else [{"role": "user", "content": asked["input"]}]
        return openai_.responses.create(**{**asked, "input": [*begun, *responses_results("forty-two")]}).output_text


@pytest.mark.parametrize("api", sorted(WAYS))
def test_a_conversation_goes_on_with_what_tools_gave(world, api):
    said, seal, events = live(world, lambda base, key: second_turn(api, base, key))
    assert (said, seal.steps) == ("all done", 2)
    [result] = of(events, "tool_result", "agent")
    assert (result["id"], result["content"], result["is_error"]) == ("call_1_1", "forty-two", False)
    first, second = of(events, "model_request")
    assert (first["conversation"], second["conversation"], second["kept"]) == (0, 0, first["total"])
    assert {part["type"] for message in second["messages"] for part in message["parts"]} <= {"text", "tool_call"}


def test_side_calls_are_answered_and_are_no_turns(world):
    def ask(base, key):
        with anthropic_client(base, key) as client:
            quota = client.messages.create(model="main", max_tokens=1, messages=[{"role": "user", "content": "quota"}])
            title = client.messages.create(
                model="main",
                max_tokens=50,
                system="Write a title for this.",
                messages=[{"role": "user", "content": "what now?"}],
            )
            main = client.messages.create(**messages_request("main"))
        return [answer.content[0].text for answer in (quota, title, main)]

    said, seal, events = live(world, ask)
    assert said == ["enough", "A title", "Let me look."]
    assert seal.steps == 3
    assert [request["conversation"] for request in of(events, "model_request")] == [0, 1, 2]


def test_a_spent_budget_is_an_error_that_clients_do_not_repeat(world):
    def ask(base, key):
        import anthropic
        import openai

        with openai_client(base, key) as chat, anthropic_client(base, key) as messages:
            chat.with_options(max_retries=2).chat.completions.create(**chat_request("main"))
            with pytest.raises(openai.PermissionDeniedError) as first:
                chat.with_options(max_retries=2).chat.completions.create(**chat_request("main"))
            with pytest.raises(anthropic.PermissionDeniedError) as second:
                messages.with_options(max_retries=2).messages.create(**messages_request("main"))
        return first.value.body, second.value.body

    (chat, messages), seal, events = live(world, ask, budgets={"max_steps": 1})
    assert chat["code"] == "step_cap"
    assert messages["error"]["type"] == "budget_exhausted"
    assert "limit of 1 model responses" in messages["error"]["message"]
    assert (seal.stopped, len(of(events, "refusal"))) == ("step_cap", 2)


def test_tokens_are_counted_without_a_step(world):
    def ask(base, key):
        asked = messages_request("main")
        asked.pop("max_tokens")
        with anthropic_client(base, key) as client:
            return client.messages.count_tokens(**asked).input_tokens

    count, seal, _ = live(world, ask)
    assert count > 0
    assert (seal.steps, seal.usage.total) == (0, 0)


def test_nothing_is_counted_once_a_limit_is_spent(world):
    async def run():
        async with world().running() as here:
            inside = await here.launch(script=SCRIPT, budgets={"max_steps": 1})
            body = {"model": "main", "max_tokens": 5, "messages": [{"role": "user", "content": "what now?"}]}
            paths = ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages", "/v1/messages/count_tokens"]
            return [(await inside.ask("POST", path, body))[0] for path in paths]

    assert asyncio.run(run()) == [200, 200, 403, 403]


def test_models_are_listed_in_the_shape_of_who_asks(world):
    def ask(base, key):
        with openai_client(base, key) as openai_, anthropic_client(base, key) as anthropic_:
            return (
                [model.id for model in openai_.models.list()],
                openai_.models.retrieve("main").id,
                [model.id for model in anthropic_.models.list()],
                anthropic_.models.retrieve("scripted/careful").display_name,
            )

    found, _, _ = live(world, ask)
    assert found == (["scripted/careful"], "scripted/careful", ["scripted/careful"], "scripted/careful")


def test_what_is_left_can_be_asked_with_curl(world):
    def ask(base, key):
        curl = ["curl", "-sS", "-N", "-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json"]
        body = json.dumps({"model": "main", "input": "what now?", "stream": True})
        streamed = subprocess.run([*curl, f"{base}/v1/responses", "-d", body], capture_output=True, check=True)
        left = subprocess.run([*curl, f"{base}/budget"], capture_output=True, check=True)
        return streamed.stdout.decode(), json.loads(left.stdout)

    (streamed, left), _, _ = live(world, ask, budgets={"max_steps": 5, "max_tokens": 100, "max_cost_usd": 1.0})
    assert "event: response.completed" in streamed
    assert left == {"left": {"steps": 4, "tool_calls": 98, "tokens": 58, "usd": 0.999946}, "spent": None}


def test_embeddings_need_a_provider_that_has_them(world):
    def ask(base, key):
        import openai

        with openai_client(base, key) as client, pytest.raises(openai.NotFoundError) as caught:
            client.embeddings.create(model="main", input="x")
        return caught.value.body

    body, seal, _ = live(world, ask)
    assert body["type"] == "unsupported_endpoint"
    assert "does not offer /v1/embeddings" in body["message"]
    assert seal.steps == 0
