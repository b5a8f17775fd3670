"""What every shape of model API can do for the gateway. Pure: nothing is sent, stored or counted here.

A dialect checks a request, reads conversation and tools out of it, makes the request that goes to the provider, and reads the answer,
whole or as a stream of server-sent events. It also writes answers, so that scripted models speak every shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.records.message import Endpoint, Message, Tool, ToolCallPart, calls_of
from orchestrator.records.usage import Usage


@dataclass(frozen=True)
class ServerEvent:
    """One server-sent event."""

    data: str
    """Its data lines, joined by newlines."""
    event: str | None = None
    """Its name, where it has one."""

    def encoded(self) -> bytes:
        """Return it as it goes over the wire."""
        head = f"event: {self.event}\n" if self.event is not None else ""
        return (head + "".join(f"data: {line}\n" for line in self.data.split("\n")) + "\n").encode("utf-8", "replace")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What an answer says, in one form."""

    id: str | None
    model: str | None
    """The model's name as the provider returned it."""
    message: Message
    finish_reason: str | None
    """The provider's own word."""
    usage: Any
    """Token counts as the provider reported them; None when it reported none."""
    tokens: Usage | None
    """The same in exclusive buckets, without a cost; None when missing or nonsense, such as parts that exceed their total."""

    @property
    def calls(self) -> list[ToolCallPart]:
        """The tool calls."""
        return calls_of(self.message)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a scripted model says: input for ``Dialect.answer``."""

    id: str
    """Stable for the same trial and turn."""
    model: str
    text: str
    calls: tuple[tuple[str, str, str], ...]
    """Id, name and JSON arguments of each tool call."""
    tokens: Usage


class StreamReader(Protocol):
    """Follows one streamed answer. Made for one attempt."""

    calls: int
    """Tool calls that have begun so far."""
    characters: int
    """Characters of text, reasoning and arguments so far: what an answer that breaks off is paid by."""
    done: bool
    """Whether the stream has said that it is complete. Usage may come after that, so a stream is read to its end."""

    def take(self, event: ServerEvent) -> list[ServerEvent]:
        """Take the provider's next event and return what the agent gets for it: the same, without what it did not ask for (usage).

        Raises ValueError for an event that is not of this shape, and StreamError for one with which the provider reports a failure.
        """
        ...

    def answer(self) -> dict[str, Any]:
        """Return the answer so far, in the shape of an answer that is not streamed."""
        ...


class StreamError(Exception):
    """The provider reports a failure inside of a stream that began well."""

    def __init__(self, code: str | None, message: str) -> None:
        super().__init__(message)
        self.code = code
        """Its type or code word, such as ``overloaded_error``."""
        self.message = message


class Dialect(Protocol):
    """One shape of model API."""

    name: Endpoint
    path: str
    """What agents post to, such as ``/v1/chat/completions``."""
    upstream: str
    """What is added to a provider's base address, such as ``/chat/completions``."""

    def check(self, body: Mapping[str, Any], most_messages: int, hosted: frozenset[str]) -> None:
        """Refuse what may not be asked: wrong shapes, state at the provider, tools that run there unless ``hosted`` has their type.

        Raises Refusal, with a finding for what a well-meant program would not send.
        """
        ...

    def items(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the conversation's entries, instructions first. A later request of the conversation begins with them.

        They are as they came, but for what clients change from request to request without meaning anything: marks of caching, and
        texts that are now a string, now a list of one.
        """
        ...

    def message(self, item: Mapping[str, Any]) -> Message:
        """Return an entry of ``items`` in the one form."""
        ...

    def tools(self, body: Mapping[str, Any]) -> list[Tool]:
        """Return the offered tools."""
        ...

    def params(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of a request: neither model nor conversation nor tools."""
        ...

    def outgoing(self, body: Mapping[str, Any], model: str) -> dict[str, Any]:
        """Return what is sent: with the provider's own name of the model, and with usage asked for where streams must be asked."""
        ...

    def is_answer(self, value: Mapping[str, Any]) -> bool:
        """Return whether a provider's JSON object is an answer of this shape."""
        ...

    def reply(self, answer: Mapping[str, Any]) -> Reply:
        """Return what an answer says. What is malformed in it is left out, never raised."""
        ...

    def reader(self, body: Mapping[str, Any], *, is_shown: bool = True) -> StreamReader:
        """Return a follower for the streamed answer to this request of an agent.

        ``is_shown``: the agent gets the stream. Where not, it gets ``answer``, which must hold all that a whole answer would.
        """
        ...

    def answer(self, body: Mapping[str, Any], said: Said) -> dict[str, Any]:
        """Return what a scripted model says as an answer of this shape."""
        ...

    def events(self, answer: Mapping[str, Any]) -> Iterable[ServerEvent]:
        """Return an answer as the events of a stream, the usage included, up to the one that ends it."""
        ...

    def error(self, kind: str, code: str | None, message: str) -> dict[str, Any]:
        """Return the body of an error in the shape that clients of this API read."""
        ...

    def error_events(self, kind: str, code: str | None, message: str) -> list[ServerEvent]:
        """Return the events that tell a client in the middle of a stream that it has failed."""
        ...
