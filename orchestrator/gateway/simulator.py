"""A model that plays the task's user. It sees its persona and the conversation, and nothing else of the trial.

What the agent says reaches it as the other side's words, never as instructions. It ends the conversation by a tool, not by words that
somebody would have to guess. What it costs is counted apart from the agent's. Failures of its provider are ours. Whatever an agent can
bring about by what it says, silence and refusals among it, is an answer of the user: nobody gets another trial by making it fall silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

import orjson

from orchestrator.gateway.calls import Route, Timing, Trying, with_retries
from orchestrator.gateway.dialects.base import StreamError
from orchestrator.gateway.dialects.known import DIALECTS
from orchestrator.gateway.provider import GARBLED, ModelCall, ProviderError
from orchestrator.gateway.usage import estimate
from orchestrator.gateway.users import Reply, UserError, UserTool
from orchestrator.records.message import Message
from orchestrator.records.prices import priced
from orchestrator.records.usage import NOTHING_USED, Usage
from orchestrator.settings import Price

_SECONDS = 240.0
"""For one reply, all of its calls, attempts and pauses together."""
_WHOLE_SECONDS = 60.0
_MOST_CALLS = 5
"""Model calls for one reply, and calls of tools for one of these."""
_LONGEST = 4000
"""Characters of a reply; what is longer is cut."""
_MOST_TOKENS = 1024
"""Of an answer, where the API wants a limit."""
_SILENT = "(The user says nothing.)"
_END = "end_conversation"
_END_TOOL = UserTool(
    _END,
    "End the conversation. Give your last words, if you have any.",
    {"type": "object", "additionalProperties": False, "properties": {"last_words": {"type": "string"}}},
)

Act = Callable[[str, Mapping[str, Any]], Awaitable[str]]
"""Does what a tool of the user's own does; returns what came of it, for the model."""


