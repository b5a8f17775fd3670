"""The tools that the gateway offers to one launch: one list for everybody who calls them, by MCP or by plain HTTP.

A tool is added by giving its name, what it is for, the JSON Schema of its arguments, and what it does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import orjson
from pydantic import JsonValue

from orchestrator.gateway.sessions import Sessions
from orchestrator.records.outcome import Question

Listed = TypeVar("Listed")

Via = Literal["http", "mcp"]
"""How a call came."""

ToolOutcome = Literal["ok", "error", "refused", "timeout", "invalid"]
"""What came of a call. ``invalid``: the arguments do not fit. ``refused``: not now, or not any more. ``error``: it was tried and failed."""

_STATUS: dict[ToolOutcome, int] = {"ok": 200, "error": 502, "refused": 409, "timeout": 504, "invalid": 400}


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """What a call gives back."""

    outcome: ToolOutcome = "ok"
    data: dict[str, JsonValue] = field(default_factory=dict)
    """The result, of a call that went well."""
    kind: str | None = None
    """The short word for what went wrong."""
    message: str = ""
    """The same in words for the agent."""
    code: int | None = None
    """Status of an HTTP answer, where the outcome does not say it."""
    retry_after: float | None = None
    """Seconds after which it may be tried again."""
    aside: dict[str, JsonValue] = field(default_factory=dict)
    """What is recorded with the result, and not for the agent."""

    @property
    def status(self) -> int:
        """As status of an HTTP answer."""
        return self.code or _STATUS[self.outcome]

    @property
    def text(self) -> str:
        """For a model to read: the result as JSON, or what went wrong."""
        return orjson.dumps(self.data).decode() if self.outcome == "ok" else self.message


Effect = Callable[[], Awaitable[ToolAnswer]]
"""Does what was asked, once."""


class ArgumentsError(Exception):
    """The arguments of a call do not fit; the text names every mistake."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool of one launch."""

    name: str
    description: str
    """For the model: what it is for, and when to use it."""
    schema: dict[str, Any]
    """JSON Schema of the arguments, an object."""
    prepare: Callable[[dict[str, Any]], Effect]
    """Returns what a call with these arguments will do, without doing it. Raises ArgumentsError."""
    seconds: float = 60
    """How long a call may take."""
    is_free: bool = False
    """A call with right arguments counts against no limit, and is taken when all is spent."""
    recall: Callable[[dict[str, Any]], None] = lambda _arguments: None
    """Does to the launch's memory what a call that went well has done, told of by an earlier process."""
    recall_result: Callable[[dict[str, Any], Mapping[str, Any]], None] | None = None
    """Instead of ``recall``: it is given the event that tells what came of the call, too, whatever it was."""
    recalls_failures: bool = False
    """Whether ``recall`` is for calls that failed, too."""
    destructive: bool = False
    """Whether it changes something that cannot be changed back."""


class Toolbox:
    """The tools of one launch, and which of their calls a model has announced."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._announced: Counter[str] = Counter()
        self._listed: dict[str, Any] = {}
        self.sessions = Sessions()
        """Of those who call them by MCP."""
        self.questions: list[Question] | None = None
        """What has been asked of the task's user; None: there is nobody to ask."""
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Offer one more tool. Raises ValueError for a name that is taken."""
        if tool.name in self._tools:
            msg = f"there are two tools named {tool.name!r}"
            raise ValueError(msg)
        self._tools[tool.name] = tool
        self._listed.clear()

    def all(self) -> list[Tool]:
        """Return the tools in the order in which they were added."""
        return list(self._tools.values())

    def listed(self, form: str, make: Callable[[list[Tool]], Listed]) -> Listed:
        """Return the list of all tools in some form, made once: it may be long, and agents may ask for it again and again."""
        if form not in self._listed:
            self._listed[form] = make(self.all())
        found: Listed = self._listed[form]
        return found

    def find(self, name: str) -> Tool | None:
        """Return a tool by name; None: there is none."""
        return self._tools.get(name)

    def announced(self, names: Iterable[str | None]) -> None:
        """Note the tools that a model's answer asks for: those calls have been counted there.

        Programs put something before the names of tools that come from servers, such as ``mcp__orchestrate__ask_user``.
        """
        for name in names:
            found = None if name is None else self._named_by(name)
            if found is not None:
                self._announced[found] += 1

    def take_announced(self, name: str) -> bool:
        """Return whether a call of a tool that begins now is one that a model asked for; each such call is known once."""
        if not self._announced[name]:
            return False
        self._announced[name] -= 1
        return True

    def _named_by(self, name: str) -> str | None:
        if name in self._tools:
            return name
        ends = [own for own in self._tools if re.search(rf"[^A-Za-z0-9]{re.escape(own)}$", name)]
        return max(ends, key=len, default=None)
