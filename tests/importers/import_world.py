"""Small traces of every format, and a store to import them into."""

from __future__ import annotations

import json

from orchestrator.dataset.rows import collect
from orchestrator.importers.place import Names, place_traces
from orchestrator.importers.read import Reader
from orchestrator.importers.recorded import Given
from orchestrator.records.prices import KnownPrice
from orchestrator.settings import Price
from orchestrator.storage.file import FileStore

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
TOOLS = [{"type": "function", "function": {"name": "get_order", "description": "Look.", "parameters": SCHEMA}}]
START = 1_780_000_000


def price(model):
    """Return a price for one model, as the settings would."""
    known = KnownPrice(price=Price(input=1.0, output=10.0), source="orchestrate.toml")
    return known if model == "openai/gpt-4o" else None


def call(number, name="get_order", arguments='{"id": "a"}'):
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(**more):
    """Return a conversation with a call that fails, one that does not, and a call of an unknown tool."""
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call(1), call(2, "odd")]},
        {"role": "tool", "tool_call_id": "c1", "content": "Error: no such order"},
        {"role": "tool", "tool_call_id": "c2", "content": "fine"},
        {"role": "assistant", "content": None, "tool_calls": [call(3)]},
        {"role": "tool", "tool_call_id": "c3", "content": '{"state": "sent"}'},
        {"role": "assistant", "content": "It is on its way."},
        {"role": "user", "content": "Thanks."},
    ]
    return {"messages": messages, "tools": TOOLS, **more}


def atif():
    """Return a document with two steps of an agent, money and times."""
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": "s1",
        "agent": {"name": "Terminus 2", "version": "1", "model_name": "gpt-4o", "tool_definitions": TOOLS},
        "steps": [
            {"step_id": 1, "source": "user", "message": "Where is it?", "timestamp": "2026-05-28T20:26:40Z"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "I look.",
                "reasoning_content": "Hm.",
                "timestamp": "2026-05-28T20:26:41Z",
                "tool_calls": [{"tool_call_id": "c1", "function_name": "get_order", "arguments": {"id": "a"}}],
                "observation": {"results": [{"source_call_id": "c1", "content": [{"type": "text", "text": "sent"}]}]},
                "metrics": {"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 2, "cost_usd": 0.25},
            },
            {
                "step_id": 3,
                "source": "agent",
                "message": "Sent.",
                "timestamp": "2026-05-28T20:26:50Z",
                "metrics": {"prompt_tokens": 20, "completion_tokens": 3, "cost_usd": 0.5},
            },
        ],
    }


def plain(value):
    """Return an attribute's value as OTLP in JSON has it."""
    if isinstance(value, list):
        return {"arrayValue": {"values": [plain(each) for each in value]}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def span(number, operation, begin, seconds, *, status=0, **attributes):
    """Return a span; dots in names of attributes are written as two underscores."""
    named = {"gen_ai.operation.name": operation} | {
        f"gen_ai.{name.replace('__', '.')}": value for name, value in attributes.items()
    }
    return {
        "traceId": "ab" * 16,
        "spanId": f"{number:016x}",
        "parentSpanId": "" if operation == "invoke_agent" else f"{1:016x}",
        "name": operation,
        "startTimeUnixNano": str((START + begin) * 10**9),
        "endTimeUnixNano": str((START + begin + seconds) * 10**9),
        "status": {"code": status},
        "attributes": [{"key": key, "value": plain(value)} for key, value in named.items()],
    }


def request(*spans):
    """Return an export request."""
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def otel():
    """Return the spans of a trace: an agent, two model calls, a tool that fails and one that no model response tells of."""
    told = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Where is it?"}]}])
    said = [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "get_order", "arguments": {"id": "a"}}],
        }
    ]
    again = json.dumps([*json.loads(told), *said, {"role": "user", "parts": [{"type": "text", "content": "Well?"}]}])
    model = {"provider__name": "openai", "response__model": "gpt-4o"}
    return [
        span(1, "invoke_agent", 0, 30, status=1, agent__name="Order Desk"),
        span(
            2,
            "chat",
            1,
            2,
            **model,
            input__messages=told,
            output__messages=json.dumps(said),
            usage__input_tokens=1000,
            usage__output_tokens=100,
            response__finish_reasons=["tool_calls"],
        ),
        span(3, "execute_tool", 4, 1, status=2, tool__name="get_order", tool__call__id="c1", tool__call__result="gone"),
        span(4, "execute_tool", 6, 1, tool__name="get_order", tool__call__id="c9", tool__call__arguments='{"id": "b"}'),
        span(
            5,
            "chat",
            8,
            2,
            **model,
            input__messages=again,
            usage__input_tokens=2000,
            usage__output_tokens=200,
            response__finish_reasons=["stop"],
        ),
    ]


def own():
    """Return the events of a trajectory of ours."""
    facts = [
        ("launch", "gateway", {"run": "r", "trial": "fix-login@careful:2", "launch": 1}),
        ("model_request", "gateway", {"model": "openai/gpt-4o", "conversation": 0}),
        (
            "model_response",
            "gateway",
            {
                "request": 1,
                "model": "gpt-4o",
                "waited_s": 0.5,
                "tokens": {"uncached_input": 5, "output": 2, "cost_nano_usd": 7},
            },
        ),
        (
            "tool_call",
            "agent",
            {"request": 1, "id": "a", "name": "shell", "arguments": "{}", "known": True, "valid": True},
        ),
        ("tool_result", "agent", {"id": "a", "content": "[exit code 0]", "is_error": False}),
        ("tool_call", "gateway", {"name": "finish", "arguments": {"status": "declined"}, "valid": True}),
        ("finish", "gateway", {"status": "declined"}),
        ("seal", "gateway", {"steps": 1}),
    ]
    return [
        {"v": 1, "seq": seq, "t": START + seq, "source": source, "type": kind, **data}
        for seq, (kind, source, data) in enumerate(facts)
    ]


def lines(*values):
    """Return JSON Lines."""
    return "".join(json.dumps(value) + "\n" for value in values)


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


class World:
    """A store and a place for what is read."""

    def __init__(self, folder):
        self.folder = folder
        self.store = FileStore(folder / "store")
        self._reads = 0

    def read(self, *paths, tools=None):
        """Return the traces of files and the reader."""
        self._reads += 1
        place = self.folder / f"read-{self._reads}"
        place.mkdir()
        reader = Reader(place, Given(price, tools))
        return list(reader.read(paths)), reader

    async def bring(self, *paths, store=None, **names):
        """Import files."""
        return await place_traces(store or self.store, self.read(*paths)[0], Names(**names))

    async def data(self, run):
        return await collect(self.store, run)
