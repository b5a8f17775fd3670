"""Small agents over the clients that people use: ask the model, run what it calls, until it calls ``finish`` or calls nothing.

    agent.py CLIENT ENDING

A client holds its conversation in the form of its API. ``ask`` returns the text and the calls (id, name, arguments) of one answer.
"""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages"))

GATEWAY = os.environ["ORCHESTRATE_GATEWAY"]
KEY = {"Authorization": f"Bearer {os.environ['ORCHESTRATE_TOKEN']}"}
MODEL = os.environ["ORCHESTRATE_MODEL"]
SHELL = {
    "name": "shell",
    "description": "Run a command with sh in the workspace and return its output.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


class Chat:
    """The Chat Completions API."""

    def __init__(self, instruction, tools):
        self.history = [{"role": "user", "content": instruction}]
        self.request = {"model": MODEL, "tools": [{"type": "function", "function": tool} for tool in tools]}

    def body(self, **more):
        return {**self.request, "messages": self.history, **more}

    def taken(self, message):
        self.history.append({key: value for key, value in message.items() if value is not None})
        calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
        return message.get("content") or "", calls

    def results(self, results):
        self.history += [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results]

    async def ask(self):
        import openai

        with openai.OpenAI() as client:
            answer = client.chat.completions.create(**self.body())
        return self.taken(answer.choices[0].message.model_dump())


class AsyncChat(Chat):
    async def ask(self):
        import openai

        async with openai.AsyncOpenAI() as client:
            answer = await client.chat.completions.create(**self.body())
        return self.taken(answer.choices[0].message.model_dump())


class StreamedChat(Chat):
    async def ask(self):
        import openai

        texts, calls = [], {}
        with openai.OpenAI() as client:
            for chunk in client.chat.completions.create(**self.body(stream=True)):
                assert chunk.usage is None, "it was not asked for"
                for choice in chunk.choices:
                    texts.append(choice.delta.content or "")
                    for part in choice.delta.tool_calls or ():
                        call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                        call["id"] += part.id or ""
                        call["name"] += part.function.name or ""
                        call["arguments"] += part.function.arguments or ""
        made = [{"id": call.pop("id"), "type": "function", "function": call} for call in calls.values()]
        return self.taken({"role": "assistant", "content": "".join(texts), "tool_calls": made or None})


class Responses:
    """The Responses API."""

    def __init__(self, instruction, tools):
        self.history = [{"role": "user", "content": instruction}]
        self.request = {"model": MODEL, "tools": [{"type": "function", "strict": False, **tool} for tool in tools]}

    def body(self, **more):
        return {**self.request, "input": self.history, "store": False, **more}

    def taken(self, answer):
        self.history += [item.model_dump(exclude_none=True) for item in answer.output]
        calls = [(item.call_id, item.name, item.arguments) for item in answer.output if item.type == "function_call"]
        return answer.output_text, calls

    def results(self, results):
        self.history += [{"type": "function_call_output", "call_id": call, "output": text} for call, text in results]

    async def ask(self):
        import openai

        with openai.OpenAI() as client:
            return self.taken(client.responses.create(**self.body()))


class AsyncResponses(Responses):
    async def ask(self):
        import openai

        async with openai.AsyncOpenAI() as client:
            return self.taken(await client.responses.create(**self.body()))


class StreamedResponses(Responses):
    async def ask(self):
        import openai

        with openai.OpenAI() as client, client.responses.stream(**self.body()) as stream:
            said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            answer = stream.get_final_response()
        assert said == answer.output_text
        return self.taken(answer)


class Messages:
    """The Messages API of Anthropic."""

    def __init__(self, instruction, tools):
        self.history = [{"role": "user", "content": instruction}]
        asked = [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in tools]
        self.request = {"model": MODEL, "max_tokens": 4000, "tools": asked}

    def body(self):
        return {**self.request, "messages": self.history}

    def taken(self, message):
        self.history.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
        texts = [block.text for block in message.content if block.type == "text"]
        calls = [(b.id, b.name, json.dumps(b.input)) for b in message.content if b.type == "tool_use"]
        return "".join(texts), calls

    def results(self, results):
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in results]
        self.history.append({"role": "user", "content": blocks})

    async def ask(self):
        import anthropic

        with anthropic.Anthropic() as client:
            return self.taken(client.messages.create(**self.body()))


class AsyncMessages(Messages):
    async def ask(self):
        import anthropic

        async with anthropic.AsyncAnthropic() as client:
            return self.taken(await client.messages.create(**self.body()))


