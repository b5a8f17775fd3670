"""One form of a conversation for everybody who reads it, whatever shape the model's API has.

The gateway turns requests and answers of the Chat Completions, Responses and Messages APIs into it when it records them, importers turn
foreign traces into it, and reports, exports and metrics read nothing else. The values are plain JSON: what models and agents said in them
stays data.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from pydantic import JsonValue

Endpoint = Literal["chat", "responses", "messages", "embeddings"]
"""The shape of API that a model was asked in."""

Role = Literal["system", "developer", "user", "assistant", "tool"]


class TextPart(TypedDict):
    """Plain text."""

    type: Literal["text"]
    text: str


class ReasoningPart(TypedDict):
    """What a model thought; the text is empty where the provider keeps it to itself."""

    type: Literal["reasoning"]
    text: str


class ToolCallPart(TypedDict):
    """A model asks for a tool."""

    type: Literal["tool_call"]
    id: str | None
    name: str | None
    arguments: str
    """As the model wrote them: JSON text where the API has text, canonical JSON where it has an object."""


class ToolResultPart(TypedDict):
    """What came of a call, as the agent tells it."""

    type: Literal["tool_result"]
    id: str | None
    """The call's."""
    content: str
    """Its text; parts that are no text are named in brackets."""
    is_error: bool
    media: NotRequired[list[MediaPart]]


class MediaPart(TypedDict):
    """An image, sound or file. Its bytes are named, not held."""

    type: Literal["media"]
    media_type: str
    url: str | None
    """Where the agent said it is, for one that came as an address; never fetched by us."""
    sha256: str | None
    """Digest of the bytes that came, in hex."""
    bytes: int | None
    """Their number."""


class OtherPart(TypedDict):
    """Anything else, as it came."""

    type: Literal["other"]
    kind: str
    """Its own type word."""
    data: JsonValue


Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | MediaPart | OtherPart


class Message(TypedDict):
    """One entry of a conversation."""

    role: Role
    parts: list[Part]
    name: NotRequired[str]
    """Who speaks, where the API has names."""


class Tool(TypedDict):
    """A tool that a request offers to the model."""

    name: str | None
    type: str
    """``function``, ``custom``, or the word of a tool that runs at the provider."""
    description: str | None
    schema: JsonValue
    """JSON Schema of the arguments; None when there is none."""


def text_of(message: Message) -> str:
    """Return the text of a message, without reasoning, calls and results."""
    return "\n".join(part["text"] for part in message["parts"] if part["type"] == "text")


def calls_of(message: Message) -> list[ToolCallPart]:
    """Return the tool calls of a message, in order."""
    return [part for part in message["parts"] if part["type"] == "tool_call"]
