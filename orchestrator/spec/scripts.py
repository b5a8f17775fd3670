"""Conversation files of the provider ``scripted``: what a pretended model says, one file per task."""

from __future__ import annotations

from pydantic import Field, JsonValue

from orchestrator.spec.base import Spec


class ScriptedCall(Spec):
    """One tool call."""

    name: str = Field(min_length=1)
    """The tool."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Its arguments.

    A value ``{file: NAME}`` is replaced by the text of that file beside the script when it is loaded.
    """


class ScriptedUsage(Spec):
    """Tokens that the turn reports."""

    input: int = Field(ge=0)
    """Input tokens."""
    output: int = Field(ge=0)
    """Output tokens."""


class Turn(Spec):
    """One response of the model. Turn n answers a request that holds n - 1 assistant messages."""

    text: str = ""
    """The message."""
    calls: tuple[ScriptedCall, ...] = ()
    """Tool calls."""
    expect: str | None = None
    """Regular expression that must be found in the last message of the request; else the answer is an error ``script_mismatch``."""
    usage: ScriptedUsage | None = None
    """Tokens; four characters a token when absent."""
    error: int | None = Field(default=None, ge=400, le=599)
    """Instead of an answer: the HTTP status that the first attempt at the next answer gets. It does not count as a turn; at the end of a
    conversation it never passes."""


class Conversation(Spec):
    """One way in which the model behaves."""

    weight: float = Field(default=1, gt=0)
    """How often it is chosen, relative to the others, by the trial's seed."""
    turns: tuple[Turn, ...] = Field(min_length=1)
    """The responses in order."""


class Other(Spec):
    """An answer to side calls of an agent, such as one for a title: it is no turn, and comes as often as it is asked for."""

    match: str = Field(min_length=1)
    """Regular expression that is found in the instructions (system prompt) or in the last message of such a request; ``^`` and ``$`` are
    ends of lines."""
    text: str = ""
    """The message."""
    calls: tuple[ScriptedCall, ...] = ()
    """Tool calls."""
    usage: ScriptedUsage | None = None
    """Tokens; four characters a token when absent."""


class Script(Spec):
    """All conversations of one agent for one task."""

    conversations: tuple[Conversation, ...] = Field(min_length=1)
    """The ways to behave."""
    others: tuple[Other, ...] = ()
    """Answers to side calls; the first that matches a request answers it, whatever the conversation."""