class ModelUser:
    """One launch's user."""

    def __init__(
        self,
        route: Route,
        price: Price | None,
        prompt: str,
        opening: str | None,
        *,
        tools: Sequence[UserTool] = (),
        act: Act,
        patience_s: float = _WHOLE_SECONDS,
    ) -> None:
        """``patience_s``: how long one answer may take before it is asked for as a stream, which shows whether it goes on."""
        self._route = route
        self._price = price
        self._endpoint: Literal["chat", "messages"] = "messages" if route.provider.offers("messages") else "chat"
        self._tools = (*tools, _END_TOOL)
        self._act = act
        self._patience_s = patience_s
        self._prompt = prompt
        self._said: list[tuple[str, str]] = [("assistant", opening)] if opening else []
        """Who said what; the user is the model's own side."""

    @property
    def model(self) -> str:
        """``provider/name``."""
        return self._route.model

    def recall(self, question: str, words: str) -> None:
        """Know a turn that an earlier process has had."""
        self._said += [("user", question), ("assistant", words)]

    async def reply(self, question: str, trying: Trying, spent: Callable[[Usage], None]) -> Reply:
        """Return what the user says. Raises UserError when its model cannot be reached or keeps failing."""
        turn = _Turn(self._messages(question), trying, spent)
        try:
            async with asyncio.timeout(_SECONDS):
                words, ends = await self._talk(turn)
        except TimeoutError:
            msg = f"the model that plays the user, {self.model}, did not answer within {_SECONDS:g} s"
            raise UserError(msg) from None
        except ProviderError as error:
            if error.ours:
                msg = f"the model that plays the user, {self.model}, failed: {error.message}"
                raise UserError(msg) from None
            words, ends = _SILENT, False  # its provider refuses what is said: the agent brought that about
        self.recall(question, words)
        return Reply(words=words, ends=ends, usage=turn.usage, model=turn.model, calls=tuple(turn.calls))

    def _messages(self, question: str) -> list[dict[str, Any]]:
        said = [*self._said, ("user", question)]
        if said[0][0] == "assistant":  # APIs want the other side to begin
            said = [("user", "(The assistant waits for you.)"), *said]
        return [{"role": role, "content": text} for role, text in said]

    async def _talk(self, turn: _Turn) -> tuple[str, bool]:
        for _ in range(_MOST_CALLS):
            text, calls, answer = await self._ask(turn)
            ending = next((arguments for _, name, arguments in calls if name == _END), None)
            if ending is not None:
                last = ending.get("last_words")
                return _cut(text or (last if isinstance(last, str) else "")), True
            if not calls:
                return _cut(text), False
            await self._use_tools(turn, calls, answer)
        return _SILENT, False

    async def _ask(self, turn: _Turn) -> tuple[str, list[tuple[str, str, dict[str, Any]]], dict[str, Any]]:
        dialect, body = DIALECTS[self._endpoint], self._body(turn.messages)
        call = ModelCall(dialect, body, self._route.name)
        answer = await self._answer(call, turn.trying)
        said = dialect.reply(answer)
        text = "".join(part["text"] for part in said.message["parts"] if part["type"] == "text").strip()
        tokens = said.tokens or estimate(len(orjson.dumps(body)), len(text))
        usage = priced(tokens, self._price)
        turn.usage = turn.usage.plus(usage)
        turn.spent(usage)
        turn.model = said.model or turn.model
        return text, _calls(said.message), answer

    async def _answer(self, call: ModelCall, trying: Trying) -> dict[str, Any]:
        """Return an answer; one that is not there in time as a stream. An agent can ask for long ones, and none is longer than a reply."""
        provider = self._route.provider
        try:
            async with asyncio.timeout(self._patience_s):
                return await with_retries(self._route, trying, Timing(), lambda _: provider.attempt(call))
        except TimeoutError:
            streamed = replace(call, body={**call.body, "stream": True})
            return await with_retries(self._route, trying, Timing(), lambda _: self._beginning(streamed))

    async def _beginning(self, call: ModelCall) -> dict[str, Any]:
        """Return an answer up to where it is longer than a reply, or takes no end. Raises ProviderError, and TimeoutError for silence."""
        reader = call.dialect.reader(call.body, is_shown=False)
        try:
            async with asyncio.timeout(self._patience_s), aclosing(self._route.provider.stream(call)) as parts:
                async for events in parts:
                    for event in events:
                        reader.take(event)
                    if reader.done or reader.characters > _LONGEST:
                        break
        except TimeoutError:
            if not reader.characters:
                raise
        except StreamError as error:
            raise ProviderError(200, error.message, code=error.code, retryable=True) from None
        except ValueError:
            msg = f"{self.model} sent a stream that cannot be read"
            raise ProviderError(200, msg, code=GARBLED, retryable=True) from None
        if not reader.done and not reader.characters:
            msg = f"the answer of {self.model} broke off"
            raise ProviderError(200, msg, code="stream_broken", retryable=True)
        return reader.answer()

    async def _use_tools(
        self, turn: _Turn, calls: list[tuple[str, str, dict[str, Any]]], answer: dict[str, Any]
    ) -> None:
        results: list[tuple[str, str]] = []
        for number, name, arguments in calls[:_MOST_CALLS]:
            known = any(tool.name == name for tool in self._tools)
            said = (await self._act(name, arguments) if known else f"there is no tool {name!r}")[:_LONGEST]
            turn.calls.append({"tool": name, "arguments": arguments, "result": said})
            results.append((number, said))
        if self._endpoint == "chat":
            turn.messages.append(answer["choices"][0]["message"])
            turn.messages += [{"role": "tool", "tool_call_id": number, "content": said} for number, said in results]
        else:
            turn.messages.append({"role": "assistant", "content": answer["content"]})
            parts = [{"type": "tool_result", "tool_use_id": number, "content": said} for number, said in results]
            turn.messages.append({"role": "user", "content": parts})

    def _body(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        own = [{"name": tool.name, "description": tool.description} for tool in self._tools]
        schemas = [dict(tool.schema) for tool in self._tools]
        if self._endpoint == "chat":
            functions = [{**tool, "parameters": schema} for tool, schema in zip(own, schemas, strict=True)]
            tools = [{"type": "function", "function": function} for function in functions]
            return {"messages": [{"role": "system", "content": self._prompt}, *messages], "tools": tools}
        tools = [{**tool, "input_schema": schema} for tool, schema in zip(own, schemas, strict=True)]
        return {"system": self._prompt, "messages": messages, "tools": tools, "max_tokens": _MOST_TOKENS}


class _Turn:
    """What belongs to one reply."""

    def __init__(self, messages: list[dict[str, Any]], trying: Trying, spent: Callable[[Usage], None]) -> None:
        self.messages = messages
        self.trying = trying
        self.spent = spent
        self.usage: Usage = NOTHING_USED
        self.model: str | None = None
        self.calls: list[dict[str, Any]] = []


def _calls(message: Message) -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    for part in message["parts"]:
        if part["type"] == "tool_call" and part["name"] is not None:
            try:
                arguments = orjson.loads(part["arguments"] or "{}")
            except orjson.JSONDecodeError:
                arguments = {}
            found.append((part["id"] or "", part["name"], arguments if isinstance(arguments, dict) else {}))
    return found


def _cut(text: str) -> str:
    return text[:_LONGEST] or _SILENT