class StreamedMessages(Messages):
    async def ask(self):
        import anthropic

        with anthropic.Anthropic() as client, client.messages.stream(**self.body()) as stream:
            said = "".join(stream.text_stream)
            message = stream.get_final_message()
        assert said == "".join(block.text for block in message.content if block.type == "text")
        return self.taken(message)


CURL = (
    "/agent/lib/loader",
    "--library-path",
    "/agent/lib",
    "/agent/curl",
    "--silent",
    "--show-error",
    "--fail-with-body",
)


def curl(path, body=None, *options):
    words = [*CURL, *options, "--header", f"Authorization: {KEY['Authorization']}"]
    if body is not None:
        words += ["--json", "@-"]
    sent = b"" if body is None else json.dumps(body).encode()
    done = subprocess.run([*words, GATEWAY + path], input=sent, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


class Curl(Chat):
    """Programs that are not written in Python, or hold no SDK."""

    async def ask(self):
        return self.taken(json.loads(curl("/v1/chat/completions", self.body()))["choices"][0]["message"])


class StreamedCurl(Chat):
    async def ask(self):
        body = self.body(stream=True, stream_options={"include_usage": True})
        lines = curl("/v1/chat/completions", body, "--no-buffer").split(b"\n\n")
        datas = [line.removeprefix(b"data: ") for line in lines if line]
        assert datas.pop() == b"[DONE]"
        chunks = [json.loads(data) for data in datas]
        assert chunks[-1]["usage"]["total_tokens"] > 0
        text, calls = "", {}
        for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
            text += delta.get("content") or ""
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
                call.setdefault("id", part.get("id"))
                for key in ("name", "arguments"):
                    call["function"][key] += part["function"].get(key) or ""
        return self.taken({"role": "assistant", "content": text, "tool_calls": list(calls.values()) or None})


class HttpTools:
    """The gateway's tools by plain HTTP."""

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(GATEWAY + path, data, {**KEY, "Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    async def listed(self):
        return [tool["function"] for tool in json.loads(self.ask("/tools"))["tools"]]

    async def call(self, name, arguments):
        return self.ask(f"/tools/{name}", arguments).decode()


class CurlTools(HttpTools):
    def ask(self, path, body=None):
        return curl(path, body)


class McpTools:
    """The same by the SDK of MCP."""

    async def _with(self, use):
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        async with (
            httpx2.AsyncClient(headers=KEY) as http,
            Client(streamable_http_client(f"{GATEWAY}/mcp", http_client=http)) as client,
        ):
            return await use(client)

    async def listed(self):
        found = (await self._with(lambda client: client.list_tools())).tools
        return [{"name": t.name, "description": t.description, "parameters": t.input_schema} for t in found]

    async def call(self, name, arguments):
        result = await self._with(lambda client: client.call_tool(name, arguments))
        assert not result.is_error, result
        return "".join(part.text for part in result.content)


class Plain(Chat):
    """Nothing but Python."""

    async def ask(self):
        answer = json.loads(HttpTools().ask("/v1/chat/completions", self.body()))
        return self.taken(answer["choices"][0]["message"])


CLIENTS = {
    "plain": Plain,
    "chat": Chat,
    "chat-async": AsyncChat,
    "chat-stream": StreamedChat,
    "responses": Responses,
    "responses-async": AsyncResponses,
    "responses-stream": StreamedResponses,
    "messages": Messages,
    "messages-async": AsyncMessages,
    "messages-stream": StreamedMessages,
    "curl": Curl,
    "curl-stream": StreamedCurl,
}
TOOLS = {"http": HttpTools, "curl": CurlTools, "mcp": McpTools}


def shell(command):
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return f"{done.stdout.decode()}\n[exit code {done.returncode}]"


async def main(client, ending):
    tools = TOOLS[ending]() if ending in TOOLS else None
    with open("/task/instruction.md", encoding="utf-8") as file:
        instruction = file.read()
    talk = CLIENTS[client](instruction, [SHELL, *(await tools.listed() if tools else ())])
    while True:
        text, calls = await talk.ask()
        results = []
        for call, name, written in calls:
            arguments = json.loads(written)
            done = shell(**arguments) if name == "shell" else await tools.call(name, arguments)
            results.append((call, done))
        if any(name == "finish" for _, name, _ in calls):
            return
        if not calls:
            break
        talk.results(results)
    if ending == "file":
        with open("/output/final.json", "w", encoding="utf-8") as file:
            json.dump({"status": "completed", "message": text}, file)
    print(text)


asyncio.run(main(*sys.argv[1:]))
