"""``world/tools.yaml``: the tools over a task's ephemeral database, and what becomes of a call.

A world is a folder: ``seed.sql`` makes the database that each launch gets a fresh copy of, ``tools.yaml`` (this format) says what can be
done with it, and ``tools.py`` holds the functions that SQL cannot say.

SQL sees the arguments of a call by name (``:order_id``; lists and mappings as JSON text, a missing one as null), and besides ``:now`` (the
world's clock, ``2026-03-02T09:00:00Z``) and ``:call`` (the number of this tool's call in the launch, from 1). All statements of
a call, its row of the log and its message for the outbox are one transaction. Three tables are the world's own: ``_calls``, ``_outbox``,
``_approvals``. SQL may read them and never writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints, model_validator

from orchestrator.spec.base import Bytes, Name, Spec

OWN_TOOLS = frozenset({"finish", "ask_user", "request_approval"})
"""Names of tools that a world cannot take."""
OWN_ARGUMENTS = frozenset({"now", "call", "page_token"})
"""Names that SQL knows already, or that pages bring along."""

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$")]
"""Name of a tool, as models' providers take it."""
Sql = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
"""One SQL statement of SQLite."""
Words = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
"""Text for an agent. ``{order_id}`` stands for the argument of that name."""


class WorldLimits(Spec):
    """What one launch's world may use."""

    database: Bytes = 64 << 20
    """Size of the database, in bytes."""
    seconds: float = Field(default=5, gt=0, le=60)
    """Longest time of one call, in seconds."""
    rows: int = Field(default=1000, gt=0, le=100_000)
    """Most rows that one statement gives back; more is an error of the call."""
    memory: Bytes = 256 << 20
    """Memory of the process that runs a call, in bytes."""


class Precondition(Spec):
    """What must hold before a call has an effect. The first one that does not is the call's typed error."""

    sql: Sql
    """A SELECT. It holds when it gives a row whose first value is neither null nor 0 nor an empty text."""
    error: Name
    """The short word of the error, such as ``not_found``."""
    message: Words
    """The same in words."""


class ResultPart(Spec):
    """One value of a result. Exactly one of the three, each a SELECT that runs after the effects."""

    row: Sql | None = None
    """The first row as a mapping of its columns; null without one."""
    rows: Sql | None = None
    """All rows, each as a mapping."""
    value: Sql | None = None
    """The first value of the first row; null without one."""

    @model_validator(mode="after")
    def _one(self) -> ResultPart:
        if sum(each is not None for each in (self.row, self.rows, self.value)) != 1:
            msg = "give exactly one of row, rows, value"
            raise ValueError(msg)
        return self


class Page(Spec):
    """Gives a list of the result in pages. The tool takes ``page_token`` then, and gives ``next_page_token``, null on the last page."""

    of: str
    """The part of ``result`` with ``rows``."""
    size: int = Field(gt=0, le=1000)
    """Rows of one page."""


class Fault(Spec):
    """A failure that is planted: the same calls fail in every trial, or a share of them by the trial's seed."""

    calls: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Numbers of the tool's calls in the launch that fail, from 1."""
    share: float | None = Field(default=None, gt=0, lt=1)
    """Instead: this share of the calls, chosen by the trial's seed."""
    error: Name = "unavailable"
    """The short word of the error."""
    message: Words = "the service answered with an internal error; try again"
    """The same in words."""
    status: int = Field(default=500, ge=400, le=599)
    """HTTP status of the answer."""
    effect: Literal["none", "done"] = "none"
    """``done``: what was asked has happened, and only the answer is lost."""

    @model_validator(mode="after")
    def _one(self) -> Fault:
        if bool(self.calls) == (self.share is not None):
            msg = "give exactly one of calls, share"
            raise ValueError(msg)
        return self


class Rate(Spec):
    """How often a tool may be called. A call beyond that is the error ``rate_limited``, status 429, and says when to try again."""

    calls: int = Field(gt=0)
    """Calls."""
    seconds: float = Field(gt=0, le=3600)
    """In any so many seconds of real time."""


class Approval(Spec):
    """When a call needs an approval that was given before, for the same tool and the same arguments. One approval is good for one call."""

    when: Sql
    """A SELECT over the arguments; an approval is needed when it holds as a precondition does."""


class Message(Spec):
    """What a call puts into the outbox. Nothing leaves the world."""

    to: Words
    """Whom it is for: ``{channel}``."""
    text: Words
    """What it says: ``{text}``."""


class Guarded(Spec):
    """What every tool of a world can have."""

    requires: tuple[Precondition, ...] = ()
    """What must hold, in this order."""
    requires_approval: bool | Approval = False
    """Whether somebody must have approved the call; see ``approvals``."""
    faults: tuple[Fault, ...] = ()
    """Planted failures."""
    rate: Rate | None = None
    """How often it may be called."""
    irreversible: bool = False
    """Whether what it does cannot be undone."""


def _no_arguments() -> dict[str, JsonValue]:
    return {"type": "object"}


