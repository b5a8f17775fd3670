"""Who plays the task's user, and what comes of asking: the words, whether the user is done, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from orchestrator.gateway.calls import Trying
from orchestrator.records.usage import NOTHING_USED, Usage


@dataclass(frozen=True)
class UserTool:
    """Something that only the user can do."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the user says."""

    words: str
    id: str | None = None
    """Of a scripted reply."""
    ends: bool = False
    """The user is done: nothing more is answered."""
    usage: Usage = NOTHING_USED
    model: str | None = None
    """The model as it was returned; None: nobody was asked."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """What the user did with tools of its own: ``{tool, arguments, result}``."""


class UserError(Exception):
    """The user cannot be played, which is no act of the agent."""


class TaskUser(Protocol):
    """Whom an agent can ask."""

    async def reply(self, question: str, trying: Trying, spent: Callable[[Usage], None]) -> Reply:
        """Return what the user says to a question. Raises UserError.

        ``trying``: for whom models are asked. ``spent`` hears of each model call at once, so that nothing of a turn that is cut off is
        lost. Time in which the user is waited for is the caller's to count.
        """
        ...

    def recall(self, question: str, words: str) -> None:
        """Know a turn that an earlier process has had."""
        ...


class Conversation(Protocol):
    """What was said between an agent and its user."""

    def shown(self) -> dict[str, JsonValue]:
        """Return it for the agent: ``opening``, ``turns``, ``done``, ``turns_left``."""
        ...
