"""Functions of a task's ``tools.py``: ``def name(world, arguments)`` returns a mapping. They share the transaction of their call."""

from __future__ import annotations

import random
from typing import Any

from orchestrator.sandbox.world.database import Database

_MOST_DEPTH = 64
_WIDEST = 1 << 63


class CallError(Exception):
    """The typed error of a call: what an agent is told."""

    def __init__(self, kind: str, message: str, status: int = 409, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after = retry_after


class BrokenError(Exception):
    """The world itself is wrong: its author has to mend it. The agent learns only that the tool failed."""


class World:
    """What a function is given."""

    def __init__(self, database: Database, call: int, seed: int, caller: str) -> None:
        self._database = database
        self.call = call
        """Number of this tool's call in the launch, from 1."""
        self.now = database.now
        """The world's clock, RFC 3339; None: the real one."""
        self.random = random.Random(f"{seed}:{call}")  # noqa: S311 - repeatable on purpose
        """The same numbers in every trial with the same seed."""
        self.caller = caller
        """``agent`` or ``user``."""

    def query(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a SELECT, each as a mapping. Raises sqlite3.Error."""
        return self._database.read(sql, values)

    def execute(self, sql: str, **values: Any) -> int:
        """Run a statement and return how many rows it changed. Raises sqlite3.Error."""
        return self._database.write(sql, values)

    def error(self, kind: str, message: str, status: int = 409) -> CallError:
        """Return the typed error to raise: ``raise world.error("not_found", "there is no such order")``. Nothing is changed then."""
        return CallError(_text(kind, 100), _text(message, 2000), int(status) if 400 <= status <= 599 else 409)


def check_answer(value: Any, depth: int = _MOST_DEPTH) -> None:
    """Refuse what every program takes for JSON differently, or not at all. Agents bring it about: by numbers to multiply, texts to parse.

    Raises BrokenError.
    """
    if isinstance(value, dict | list | tuple):
        if not depth:
            msg = f"the answer nests deeper than {_MOST_DEPTH} levels"
            raise BrokenError(msg)
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            check_answer(each, depth - 1)
    elif isinstance(value, int) and not -_WIDEST <= value < _WIDEST:
        msg = "a number of the answer does not fit into 64 bits"
        raise BrokenError(msg)
    elif isinstance(value, str) and _text(value, len(value)) != value:
        msg = "a text of the answer holds half a surrogate pair"
        raise BrokenError(msg)


def _text(value: Any, most: int) -> str:
    return str(value)[:most].encode("utf-8", "replace").decode()


def load(source: str, path: str) -> dict[str, Any]:
    """Run a ``tools.py`` and return its names. Raises BrokenError."""
    names: dict[str, Any] = {"__name__": "tools", "__file__": path}
    try:
        exec(compile(source, path, "exec"), names)  # noqa: S102 - the author's, behind a jail
    except BaseException as error:
        msg = f"tools.py cannot be loaded: {type(error).__name__}: {error}"
        raise BrokenError(msg) from error
    return names
