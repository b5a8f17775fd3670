"""Every way in which the vendors' own clients ask for one turn, and what they understood of it.

A way takes the base address (without ``/v1``), a key and a model; it asks with the tools ``f`` and ``g`` and returns ``Heard``.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

ASKED = "what now?"
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
CHAT_TOOLS = [{"type": "function", "function": {"name": n, "description": n, "parameters": SCHEMA}} for n in "fg"]
MESSAGES_TOOLS = [{"name": n, "description": n, "input_schema": SCHEMA} for n in "fg"]
RESPONSES_TOOLS = [
    {"type": "function", "name": n, "description": n, "parameters": SCHEMA, "strict": False} for n in "fg"
]


@dataclass
class Heard:
    """What a client made of an answer."""

    text: str = ""
    calls: list[tuple[str, str, dict]] = field(default_factory=list)
    """Id, name and arguments."""
    tokens: tuple[int, int] | None = None
    """All input and all output; None where the client was not to be told."""


def openai_client(base, key, kind="OpenAI"):
    import openai

    return getattr(openai, kind)(base_url=f"{base}/v1", api_key=key, max_retries=0, timeout=20)


def anthropic_client(base, key, kind="Anthropic"):
    import anthropic

    return getattr(anthropic, kind)(base_url=base, api_key=key, max_retries=0, timeout=20)


def of_chat(answer):
    message = answer.choices[0].message
    calls = [(c.id, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or ()]
    usage = answer.usage
    return Heard(message.content or "", calls, usage and (usage.prompt_tokens, usage.completion_tokens))


def chat_request(model, **more):
    return {"model": model, "messages": [{"role": "user", "content": ASKED}], "tools": CHAT_TOOLS, **more}


def add_chunk(heard, chunk, parts):
    if chunk.usage is not None:
        heard.tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
    for choice in chunk.choices:
        heard.text += choice.delta.content or ""
        for call in choice.delta.tool_calls or ():
            made = parts.setdefault(call.index, ["", "", ""])
            made[0] += call.id or ""
            made[1] += call.function.name or ""
            made[2] += call.function.arguments or ""


def joined(heard, parts):
    heard.calls = [(i, name, json.loads(arguments)) for i, name, arguments in parts.values()]
    return heard


def chat(base, key, model):
    with openai_client(base, key) as client:
        return of_chat(client.chat.completions.create(**chat_request(model)))


def chat_async(base, key, model):
    async def ask():
        async with openai_client(base, key, "AsyncOpenAI") as client:
            return of_chat(await client.chat.completions.create(**chat_request(model)))

    return asyncio.run(ask())


def chat_stream(base, key, model, **more):
    heard, parts = Heard(), {}
    with (
        openai_client(base, key) as client,
        client.chat.completions.create(**chat_request(model, stream=True, **more)) as stream,
    ):
        for chunk in stream:
            add_chunk(heard, chunk, parts)
    return joined(heard, parts)


def chat_stream_usage(base, key, model):
    return chat_stream(base, key, model, stream_options={"include_usage": True})


def chat_stream_async(base, key, model):
    async def ask():
        heard, parts = Heard(), {}
        async with openai_client(base, key, "AsyncOpenAI") as client:
            async for chunk in await client.chat.completions.create(**chat_request(model, stream=True)):
                add_chunk(heard, chunk, parts)
        return joined(heard, parts)

    return asyncio.run(ask())


def chat_helper(base, key, model):
    options = {"include_usage": True}
    request = chat_request(model, stream_options=options)
    with openai_client(base, key) as client, client.chat.completions.stream(**request) as stream:
        kinds = [event.type for event in stream]
        assert kinds[0] == "chunk"
        return of_chat(stream.get_final_completion())


def of_message(answer):
    texts = [block.text for block in answer.content if block.type == "text"]
    calls = [(b.id, b.name, b.input) for b in answer.content if b.type == "tool_use"]
    usage = answer.usage
    sent = usage.input_tokens + (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    return Heard("".join(texts), calls, (sent, usage.output_tokens))


def messages_request(model, **more):
    asked = [{"role": "user", "content": ASKED}]
    return {"model": model, "max_tokens": 1000, "messages": asked, "tools": MESSAGES_TOOLS, **more}


def messages(base, key, model):
    with anthropic_client(base, key) as client:
        return of_message(client.messages.create(**messages_request(model)))


def messages_beta(base, key, model):
    with anthropic_client(base, key) as client:
        return of_message(client.beta.messages.create(**messages_request(model)))


def messages_async(base, key, model):
    async def ask():
        async with anthropic_client(base, key, "AsyncAnthropic") as client:
            return of_message(await client.messages.create(**messages_request(model)))

    return asyncio.run(ask())


def messages_stream(base, key, model):
    heard, parts, sent = Heard(), {}, 0
    request = messages_request(model, stream=True)
    with anthropic_client(base, key) as client, client.messages.create(**request) as stream:
        for event in stream:
            if event.type == "message_start":
                usage = event.message.usage
                sent = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
            elif event.type == "content_block_start" and event.content_block.type == "tool_use":
                parts[event.index] = [event.content_block.id, event.content_block.name, ""]
            elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                heard.text += event.delta.text
            elif event.type == "content_block_delta":
                parts[event.index][2] += event.delta.partial_json
            elif event.type == "message_delta":
                heard.tokens = (sent, event.usage.output_tokens)
    return joined(heard, parts)


def messages_helper(base, key, model):
    with anthropic_client(base, key) as client, client.messages.stream(**messages_request(model)) as stream:
        said = "".join(stream.text_stream)
        heard = of_message(stream.get_final_message())
    assert said == heard.text
    return heard


def messages_helper_async(base, key, model):
    async def ask():
        async with (
            anthropic_client(base, key, "AsyncAnthropic") as client,
            client.messages.stream(**messages_request(model)) as stream,
        ):
            return of_message(await stream.get_final_message())

    return asyncio.run(ask())


def of_response(answer):
    calls = [(i.call_id, i.name, json.loads(i.arguments)) for i in answer.output if i.type == "function_call"]
    return Heard(answer.output_text, calls, (answer.usage.input_tokens, answer.usage.output_tokens))


def responses_request(model, **more):
    return {"model": model, "input": ASKED, "tools": RESPONSES_TOOLS, **more}


def responses(base, key, model):
    with openai_client(base, key) as client:
        return of_response(client.responses.create(**responses_request(model)))


def responses_async(base, key, model):
    async def ask():
        async with openai_client(base, key, "AsyncOpenAI") as client:
            return of_response(await client.responses.create(**responses_request(model)))

    return asyncio.run(ask())


def take_events(stream, heard, numbers):
    for event in stream:
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            heard.text += event.delta
        elif event.type == "response.output_item.done" and event.item.type == "function_call":
            heard.calls.append((event.item.call_id, event.item.name, json.loads(event.item.arguments)))
        elif event.type == "response.completed":
            heard.tokens = (event.response.usage.input_tokens, event.response.usage.output_tokens)


def responses_stream(base, key, model):
    heard, numbers = Heard(), []
    request = responses_request(model, stream=True)
    with openai_client(base, key) as client, client.responses.create(**request) as stream:
        take_events(stream, heard, numbers)
    assert numbers == list(range(len(numbers)))
    return heard


def responses_helper(base, key, model):
    with openai_client(base, key) as client, client.responses.stream(**responses_request(model)) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        heard = of_response(stream.get_final_response())
    assert said == heard.text
    return heard


def responses_helper_async(base, key, model):
    async def ask():
        async with (
            openai_client(base, key, "AsyncOpenAI") as client,
            client.responses.stream(**responses_request(model)) as stream,
        ):
            return of_response(await stream.get_final_response())

    return asyncio.run(ask())


WAYS = {
    "chat": (chat, chat_async, chat_stream, chat_stream_usage, chat_stream_async, chat_helper),
    "messages": (messages, messages_beta, messages_async, messages_stream, messages_helper, messages_helper_async),
    "responses": (responses, responses_async, responses_stream, responses_helper, responses_helper_async),
}
"""By the shape of API."""
TELLS_NOTHING = {"chat_stream", "chat_stream_async"}
"""Ways that did not ask for token counts, so that they must not get any."""


def heard_of(text, calls, tokens, way):
    """Return what a way must have heard of a turn: calls as id, name and arguments, tokens as input and output."""
    return Heard(text, list(calls), None if way.__name__ in TELLS_NOTHING else tokens)