class WorldTool(Guarded):
    """One tool over the database."""

    name: ToolName
    """Its name."""
    description: Annotated[str, StringConstraints(min_length=1, max_length=4000)]
    """For the model: what it is for."""
    arguments: dict[str, JsonValue] = Field(default_factory=_no_arguments)
    """JSON Schema of its arguments, an object. Arguments that it does not name are refused."""
    caller: Literal["agent", "user"] = "agent"
    """Who may call it: the agent, or the simulated user (a thing that only the user can do, such as restarting a phone)."""
    sql: tuple[Sql, ...] = ()
    """Its effects, in order."""
    result: dict[str, ResultPart] = Field(default_factory=dict)
    """What it gives back, by name."""
    page: Page | None = None
    """Pages of a long list."""
    function: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")] | None = None
    """Instead of ``sql`` and ``result``: the function of ``tools.py`` that does it."""
    message: Message | None = None
    """What it puts into the outbox."""

    @model_validator(mode="after")
    def _whole(self) -> WorldTool:
        problems = list(_tool_problems(self))
        if problems:
            raise ValueError("; ".join(problems))
        return self


class OutboxTool(Guarded):
    """A ready-made tool that sends something. What it sends is kept in the outbox."""

    name: Literal["post_message", "send_email", "refund"]
    """``post_message`` {channel, text}; ``send_email`` {to, subject, text}; ``refund`` {reference, amount, currency, reason}."""


class ApprovalRule(Spec):
    """What whoever approves says to ``request_approval``. The first rule that fits decides; without one the answer is no."""

    tool: ToolName
    """The tool that is to be called."""
    when: Sql | None = None
    """A SELECT over the arguments of that call, holding as a precondition does; always when absent."""
    say: Literal["granted", "denied"]
    """The answer."""
    message: Words = "decided by policy"
    """Its reason, for the agent."""


class World(Spec):
    """All of ``world/tools.yaml``."""

    limits: WorldLimits = WorldLimits()
    """What one launch's world may use."""
    tools: tuple[WorldTool, ...] = ()
    """Tools over the database."""
    outbox: tuple[OutboxTool, ...] = ()
    """Ready-made tools that send something."""
    approvals: tuple[ApprovalRule, ...] = ()
    """Who approves what."""

    @property
    def guarded(self) -> dict[str, WorldTool | OutboxTool]:
        """All tools by name."""
        found: list[WorldTool | OutboxTool] = [*self.tools, *self.outbox]
        return {tool.name: tool for tool in found}

    @property
    def has_approvals(self) -> bool:
        """Whether ``request_approval`` is offered: some tool needs one."""
        return any(tool.requires_approval is not False for tool in self.guarded.values())

    @property
    def has_functions(self) -> bool:
        """Whether ``tools.py`` is needed."""
        return any(tool.function is not None for tool in self.tools)

    @model_validator(mode="after")
    def _whole(self) -> World:
        names = [*(tool.name for tool in self.tools), *(tool.name for tool in self.outbox)]
        problems = [f"two tools are named {name!r}" for name in sorted({n for n in names if names.count(n) > 1})]
        problems += [
            f"approvals: there is no tool {rule.tool!r}" for rule in self.approvals if rule.tool not in self.guarded
        ]
        if not names:
            problems.append("there is no tool: give tools, outbox or both")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _tool_problems(tool: WorldTool) -> Iterator[str]:
    if tool.name in OWN_TOOLS:
        yield f"the name {tool.name!r} is taken by a tool of the gateway"
    if tool.function is not None and (tool.sql or tool.result or tool.page):
        yield "'function' replaces sql, result and page; give one or the other"
    if tool.function is None and not tool.sql and not tool.result:
        yield "the tool does nothing: give sql, result or function"
    if tool.arguments.get("type") != "object":
        yield "arguments must be a JSON Schema with type: object"
    taken = sorted(set(argument_names(tool.arguments)) & OWN_ARGUMENTS)
    yield from (f"the argument {name!r} has a name that is taken" for name in taken)
    if tool.page is not None and (tool.page.of not in tool.result or tool.result[tool.page.of].rows is None):
        yield f"page.of: {tool.page.of!r} is no part of the result with rows"


def argument_names(schema: dict[str, JsonValue]) -> tuple[str, ...]:
    """Return the names of the arguments that a schema of a tool names."""
    properties = schema.get("properties")
    return tuple(properties) if isinstance(properties, dict) else ()


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names in braces of a text such as ``there is no order {order_id}``."""
    return tuple(re.findall(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", text))


def named_parameters(sql: str) -> tuple[str, ...]:
    """Return the names after colons in a statement, texts, quoted names and comments left out."""
    plain = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)
    return tuple(dict.fromkeys(re.findall(r"(?<![:\w]):([A-Za-z_][A-Za-z0-9_]*)", plain)))


_OUTBOX_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "post_message": ("channel", "text"),
    "send_email": ("to", "subject", "text"),
    "refund": ("reference", "amount", "currency", "reason"),
}


def outbox_arguments(name: str) -> tuple[str, ...]:
    """Return the names of the arguments of a ready-made tool."""
    return _OUTBOX_ARGUMENTS[name]
